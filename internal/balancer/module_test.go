// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/dataplane/ipvs"
)

// An agent whose kernel lacks a module opens its data plane once the module is there, and ends when it is stopped.
func TestMissingModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loaded, began := time.Now().Add(time.Minute), time.Now()
		open := func() (string, error) {
			if time.Now().Before(loaded) {
				return "", &ipvs.MissingError{Module: "ip_vs", Err: errors.New("none")}
			}
			return "open", nil
		}
		terminate := make(chan struct{})
		p, err := withModule(t.Context(), terminate, slog.New(slog.DiscardHandler), open)
		if p != "open" || err != nil || time.Since(began) > time.Minute+moduleInterval {
			t.Errorf("after %s: %q, %v", time.Since(began), p, err)
		}
		loaded = time.Now().Add(time.Hour)
		time.AfterFunc(time.Minute, func() { close(terminate) })
		if _, err := withModule(t.Context(), terminate, slog.New(slog.DiscardHandler), open); err == nil || time.Now().After(loaded) {
			t.Errorf("stopped: %v", err)
		}
	})
}
