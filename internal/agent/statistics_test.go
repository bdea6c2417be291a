// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	agenttest "fairlead.io/fairlead/test/agent"
	"fairlead.io/fairlead/test/fake"
)

// sentStatistics are counters, and when they were sent.
type sentStatistics struct {
	at        time.Duration
	listeners []v1alpha1.ListenerStatistics
}

// reportingStatistics runs a reporter on an observed agent in a bubble's time, and returns a
// function that lists the reports so far.
func reportingStatistics(t *testing.T, agent *agenttest.Agent, answer func(n int) error) func() []sentStatistics {
	began, log := time.Now(), slog.New(slog.DiscardHandler)
	observer := observe.NewObserver(agent, observe.NewRecorder(log), log)
	var mu sync.Mutex
	var all []sentStatistics
	r := statisticsReporter{latest: observer.Next, log: log, send: func(_ context.Context, s *v1alpha1.BalancerNodeStatisticsStatus) error {
		mu.Lock()
		defer mu.Unlock()
		if age := time.Since(s.Reported.Time); age > time.Second {
			t.Errorf("counters of %s ago", age)
		}
		all = append(all, sentStatistics{time.Since(began), s.Listeners})
		return answer(len(all))
	}}
	fake.Run(t, fake.Part(observer.Run), fake.Part(r.run))
	return func() []sentStatistics {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// listeners are the services of two LoadBalancers' listeners and of a Service.
func listeners() []lb.Service {
	services := checkedServices(0, 3)
	for i, name := range []string{"flb:default/shop/https", "default/web/80", "flb:default/db/sql"} {
		services[i].Name, services[i].Health = name, nil
	}
	return services
}

// forward has the data plane forward packets.
func forward(t *testing.T, agent *agenttest.Agent, service *lb.Service, packets int) {
	t.Helper()
	for range packets {
		if _, forwarded := agent.DP.Probe(service.VIP, netip.MustParseAddrPort("192.0.2.1:1024")); !forwarded {
			t.Fatalf("%s forwards nothing", service.Name)
		}
	}
}

// The first packet after a pause is reported within seconds, later packets once a minute.
func TestStatistics(t *testing.T) {
	withAgent(t, func(t *testing.T, agent *agenttest.Agent) {
		services := listeners()
		agent.Set(t, services...)
		reports := reportingStatistics(t, agent, accepted)
		const soon = statisticsTick + 2*time.Second
		// sum returns the packets of both listeners in the latest report.
		sum := func() (packets int64) {
			all := reports()
			latest := all[len(all)-1].listeners
			if len(latest) != 2 || latest[0].Service != services[2].Name || latest[1].Service != services[0].Name {
				t.Fatalf("reported %+v, want both listeners", latest)
			}
			return latest[0].Packets + latest[1].Packets
		}
		time.Sleep(time.Hour)
		if n := len(reports()); n != 1 || sum() != 0 {
			t.Fatalf("%d reports before the first packet, want one", n)
		}
		forward(t, agent, &services[1], 5)
		time.Sleep(time.Hour)
		if n := len(reports()); n != 1 {
			t.Fatalf("%d reports after packets of a Service, want none more", n)
		}

		for range 3 {
			before, counted := len(reports()), sum()
			forward(t, agent, &services[0], 1)
			time.Sleep(soon)
			if n := len(reports()) - before; n != 1 || sum() != counted+1 {
				t.Fatalf("%d reports of %d packets soon after the first packet, want one of %d", n, sum(), counted+1)
			}
			const minutes = 30
			for range minutes * 60 {
				forward(t, agent, &services[2], 1)
				time.Sleep(time.Second)
			}
			time.Sleep(2 * statisticsInterval)
			if n := len(reports()) - before; n < minutes || n > minutes+statisticsBurst+1 || sum() != counted+1+minutes*60 {
				t.Errorf("%d reports of %d minutes with packets, the last one of %d packets, want %d", n, minutes, sum(), counted+1+minutes*60)
			}
			busy := len(reports())
			time.Sleep(time.Hour)
			if n := len(reports()); n != busy {
				t.Errorf("%d reports at rest", n-busy)
			}
		}
	})
}

// A node without LoadBalancers reports nothing, and one that has lost its last one says so.
func TestStatisticsWithoutListeners(t *testing.T) {
	withAgent(t, func(t *testing.T, agent *agenttest.Agent) {
		services := listeners()
		agent.Set(t, services[1])
		reports := reportingStatistics(t, agent, accepted)
		time.Sleep(time.Hour)
		if n := len(reports()); n != 0 {
			t.Fatalf("%d reports without a listener", n)
		}
		agent.Set(t, services...)
		time.Sleep(time.Minute)
		agent.Set(t, services[1])
		time.Sleep(time.Minute)
		if got := reports(); len(got) != 2 || len(got[0].listeners) != 2 || len(got[1].listeners) != 0 {
			t.Errorf("reported %+v, want two listeners, then none", got)
		}
	})
}

// Counters that can't be read are not reported, and a report that isn't written is repeated, once a
// minute.
func TestStatisticsRetry(t *testing.T) {
	withAgent(t, func(t *testing.T, agent *agenttest.Agent) {
		agent.Set(t, listeners()...)
		agent.Unreadable.Store(new(errors.New("no table")))
		const failures = 10
		reports := reportingStatistics(t, agent, func(n int) error {
			if n <= failures {
				return errors.New("not allowed")
			}
			return nil
		})
		time.Sleep(time.Hour)
		if n := len(reports()); n != 0 {
			t.Fatalf("%d reports of unreadable counters", n)
		}
		agent.Unreadable.Store(nil)
		time.Sleep(time.Hour)
		got := reports()
		if len(got) != failures+1 {
			t.Fatalf("%d attempts, want %d", len(got), failures+1)
		}
		if took := got[failures].at - got[0].at; took < (failures-statisticsBurst)*statisticsInterval {
			t.Errorf("%d attempts in %s", failures+1, took)
		}
	})
}

// Counters of 4,096 listeners fit into one object also if all names are UUIDs, as OpenStack's are.
// With the longest names the last listeners are omitted.
func TestStatisticsFit(t *testing.T) {
	const (
		listeners = 4096
		// most is the largest size of all listeners.
		most = 900_000
	)
	uuid := func(n int) string { return fmt.Sprintf("%08x-1111-2222-3333-444444444444", n) }
	for name, test := range map[string]struct {
		service func(n int) string
		traffic uint64
		omits   bool
		size    int // of the object; it may be a tenth smaller
	}{
		"short names":   {func(n int) string { return fmt.Sprintf("flb:project-web/shop%d/http", n) }, 1 << 40, false, 440_000},
		"OpenStack":     {func(n int) string { return "flb:project-" + uuid(n)[:32] + "/" + uuid(n) + "/" + uuid(n) }, 1 << 40, false, 850_000},
		"longest names": {func(n int) string { return fmt.Sprintf("flb:%0371d", n) }, math.MaxUint64, true, most},
	} {
		t.Run(name, func(t *testing.T) {
			var all []v1alpha1.ListenerStatistics
			for n := range listeners {
				all = append(all, v1alpha1.ListenerStatistics{
					Service: test.service(n), Packets: clamp(test.traffic / 1000), Bytes: clamp(test.traffic), NewFlows: clamp(test.traffic / 100_000),
				})
			}
			listed := fitting(all)
			text, err := json.Marshal(v1alpha1.BalancerNodeStatistics{Status: v1alpha1.BalancerNodeStatisticsStatus{Listeners: listed}})
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > test.size || len(text) < test.size/10*9 {
				t.Errorf("%d bytes, want at most %d and not much less", len(text), test.size)
			}
			if omits := len(listed) < listeners; omits != test.omits || !slices.Equal(listed, all[:len(listed)]) {
				t.Errorf("%d listeners of %d", len(listed), listeners)
			}
		})
	}
}

// A namespace with more listeners than fit leaves others theirs.
func TestStatisticsAreShared(t *testing.T) {
	long := strings.Repeat("x", 200)
	var all []v1alpha1.ListenerStatistics
	for n := range 4000 {
		all = append(all, v1alpha1.ListenerStatistics{Service: fmt.Sprintf("flb:a/%s%04d/http", long, n)})
	}
	last := v1alpha1.ListenerStatistics{Service: "flb:b/web/http", Bytes: 7}
	listed := fitting(append(all, last))
	if len(listed) == len(all) || listed[len(listed)-1] != last || !slices.Equal(listed[:len(listed)-1], all[:len(listed)-1]) {
		t.Errorf("%d listeners of %d, the last one is %+v", len(listed), len(all)+1, listed[len(listed)-1])
	}
}
