// SPDX-License-Identifier: Apache-2.0

package wait_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/wait"
)

// Each watcher sees the last value, however many came before.
func TestWatchersSeeTheLastValue(t *testing.T) {
	var v wait.Value[int]
	var watchers sync.WaitGroup
	for range 8 {
		watchers.Go(func() {
			last := 0
			for last < 1000 {
				value, changed := v.Watch()
				if value < last {
					t.Errorf("%d after %d", value, last)
				}
				if last = value; last < 1000 {
					<-changed
				}
			}
		})
	}
	for range 1000 {
		v.Modify(func(n *int) { *n++ })
	}
	watchers.Wait()
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v wait.Value[string]
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := v.Await(limited, func(s string) bool { return s != "" }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v of a wait that timed out", err)
		}
		time.AfterFunc(time.Second, func() { v.Set("here") })
		if got, err := v.Await(t.Context(), func(s string) bool { return s != "" }); got != "here" || err != nil {
			t.Errorf("got %q, error %v", got, err)
		}
	})
}
