// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// served is a load balancer with two members, one listener on TCP and one on UDP.
func served() *v1alpha1.LoadBalancer {
	check := &v1alpha1.HealthCheck{Type: "tcp"}
	return &v1alpha1.LoadBalancer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "project-web", Name: "lb", Generation: 2},
		Spec: v1alpha1.LoadBalancerSpec{
			Forward:   "nat",
			Listeners: []v1alpha1.Listener{{Name: "tcp", Port: 80, Pool: "web"}, {Name: "udp", Port: 53, Protocol: "UDP", Pool: "dns"}},
			Pools: []v1alpha1.Pool{
				{Name: "web", HealthCheck: check, Members: []v1alpha1.Member{{Address: "192.0.2.1", Port: 80}, {Address: "2001:db8::2", Port: 80}}},
				{Name: "dns", Members: []v1alpha1.Member{{Address: "192.0.2.3", Port: 53}}},
			},
		},
		Status: v1alpha1.LoadBalancerStatus{
			Address: "203.0.113.1", Group: "default",
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionAllocated, Status: metav1.ConditionTrue, ObservedGeneration: 2},
				{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2},
			},
		},
	}
}

// text has a line for each part: name, provisioning and operating status, message.
func (s *balancerStatus) text() string {
	var out strings.Builder
	line := func(depth int, p partStatus) {
		fmt.Fprintf(&out, "%s%s\n", strings.Repeat(" ", depth), strings.TrimSpace(fmt.Sprintln(p.Name, p.ProvisioningStatus, p.OperatingStatus, p.Message)))
	}
	line(0, s.partStatus)
	for _, l := range s.Listeners {
		line(1, l.partStatus)
	}
	for _, p := range s.Pools {
		line(1, p.partStatus)
		for _, m := range p.Members {
			line(2, m)
		}
	}
	return out.String()
}

