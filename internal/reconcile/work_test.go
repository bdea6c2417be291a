// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/reconcile"
)

// What is done is counted with the time that it takes: here 2 ms a call, of a
// data plane that knows the time of each call's beginning.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var healed atomic.Bool
		w.dp.Fail = func(op string, failing lb.VIP) error {
			if since := w.reconciler.Calling(); time.Since(since) != 0 {
				t.Errorf("%s: the data plane is called, allegedly since %v", op, since)
			}
			time.Sleep(2 * time.Millisecond)
			if !healed.Load() && op == "update" && failing == vip(1) {
				return errors.New("no room")
			}
			return nil
		}
		w.start()
		w.set(services(2))
		time.Sleep(time.Second)
		synctest.Wait()
		work := w.reconciler.Work()
		retries := work.Update.Failures
		if retries < 3 || work.Update.Took.Count != retries+1 || work.Delay.Count != 1 || work.Prune.Took.Count != 1 {
			t.Errorf("%+v: want one service programmed, one retried, one prune", work)
		}
		if work.Delay.Sum != 2*time.Millisecond {
			t.Errorf("the first service was programmed after %v, want 2ms", work.Delay.Sum)
		}
		if !w.reconciler.Calling().IsZero() {
			t.Error("the data plane is said to be called while the reconciler waits")
		}

		healed.Store(true)
		time.Sleep(time.Minute) // the pause that was chosen before
		synctest.Wait()
		w.set(services(1))
		time.Sleep(time.Second)
		synctest.Wait()
		work = w.reconciler.Work()
		if work.Delete.Took.Count != 1 || work.Delay.Count != 2 || work.Delay.Sum < time.Second {
			t.Errorf("%+v: want one deletion, and that the retries are a part of the delay", work)
		}
		if got := upTo(work.Update.Took, 2500*time.Microsecond); got != work.Update.Took.Count {
			t.Errorf("%d of %d updates took up to 2.5ms, want all", got, work.Update.Took.Count)
		}
		if got := upTo(work.Update.Took, time.Millisecond); got != 0 {
			t.Errorf("%d updates took up to 1ms, want none", got)
		}
		if got := upTo(work.Delay, time.Second); got != 1 {
			t.Errorf("%d delays of up to 1s, want 1", got)
		}
	})
}

// upTo is how many durations were no longer than a bound of the histogram.
func upTo(d reconcile.Durations, bound time.Duration) uint64 {
	for b, count := range d.UpTo() {
		if b == bound {
			return count
		}
	}
	return 0
}
