// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/fake"
)

// TestRates lets a sampler run in simulated time over counters that the test
// moves between its readings.
func TestRates(t *testing.T) {
	vip := web.VIP
	id := netip.MustParseAddrPort("10.0.0.1:80")
	none := dataplane.Stats{}
	at := func(n uint64) dataplane.Stats {
		traffic := dataplane.Traffic{Packets: n, Bytes: 100 * n, NewFlows: 2 * n}
		return dataplane.Stats{
			Exits: map[string]uint64{"forward": n},
			Services: map[lb.VIP]dataplane.ServiceStats{
				vip: {Traffic: traffic, Backends: []lb.Backend{{Address: id.Addr(), Port: id.Port()}}, Shares: []dataplane.Traffic{traffic}},
			},
		}
	}
	steps := []struct {
		name string
		now  dataplane.Stats
		err  error
		want float64
	}{
		{"the first reading", at(1000), nil, 0},
		{"growth", at(1500), nil, 500},
		{"no traffic", at(1500), nil, 0},
		{"a reset", at(20), nil, 0},
		{"growth after it", at(30), nil, 10},
		{"the service goes", none, nil, 0},
		{"it comes back with its counters", at(40), nil, 0},
		{"growth again", at(41), nil, 1},
		{"an error", none, errors.New("broken"), 0},
		{"the first reading after it", at(100), nil, 0},
		{"growth at last", at(107), nil, 7},
	}
	synctest.Test(t, func(t *testing.T) {
		reading := 0
		o := NewObserver(readings{read: func() (dataplane.Stats, error) {
			step := steps[reading]
			reading++
			return step.now, step.err
		}}, nil, slog.New(slog.DiscardHandler))
		fake.Run(t, fake.Part(o.Run))
		for i, want := range steps {
			if i > 0 {
				time.Sleep(samplePeriod)
			}
			synctest.Wait()
			got := o.state.Get().rates
			if rate := got.exit("forward"); rate != want.want {
				t.Errorf("%s: exit %v, want %v", want.name, rate, want.want)
			}
			wantRate := Rate{PacketsPerSecond: want.want, BytesPerSecond: 100 * want.want, NewFlowsPerSecond: 2 * want.want}
			if rate := got.service(vip); rate != wantRate {
				t.Errorf("%s: service %v, want %v", want.name, rate, wantRate)
			}
			if rate := got.backend(vip, id); rate != wantRate {
				t.Errorf("%s: backend %v, want %v", want.name, rate, wantRate)
			}
		}
	})
}

// readings are an agent that is only read.
type readings struct {
	Agent
	read func() (dataplane.Stats, error)
}

func (r readings) Stats(context.Context) (dataplane.Stats, error) { return r.read() }

func (readings) Snapshot() store.Snapshot { return store.Snapshot{} }

func (readings) Describe() Status { return Status{} }
