// SPDX-License-Identifier: Apache-2.0

package check_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/health/check"
	"fairlead.io/fairlead/internal/lb"
)

// A real server that ends and begins again is seen to.
func TestServerEndsAndReturns(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := server.Addr().(*net.TCPAddr).AddrPort()
	verdicts := make(chan health.Verdict, 100)
	monitor := health.New(health.Config{
		Paths: health.DirectPaths{}, Prober: check.New, Probes: check.MaxProbes(), Log: slog.New(slog.DiscardHandler),
		Report: func(all []health.Verdict) {
			for _, v := range all {
				verdicts <- v
			}
		},
	})
	vip := lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP}
	monitor.Set([]lb.Service{{
		Name: "web", VIP: vip, Forward: lb.NAT, MinHealthy: 1,
		Health:   &lb.HealthCheck{Type: lb.HealthTCP, Interval: 20 * time.Millisecond, Timeout: 20 * time.Millisecond, Rise: 2, Fall: 3},
		Backends: []lb.Backend{{Address: address.Addr(), Port: address.Port(), Weight: 1}},
	}})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { monitor.Run(ctx) })
	defer running.Wait()
	defer stop()
	expect := func(healthy bool, reason string) {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for {
			select {
			case v := <-verdicts:
				if v.Known && v.Healthy == healthy {
					if v.VIP != vip || v.Backend != address || v.Reason != reason {
						t.Errorf("%+v, want reason %q", v, reason)
					}
					return
				}
			case <-deadline:
				t.Fatalf("no verdict, want healthy %t; %+v", healthy, monitor.States())
			}
		}
	}
	expect(true, "")
	server.Close()
	expect(false, "connection refused")
	again, err := net.Listen("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	expect(true, "")
}
