// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/version"
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
	// connectTimeout bounds the time until there is a connection, responseTimeout that until the
	// header of the response.
	connectTimeout, responseTimeout = 5 * time.Second, 10 * time.Second
	// maxErrorBody is how much of an error response is read, in bytes.
	maxErrorBody = 4 << 10
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
		s.failed(i, err)
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

// failed records why a server isn't followed.
func (s *Source) failed(server int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed = ""
	s.errors[server] = s.Server.URLs[server] + ": " + err.Error()
	all := slices.DeleteFunc(slices.Clone(s.errors), func(text string) bool { return text == "" })
	if s.status.Failed(strings.Join(all, "; ")) {
		s.Log.Warn("API server unreachable", "server", s.Server.URLs[server], "error", err)
	}
}

// responded records that a server has sent something.
func (s *Source) responded(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed = server
	clear(s.errors)
	s.status.Responded(server)
}

// watch follows a server until that fails.
func (s *Source) watch(ctx context.Context, server string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(maxSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	response, err := s.send(ctx, http.MethodGet, server, watchPath, nil)
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
		s.responded(server)
	}
	switch line.Type {
	case "PUT", "DELETE":
		o, err := s.readObject(line.Object)
		if err != nil {
			return listed, err
		}
		switch {
		case listed != nil && line.Type == "PUT":
			listed[o.id] = o
		case listed != nil:
			delete(listed, o.id)
		default:
			s.change(o, line.Type == "DELETE")
		}
	case "SYNCED":
		if listed != nil {
			if err := s.checkFile(line.Identity, line.Version); err != nil && !line.Replaces {
				return listed, err
			}
			s.responded(server)
			s.replace(listed, line.Identity, line.Version)
		}
		return nil, nil
	}
	return listed, nil // ALIVE, and lines of newer servers
}

// checkFile returns the error of a server with another file than the last one, or with an older copy of
// it. This node would remove the services that it lacks.
func (s *Source) checkFile(identity, version string) error {
	const hint = "its load balancers aren't served, unless it runs with --replace"
	if s.identity == "" {
		return nil // nothing is known
	}
	if identity != s.identity {
		return fmt.Errorf("the file of the server is another one than before (%q, not %q): %s", identity, s.identity, hint)
	}
	now, err := strconv.ParseUint(version, 10, 64)
	before, otherErr := strconv.ParseUint(s.version, 10, 64)
	if err := errors.Join(err, otherErr); err != nil {
		return fmt.Errorf("version of the file: %w", err)
	}
	if now < before {
		return fmt.Errorf("the file of the server is older than before (version %d, not %d or later): %s", now, before, hint)
	}
	return nil
}

// replace replaces all objects.
func (s *Source) replace(listed map[source.Object]object, identity, version string) {
	s.mu.Lock()
	if s.objects == nil {
		s.objects = map[source.Object]status{}
	}
	for id := range s.objects {
		if _, known := listed[id]; !known {
			s.remove(id)
		}
	}
	for _, o := range listed {
		s.set(o)
	}
	s.identity, s.version = identity, version
	s.mu.Unlock()
	s.saver.Changed()
	wait.Signal(s.wake)
	wait.Signal(s.synced)
}

// change applies the change of an object.
func (s *Source) change(o object, deleted bool) {
	s.mu.Lock()
	if deleted {
		s.remove(o.id)
	} else {
		s.set(o)
	}
	s.version = o.version
	s.mu.Unlock()
	wait.Signal(s.wake)
}

// send sends a request over a connection of its own, with the current content of the credential
// files. It is an error if the response isn't a success.
func (s *Source) send(ctx context.Context, method, server, path string, body []byte) (*http.Response, error) {
	credentials, err := s.Server.Credentials()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(server, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "fairlead-agent/"+version.Version)
	if credentials.Token != "" {
		request.Header.Set("Authorization", "Bearer "+credentials.Token)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{
		Transport: s.transport(credentials.TLS),
		// Another server could be sent the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return nil, wrapped.Err // the rest repeats the URL
	}
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		return nil, refusal(response)
	}
	return response, nil
}

// newTransport returns how requests are sent over connections that aren't reused.
func newTransport(config *tls.Config) http.RoundTripper {
	return &http.Transport{
		DialContext:       (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSClientConfig:   config,
		DisableKeepAlives: true, TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: responseTimeout,
	}
}

// refusal returns the error of an error response (RFC 9457).
func refusal(response *http.Response) error {
	var problem struct{ Detail string }
	text, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err == nil {
		err = json.Unmarshal(text, &problem)
	}
	if err != nil || problem.Detail == "" {
		return errors.New(response.Status)
	}
	return fmt.Errorf("%s: %.200q", response.Status, problem.Detail)
}
