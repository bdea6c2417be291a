// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// load is a running wrk.
type load struct {
	cmd    *exec.Cmd
	output bytes.Buffer
}

// load starts wrk with one thread in the client's namespace.
func (s show) load(ctx context.Context, length time.Duration, args ...string) (*load, error) {
	l := &load{}
	args = append([]string{"-t", "1", "-d", length.String()}, args...)
	l.cmd = exec.CommandContext(ctx, "wrk", args...)
	l.cmd.Stdout, l.cmd.Stderr = &l.output, &l.output
	if err := s.lab.Do("client", l.cmd.Start); err != nil {
		return nil, fmt.Errorf("wrk: %w", err)
	}
	return l, nil
}

func (l *load) wait() (wrkResult, error) {
	if err := l.cmd.Wait(); err != nil {
		return wrkResult{}, fmt.Errorf("wrk: %w: %s", err, strings.TrimSpace(l.output.String()))
	}
	return parseWrk(l.output.String())
}

// kill ends a load without a result.
func (l *load) kill() error {
	err := l.cmd.Process.Kill()
	_ = l.cmd.Wait()
	return err
}

// wrkResult is the result of one run.
type wrkResult struct {
	requests, notOK               int
	rate                          float64 // requests a second
	connect, read, write, timeout int     // socket errors
}

var (
	wrkRequests = regexp.MustCompile(`(?m)^\s*(\d+) requests in `)
	wrkRate     = regexp.MustCompile(`(?m)^Requests/sec:\s+([\d.]+)`)
	wrkErrors   = regexp.MustCompile(`(?m)^\s*Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
	wrkNotOK    = regexp.MustCompile(`(?m)^\s*Non-2xx or 3xx responses: (\d+)`)
)

func parseWrk(text string) (wrkResult, error) {
	var r wrkResult
	requests, rate := wrkRequests.FindStringSubmatch(text), wrkRate.FindStringSubmatch(text)
	if requests == nil || rate == nil {
		return r, fmt.Errorf("wrk: no result in its output: %s", strings.TrimSpace(text))
	}
	// The expressions match numbers only.
	r.requests, _ = strconv.Atoi(requests[1])
	r.rate, _ = strconv.ParseFloat(rate[1], 64)
	if e := wrkErrors.FindStringSubmatch(text); e != nil {
		for i, field := range []*int{&r.connect, &r.read, &r.write, &r.timeout} {
			*field, _ = strconv.Atoi(e[i+1])
		}
	}
	if n := wrkNotOK.FindStringSubmatch(text); n != nil {
		r.notOK, _ = strconv.Atoi(n[1])
	}
	return r, nil
}

// broken is the number of broken connections.
func (r wrkResult) broken() int { return r.connect + r.read + r.write + r.timeout }

func (r wrkResult) String() string {
	return fmt.Sprintf("%d requests answered (%.0f a second); failed: %d connects, %d reads, %d writes, %d time-outs, %d not OK",
		r.requests, r.rate, r.connect, r.read, r.write, r.timeout, r.notOK)
}