func TestStatus(t *testing.T) {
	type reports = map[string]*v1alpha1.BalancerNodeStatus
	const service = "flb:project-web/lb/"
	dead := func(backends ...string) *v1alpha1.BalancerNodeStatus {
		s := &v1alpha1.BalancerNodeStatus{Backends: v1alpha1.BackendCounts{Unhealthy: int32(len(backends))}}
		for _, b := range backends {
			s.Unhealthy = append(s.Unhealthy, v1alpha1.UnhealthyBackend{Service: service + "tcp", Backend: b, Message: "refused"})
		}
		return s
	}
	refused := &v1alpha1.BalancerNodeStatus{FailedServices: []v1alpha1.NodeProblem{{Object: service + "udp", Message: "table full"}}}
	full := dead()
	full.Backends.Unhealthy = 101
	others := dead()
	others.Backends.Unhealthy = 3000
	for range 100 {
		others.Unhealthy = append(others.Unhealthy, v1alpha1.UnhealthyBackend{Service: "flb:project-other/lb/tcp", Backend: "192.0.2.9:80"})
	}
	no := false
	for name, test := range map[string]struct {
		change  func(b *v1alpha1.LoadBalancer)
		reports reports
		want    []string // lines
	}{
		"all well": {nil, reports{"n1": dead()}, []string{
			"lb ACTIVE ONLINE", " tcp ACTIVE ONLINE", " udp ACTIVE ONLINE", " web ACTIVE ONLINE", "  192.0.2.1:80 ACTIVE ONLINE", "  [2001:db8::2]:80 ACTIVE ONLINE",
			" dns ACTIVE ONLINE", "  192.0.2.3:53 ACTIVE NO_MONITOR",
		}},
		"a member is dead": {nil, reports{"n1": dead(), "n2": dead("[2001:db8::2]:80")}, []string{
			"lb ACTIVE DEGRADED", " tcp ACTIVE DEGRADED", " web ACTIVE DEGRADED", "  192.0.2.1:80 ACTIVE ONLINE", "  [2001:db8::2]:80 ACTIVE ERROR n2: refused",
		}},
		"all members are dead": {nil, reports{"n1": dead("192.0.2.1:80", "[2001:db8::2]:80")}, []string{
			"lb ACTIVE DEGRADED", " tcp ACTIVE ERROR", " udp ACTIVE ONLINE", " web ACTIVE ERROR",
		}},
		"a node doesn't report": {nil, reports{"n1": dead("192.0.2.1:80"), "n2": nil}, []string{
			"lb ACTIVE DEGRADED", "  192.0.2.1:80 ACTIVE ERROR n1: refused", "  [2001:db8::2]:80 ACTIVE UNKNOWN", "  192.0.2.3:53 ACTIVE NO_MONITOR",
		}},
		"a report is full":     {nil, reports{"n1": full}, []string{"lb ACTIVE UNKNOWN", " tcp ACTIVE UNKNOWN", " udp ACTIVE ONLINE", "  192.0.2.1:80 ACTIVE UNKNOWN"}},
		"others fill a report": {nil, reports{"n1": others}, []string{"lb ACTIVE ONLINE", "  192.0.2.1:80 ACTIVE ONLINE"}},
		"no node":              {nil, reports{}, []string{"lb ACTIVE OFFLINE", " tcp ACTIVE OFFLINE", " web ACTIVE OFFLINE", "  192.0.2.1:80 ACTIVE OFFLINE"}},
		"a node refuses":       {nil, reports{"n1": refused, "n2": dead()}, []string{"lb ACTIVE DEGRADED", " udp ACTIVE DEGRADED n1: table full", " tcp ACTIVE ONLINE"}},
		"all nodes refuse":     {nil, reports{"n1": refused}, []string{"lb ACTIVE DEGRADED", " udp ACTIVE ERROR n1: table full"}},
		"disabled": {func(b *v1alpha1.LoadBalancer) {
			b.Spec.Listeners[1].Enabled, b.Spec.Pools[0].Members[0].Enabled = &no, &no
		}, reports{"n1": dead("[2001:db8::2]:80")}, []string{"lb ACTIVE ERROR", " udp ACTIVE OFFLINE", "  192.0.2.1:80 ACTIVE OFFLINE", "  192.0.2.3:53 ACTIVE OFFLINE", " web ACTIVE ERROR"}},
		"weight 0": {func(b *v1alpha1.LoadBalancer) { b.Spec.Pools[0].Members[0].Weight = new(int32) }, reports{"n1": dead()}, []string{
			"  192.0.2.1:80 ACTIVE DRAINING", " web ACTIVE ONLINE",
		}},
		"new": {func(b *v1alpha1.LoadBalancer) { b.Status = v1alpha1.LoadBalancerStatus{} }, nil, []string{
			"lb PENDING_CREATE OFFLINE", " tcp PENDING_CREATE OFFLINE", "  192.0.2.1:80 PENDING_CREATE OFFLINE",
		}},
		"changed":       {func(b *v1alpha1.LoadBalancer) { b.Generation = 3 }, reports{"n1": dead()}, []string{"lb PENDING_UPDATE ONLINE"}},
		"being deleted": {func(b *v1alpha1.LoadBalancer) { b.DeletionTimestamp = new(metav1.NewTime(time.Now())) }, reports{"n1": dead()}, []string{"lb PENDING_DELETE ONLINE"}},
		"no address": {func(b *v1alpha1.LoadBalancer) {
			b.Status.Address, b.Status.Group = "", ""
			b.Status.Conditions[0].Status, b.Status.Conditions[0].Message = metav1.ConditionFalse, "pool main is full"
		}, nil, []string{"lb ERROR OFFLINE pool main is full"}},
		"a member isn't allowed": {func(b *v1alpha1.LoadBalancer) {
			b.Status.Conditions[1].Status, b.Status.Conditions[1].Message = metav1.ConditionFalse, "pool web: 1 of 2"
			b.Status.Listeners = []v1alpha1.PartStatus{{Name: "udp", Message: "not allowed"}}
			b.Status.Pools = []v1alpha1.PoolStatus{{
				PartStatus: v1alpha1.PartStatus{Name: "web", Message: "1 of 2"}, Members: []v1alpha1.PartStatus{{Name: "192.0.2.1:80", Message: "not in networks"}},
			}}
		}, reports{"n1": dead()}, []string{
			"lb ERROR DEGRADED pool web: 1 of 2", " udp ERROR ERROR not allowed", "  192.0.2.3:53 ERROR OFFLINE", " web ERROR DEGRADED 1 of 2", "  192.0.2.1:80 ERROR ERROR not in networks",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := served()
			if test.change != nil {
				test.change(b)
			}
			status := statusOf(b, readNodes(test.reports))
			text := status.text()
			for _, line := range test.want {
				if !strings.Contains("\n"+text, "\n"+line+"\n") {
					t.Errorf("no line %q in\n%s", line, text)
				}
			}
		})
	}
}

