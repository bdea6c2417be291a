// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/observe"
)

// An agent is stuck when one call of its data plane doesn't end, and not while
// it does much or nothing.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, tt := range []struct {
			what  string
			since time.Time
			want  string
		}{
			{"idle", time.Time{}, ""},
			{"busy", now, ""},
			{"slow", now.Add(-30 * time.Second), ""},
			{"stuck", now.Add(-31 * time.Second), "reconcile: the data plane has been at one call for 31s"},
		} {
			agent := observe.Agent{Calling: func() time.Time { return tt.since }}
			if got := text(agent.Alive()); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
			}
		}
	})
}

func TestReady(t *testing.T) {
	attached := []observe.Attachment{{Interface: "eth0", Mode: "native"}}
	for _, tt := range []struct {
		begun bool
		to    []observe.Attachment
		want  string
	}{
		{false, nil, "the first configuration has not been tried yet"},
		{false, attached, "the first configuration has not been tried yet"}, // adopted
		{true, nil, "the data plane is attached to no interface"},
		{true, attached, ""},
	} {
		agent := observe.Agent{
			Begun:       func() bool { return tt.begun },
			Attachments: func() []observe.Attachment { return tt.to },
		}
		if got := text(agent.Ready()); got != tt.want {
			t.Errorf("begun %t, attached to %v: %q, want %q", tt.begun, tt.to, got, tt.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestProbe(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		body   string
	}{
		{nil, http.StatusOK, "ok\n"},
		{errors.Join(errors.New("one"), errors.New("two")), http.StatusServiceUnavailable, "one\ntwo\n"},
	} {
		recorder := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody)
		observe.Probe(func() error { return tt.err }).ServeHTTP(recorder, request)
		if recorder.Code != tt.status || recorder.Body.String() != tt.body {
			t.Errorf("%v: %d %q, want %d %q", tt.err, recorder.Code, recorder.Body, tt.status, tt.body)
		}
	}
}
