// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// hanging is how long one call of the data plane may take before the agent
// counts as stuck. Even thousands of services take a few seconds, one by one.
const hanging = 30 * time.Second

// Alive returns what hangs in the agent, so that somebody should start it again;
// nil if it works. A configuration that can't be programmed hangs nothing.
func (a *Agent) Alive() error {
	since := a.Calling()
	if since.IsZero() {
		return nil
	}
	if took := time.Since(since); took > hanging {
		return fmt.Errorf("reconcile: the data plane has been at one call for %s", took.Round(time.Second))
	}
	return nil
}

// Ready returns why the node should get no packets of VIPs, all reasons at once;
// nil if it should.
func (a *Agent) Ready() error {
	if !a.Begun() {
		return errors.New("the first configuration has not been tried yet")
	}
	if len(a.Attachments()) == 0 {
		return errors.New("the data plane is attached to no interface")
	}
	return nil
}

// Probe answers whether a check finds nothing wrong: 200 and "ok", or 503 and
// what it found, one reason a line.
func Probe(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status, text := http.StatusOK, "ok"
		if err := check(); err != nil {
			status, text = http.StatusServiceUnavailable, err.Error()
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n") // a client that left needs no answer
	})
}
