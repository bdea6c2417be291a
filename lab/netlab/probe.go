// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// A probe is answered when probeRun requests in a row have been, each from another
// port, and every server has answered. With three routes the chance to miss a dead
// one is (2/3)^32, two in a million.
const (
	probeRun     = 32
	probeTimeout = 500 * time.Millisecond
	probePause   = 20 * time.Millisecond // after a failure
)

// awaitReady returns when the topology's routers have learned their routes and
// its probes are answered.
func (l *Lab) awaitReady(ctx context.Context, t *Topology) error {
	learning, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, r := range t.Learned {
		l.labs.progress("waiting for the route of %s to %s", r.Host, r.Prefix)
		if err := l.AwaitRoute(learning, r); err != nil {
			return errors.Join(l.unexpectedEnds(), err)
		}
	}
	return l.AwaitProbes(ctx, t.Probes)
}

// AwaitProbes waits until all probes have been answered. The error names processes
// that have ended, and the result of the last request.
func (l *Lab) AwaitProbes(ctx context.Context, probes []Probe) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, p := range probes {
		l.labs.progress("waiting for %s %s", p.Protocol, p.Address)
		if err := l.awaitProbe(ctx, p); err != nil {
			return fmt.Errorf("probe of %s %s from %s: %w", p.Protocol, p.Address, p.From, err)
		}
	}
	return nil
}

func (l *Lab) awaitProbe(ctx context.Context, p Probe) error {
	answered := map[string]bool{}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(p.Answers), func(s string) bool { return answered[s] })
	}
	for run := 0; run < probeRun || len(missing()) > 0; run++ {
		name, err := l.query(ctx, p)
		if err == nil && !slices.Contains(p.Answers, name) {
			err = fmt.Errorf("answered by %q", name)
		}
		if ended := l.unexpectedEnds(); ended != nil {
			return errors.Join(ended, err)
		}
		switch {
		case ctx.Err() != nil && err == nil:
			return fmt.Errorf("no answer from %s: %w", strings.Join(missing(), ", "), ctx.Err())
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case err != nil:
			run = -1
			clear(answered)
			_ = Sleep(ctx, probePause)
		default:
			answered[name] = true
		}
	}
	return nil
}

// Sleep waits, or until ctx ends, whose error it returns.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Poll is the usual pause of Await: a query of a process costs little.
const Poll = 10 * time.Millisecond

// Permanent is an error that ends Await.
type Permanent struct{ Err error }

// Unwrap returns the error.
func (p Permanent) Unwrap() error { return p.Err }

// Error implements error.
func (p Permanent) Error() string { return p.Err.Error() }

// Await calls check, with a pause after each call, until it returns nil or a Permanent error,
// which Await returns. If ctx ends before, the error is ctx's and the last one.
func Await(ctx context.Context, pause time.Duration, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		if _, permanent := errors.AsType[Permanent](err); permanent {
			return err
		}
		if ended := Sleep(ctx, pause); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// unexpectedEnds names all processes that have ended by themselves. The lab is locked.
func (l *Lab) unexpectedEnds() error {
	var errs []error
	for i := range l.state.Hosts {
		for _, p := range l.state.Hosts[i].Processes {
			errs = append(errs, l.state.Hosts[i].Check(p))
		}
	}
	return errors.Join(errs...)
}

// query sends one request and returns the name of the answering server.
func (l *Lab) query(ctx context.Context, p Probe) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if p.Protocol == lb.UDP {
		return l.queryEcho(ctx, p)
	}
	return l.Get(ctx, p.From, "http://"+p.Address.String()+"/")
}

// Get requests a page from a host, on a new connection, and returns it without blanks
// around it.
func (l *Lab) Get(ctx context.Context, host, url string) (string, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		// The transport's own context outlives the request.
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return l.Dial(ctx, host, network, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: status %s", url, response.Status)
	}
	body, err := io.ReadAll(response.Body)
	return strings.TrimSpace(string(body)), err
}

func (l *Lab) queryEcho(ctx context.Context, p Probe) (string, error) {
	conn, err := l.Dial(ctx, p.From, "udp", p.Address.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := conn.Write([]byte("probe")); err != nil {
		return "", err
	}
	answer := make([]byte, maxDatagram)
	n, err := conn.Read(answer)
	if err != nil {
		return "", err
	}
	name, payload, _ := strings.Cut(string(answer[:n]), " ")
	if payload != "probe" {
		return "", fmt.Errorf("echo of %q instead of %q", payload, "probe")
	}
	return name, nil
}
