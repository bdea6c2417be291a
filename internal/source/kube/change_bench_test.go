// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BenchmarkChange is the time from writing an EndpointSlice until the change is
// desired, with 2,000 Services of 10 endpoints, a real API server, and what follows
// in the same process; and what the agent's part takes at rest.
//
//	go test -run - -bench Change -benchtime 1000x ./internal/source/kube
func BenchmarkChange(b *testing.B) {
	const services, endpoints = 2000, 10
	w := startWorld(b)
	w.node("lb1", "192.0.2.11")
	w.group("blue", "lb1")
	var writers sync.WaitGroup
	for first := range 8 {
		writers.Go(func() {
			for i := first; i < services; i += 8 {
				w.service(fmt.Sprintf("s%d", i), "blue", fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250))
				w.slice(fmt.Sprintf("s%d", i), addresses(i, endpoints)...)
			}
		})
	}
	writers.Wait()
	runtime.GC()
	before := allocated()
	began := time.Now()
	a := startAgent(b, w.Config(), "lb1", b.TempDir())
	a.until("all is known", func() bool { return len(a.store.Snapshot().Services) == services })
	synced := time.Since(began)
	runtime.GC()
	memory := allocated() - before
	rest := processor()
	<-time.After(5 * time.Second)
	rest = processor() - rest
	var took, after []time.Duration
	for i := 0; b.Loop(); i++ {
		es := &discoveryv1.EndpointSlice{}
		w.must(w.objects.Get(b.Context(), client.ObjectKey{Namespace: "default", Name: fmt.Sprintf("s%d-1", i%services)}, es))
		es.Endpoints[0].Addresses = []string{fmt.Sprintf("10.200.%d.%d", i/250%250, 1+i%250)}
		_, changed := a.store.Watch()
		start := time.Now()
		w.must(w.objects.Update(b.Context(), es))
		written := time.Now()
		<-changed
		took, after = append(took, time.Since(start)), append(after, time.Since(written))
	}
	slices.Sort(took)
	slices.Sort(after)
	b.ReportMetric(synced.Seconds()*1000, "sync-ms")
	b.ReportMetric(float64(memory)/(1<<20), "MiB")
	b.ReportMetric(rest.Seconds()/5*100, "rest-cpu-%")
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
	b.ReportMetric(after[len(after)*99/100].Seconds()*1000, "p99-after-write-ms")
}

func addresses(seed, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("10.%d.%d.%d", i, seed/250%250, 1+seed%250))
	}
	return list
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// processor is the time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
