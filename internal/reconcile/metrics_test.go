// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"fairlead.io/fairlead/internal/lb"
)

// Calls are counted with their duration: here 2 ms a call, of a data plane that
// knows the time of each call's beginning.
func TestWork(t *testing.T) {
	withReconciler(t, func(t *testing.T, r *testReconciler) {
		var healed atomic.Bool
		r.dp.Fail = func(op string, failing lb.VIP) error {
			if since := r.Calling(); time.Since(since) != 0 {
				t.Errorf("%s: the data plane is called, allegedly since %v", op, since)
			}
			time.Sleep(2 * time.Millisecond)
			if !healed.Load() && op == "update" && failing == vip(1) {
				return errors.New("no room")
			}
			return nil
		}
		r.start()
		r.set(services(2))
		time.Sleep(time.Second)
		synctest.Wait()
		work := r.work()
		retries := work.failures[opUpdate]
		if retries < 3 || work.took[opUpdate].GetSampleCount() != uint64(retries)+1 || work.delay.GetSampleCount() != 1 || work.took["prune"].GetSampleCount() != 1 {
			t.Errorf("%+v: want one service programmed, one retried, one prune", work)
		}
		if work.delay.GetSampleSum() != .002 {
			t.Errorf("the first service was programmed after %v s, want 2 ms", work.delay.GetSampleSum())
		}

		healed.Store(true)
		time.Sleep(time.Minute) // the pause that was chosen before
		synctest.Wait()
		if !r.Calling().IsZero() {
			t.Error("the data plane is said to be called while the reconciler waits")
		}
		r.set(services(1))
		time.Sleep(time.Second)
		synctest.Wait()
		work = r.work()
		if work.took["delete"].GetSampleCount() != 1 || work.delay.GetSampleCount() != 2 || work.delay.GetSampleSum() < 1 {
			t.Errorf("%+v: want one deletion, and that the retries are a part of the delay", work)
		}
		if got := upTo(work.took[opUpdate], .0025); got != work.took[opUpdate].GetSampleCount() {
			t.Errorf("%d of %d updates took up to 2.5ms, want all", got, work.took[opUpdate].GetSampleCount())
		}
		if got := upTo(work.took[opUpdate], .001); got != 0 {
			t.Errorf("%d updates took up to 1ms, want none", got)
		}
		if got := upTo(work.delay, 1); got != 1 {
			t.Errorf("%d delays of up to 1s, want 1", got)
		}
	})
}

const opUpdate = "update"

// work has a reconciler's counters.
type work struct {
	took     map[string]*dto.Histogram
	failures map[string]float64
	delay    *dto.Histogram
}

func (r *testReconciler) work() work {
	r.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.Metrics()...)
	families, err := registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	found := work{took: map[string]*dto.Histogram{}, failures: map[string]float64{}}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "fairlead_reconcile_duration_seconds":
				found.took[m.GetLabel()[0].GetValue()] = m.GetHistogram()
			case "fairlead_reconcile_errors_total":
				found.failures[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			case "fairlead_reconcile_delay_seconds":
				found.delay = m.GetHistogram()
			}
		}
	}
	return found
}

// upTo is how many samples were no larger than a bound of the histogram.
func upTo(h *dto.Histogram, bound float64) uint64 {
	for _, b := range h.GetBucket() {
		if b.GetUpperBound() == bound {
			return b.GetCumulativeCount()
		}
	}
	return 0
}
