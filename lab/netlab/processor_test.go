// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"
)

// The processor time of requests is counted at each host that they pass, and no time twice.
func TestBusy(t *testing.T) {
	lab := bringUp(t, newLabs(t), plain(1))
	meter, err := NewMeter(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	before, err := meter.Busy()
	for range 50 {
		_, failed := lab.Get(t.Context(), "client", "http://10.1.1.1/")
		err = errors.Join(err, failed)
	}
	after, failed := meter.Busy()
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, h := range lab.State().Hosts {
		// The client of these requests is this process: only its receiving is the host's.
		busy := after[h.Name] - before[h.Name]
		if busy <= 0 {
			t.Errorf("host %s: %s", h.Name, busy)
		}
		sum += busy
	}
	if most := time.Since(begun) * time.Duration(runtime.NumCPU()); sum > most {
		t.Errorf("all hosts: %s, want at most %s", sum, most)
	}
}

func TestRunTime(t *testing.T) {
	before, err := runTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = Await(ctx, 0, func() error {
		if now, err := runTime(os.Getpid()); err != nil || now-before < time.Millisecond {
			return errors.Join(errors.New("no millisecond of processor time"), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
