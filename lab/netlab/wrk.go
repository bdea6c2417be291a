// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Wrk is a running wrk, which sends HTTP requests.
type Wrk struct {
	cmd    *exec.Cmd
	output bytes.Buffer
}

// Wrk starts wrk with one thread in a host.
func (l *Lab) Wrk(ctx context.Context, host string, length time.Duration, args ...string) (*Wrk, error) {
	w := &Wrk{}
	w.cmd = exec.CommandContext(ctx, "wrk", append([]string{"-t", "1", "-d", fmt.Sprintf("%.0fs", length.Seconds())}, args...)...)
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	if err := l.Do(host, w.cmd.Start); err != nil {
		return nil, fmt.Errorf("wrk: %w", err)
	}
	return w, nil
}

// Wait waits for the end of wrk, which isn't an error if requests fail.
func (w *Wrk) Wait() (WrkResult, error) {
	if err := w.cmd.Wait(); err != nil {
		return WrkResult{}, fmt.Errorf("wrk: %w: %s", err, strings.TrimSpace(w.output.String()))
	}
	return parseWrk(w.output.String())
}

// Interrupt makes wrk end now with a result.
func (w *Wrk) Interrupt() error { return w.cmd.Process.Signal(os.Interrupt) }

// Kill ends wrk without a result.
func (w *Wrk) Kill() error {
	err := w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	return err
}

// WrkResult is the result of one run.
type WrkResult struct {
	// Requests are those that were answered, of which NotOK had another status than 2xx
	// or 3xx.
	Requests, NotOK int
	// Rate is the number of requests a second. wrk runs for up to 0.1 s longer than it should.
	Rate                          float64
	connect, read, write, timeout int // socket errors
}

var (
	wrkRequests = regexp.MustCompile(`(?m)^\s*(\d+) requests in `)
	wrkRate     = regexp.MustCompile(`(?m)^Requests/sec:\s+([\d.]+)`)
	wrkErrors   = regexp.MustCompile(`(?m)^\s*Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
	wrkNotOK    = regexp.MustCompile(`(?m)^\s*Non-2xx or 3xx responses: (\d+)`)
)

func parseWrk(text string) (WrkResult, error) {
	var r WrkResult
	requests, rate := wrkRequests.FindStringSubmatch(text), wrkRate.FindStringSubmatch(text)
	if requests == nil || rate == nil {
		return r, fmt.Errorf("wrk: no result in its output: %s", strings.TrimSpace(text))
	}
	// The expressions match numbers only.
	r.Requests, _ = strconv.Atoi(requests[1])
	r.Rate, _ = strconv.ParseFloat(rate[1], 64)
	if e := wrkErrors.FindStringSubmatch(text); e != nil {
		for i, field := range []*int{&r.connect, &r.read, &r.write, &r.timeout} {
			*field, _ = strconv.Atoi(e[i+1])
		}
	}
	if n := wrkNotOK.FindStringSubmatch(text); n != nil {
		r.NotOK, _ = strconv.Atoi(n[1])
	}
	return r, nil
}

// Broken is the number of broken connections.
func (r WrkResult) Broken() int { return r.connect + r.read + r.write + r.timeout }

func (r WrkResult) String() string {
	return fmt.Sprintf("%d requests answered (%.0f a second); failed: %d connects, %d reads, %d writes, %d time-outs, %d not OK",
		r.Requests, r.Rate, r.connect, r.read, r.write, r.timeout, r.NotOK)
}