// A client that waits gets the next status at once, and 304 if there is none in time.
func TestStatusWait(t *testing.T) {
	a := newAPI(t, 1)
	synctest.Test(t, func(t *testing.T) {
		a := a.in(t)
		a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat","pools":[{"name":"p"}]}`)
		first := a.must(200, "web", "GET", base+"/lb/status?wait=5", "")
		tag := first.header.Get("ETag")
		began := time.Now()
		a.must(304, "web", "GET", base+"/lb/status?wait=5", "", "If-None-Match", tag)
		if took := time.Since(began); took != maxWait*time.Second {
			t.Errorf("without a change it took %s", took)
		}
		began = time.Now()
		go func() {
			time.Sleep(2100 * time.Millisecond)
			a.must(201, "web", "PUT", base+"/lb/pools/p/members/192.0.2.1:1", `{}`)
		}()
		changed := a.must(200, "web", "GET", base+"/lb/status?wait=5", "", "If-None-Match", tag)
		if took := time.Since(began); took != 2500*time.Millisecond || changed.body == first.body {
			t.Errorf("after %s the status is %s", took, changed.body)
		}
		a.must(404, "web", "GET", base+"/other/status?wait=5", "", "If-None-Match", tag)
	})
}

// Waits of one client leave room for waits of others, and all of them for other requests.
func TestStatusWaits(t *testing.T) {
	a := newAPI(t, 1)
	synctest.Test(t, func(t *testing.T) {
		a := a.in(t)
		a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat"}`)
		tag := a.must(200, "web", "GET", base+"/lb/status", "").header.Get("ETag")
		// took returns how long each of some requests of a client takes, while they all wait.
		took := func(client string, requests int) (all []time.Duration) {
			took := make(chan time.Duration, requests)
			for range requests {
				go func() {
					began := time.Now()
					a.must(304, client, "GET", base+"/lb/status?wait=5", "", "If-None-Match", tag)
					took <- time.Since(began)
				}()
			}
			synctest.Wait()
			if others := a.servers[0].(*server).waits; !others.take("reader", 1) {
				t.Error("another client can't wait")
			} else {
				others.take("reader", -1)
			}
			for range requests {
				all = append(all, <-took)
			}
			return all
		}
		for range 2 { // the places are free again
			waited := 0
			for _, took := range took("web", maxWaits/2+2) {
				if took == maxWait*time.Second {
					waited++
				} else if took != 0 {
					t.Errorf("a request took %s", took)
				}
			}
			if waited != maxWaits/2 {
				t.Errorf("%d requests of a client waited, want %d", waited, maxWaits/2)
			}
		}
		w := a.servers[0].(*server).waits
		for i := range maxWaits - 1 {
			if !w.take(fmt.Sprint(i), 1) {
				t.Errorf("%d clients can't wait", i+1)
			}
		}
		if w.take("more", 1) {
			t.Errorf("%d requests can wait", maxWaits)
		}
	})
}

// A request whose client leaves while it waits does not count as failed.
func TestStatusWaitEnds(t *testing.T) {
	a := newAPI(t, 1)
	synctest.Test(t, func(t *testing.T) {
		a := a.in(t)
		a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat"}`)
		tag := a.must(200, "web", "GET", base+"/lb/status", "").header.Get("ETag")
		s := a.servers[0].(*server)
		var log strings.Builder
		s.log = slog.New(slog.NewTextHandler(&log, nil))
		before := testutil.CollectAndCount(s.metrics.requests)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		r := httptest.NewRequestWithContext(ctx, "GET", base+"/lb/status?wait=5", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+a.tokens["web"])
		r.Header.Set("If-None-Match", tag)
		began := time.Now()
		s.ServeHTTP(httptest.NewRecorder(), r)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the request ends after %s", took)
		}
		if after := testutil.CollectAndCount(s.metrics.requests); after != before || log.Len() > 0 {
			t.Errorf("%d kinds of requests, before %d; log:\n%s", after, before, &log)
		}
	})
}
