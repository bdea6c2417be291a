// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/wait"
)

const (
	watchPath = "/v1/watch"
	watchType = "application/x-ndjson"
	// maxSilence is how long nothing may arrive: the server sends something every ten seconds.
	maxSilence = 30 * time.Second
	// maxLine is the largest size of a line in bytes: a LoadBalancer with its status has at most
	// 1.5 MiB, or twice as much if a new policy refuses its members.
	maxLine = 4 << 20
	// backoffReset is how long a server has to be followed for the backoff to start over.
	backoffReset = 10 * time.Second
)

// Errors of a connection.
var (
	errSilent = fmt.Errorf("nothing received for %s", maxSilence)
	errEnded  = errors.New("the server ended the response")
)

// follow follows one server after the other until ctx ends.
func (s *Source) follow(ctx context.Context) {
	for i, failures := 0, 1; ; i = (i + 1) % len(s.Server.URLs) {
		began := time.Now()
		err := s.watch(ctx, s.Server.URLs[i])
		if ctx.Err() != nil {
			return
		}
		s.servers.failed(i, err)
		if time.Since(began) > backoffReset {
			failures = 1
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(source.RetryDelay().Delay(failures)):
		}
		failures++
	}
}

// watch follows a server until that fails.
func (s *Source) watch(ctx context.Context, server string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(maxSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	response, err := s.servers.send(ctx, http.MethodGet, server, watchPath, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != watchType {
		return fmt.Errorf("the response is %q: want %s", kind, watchType)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxLine)
	listed := map[source.Object]object{} // nil once all objects are known
	for lines.Scan() {
		silence.Reset(maxSilence)
		if listed, err = s.apply(server, lines.Bytes(), listed); err != nil {
			return err
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errEnded
}

// apply applies a line of a server's response. Objects are listed before the line SYNCED: they replace
// all objects together, if the server is one to follow, which counts as reached from then on. It returns
// the objects that are listed.
func (s *Source) apply(server string, text []byte, listed map[source.Object]object) (map[source.Object]object, error) {
	var line struct {
		Type, Version, Identity string
		Replaces                bool
		Object                  json.RawMessage
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return listed, fmt.Errorf("line of the response: %w", err)
	}
	if listed == nil {
		s.servers.responded(server)
	}
	switch line.Type {
	case "PUT", "DELETE":
		o, err := s.balancers.read(line.Object)
		if err != nil {
			return listed, err
		}
		switch {
		case listed != nil && line.Type == "PUT":
			listed[o.id] = o
		case listed != nil:
			delete(listed, o.id)
		default:
			s.balancers.put(o, line.Type == "DELETE")
			wait.Signal(s.wake)
		}
	case "SYNCED":
		if listed != nil {
			if err := s.balancers.checkFile(line.Identity, line.Version); err != nil && !line.Replaces {
				return listed, err
			}
			s.servers.responded(server)
			s.balancers.replace(listed, line.Identity, line.Version)
			s.saver.Changed()
			wait.Signal(s.wake)
			wait.Signal(s.reports.again)
		}
		return nil, nil
	}
	return listed, nil // ALIVE, and lines of newer servers
}
