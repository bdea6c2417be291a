// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/fake"
)

// tarpit accepts connections on all of this host's addresses, and never answers.
func tarpit(t *testing.T) (port uint16, connections func() int) {
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var held []net.Conn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			held = append(held, conn)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-ended
		for _, conn := range held {
			conn.Close()
		}
	})
	return listener.Addr().(*net.TCPAddr).AddrPort().Port(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(held)
	}
}

// checked is a service of a namespace with HTTP checks at these servers.
func checked(namespace, vip string, every time.Duration, servers ...netip.AddrPort) lb.Service {
	s := fake.Checked(namespace+"/web/80", fake.VIP(vip))
	s.Namespace, s.Forward = namespace, lb.NAT
	s.Health.Type, s.Health.Path, s.Health.Interval, s.Health.Timeout = lb.HealthHTTP, "/", every, every
	for _, server := range servers {
		s.Backends = append(s.Backends, lb.Backend{Address: server.Addr(), Port: server.Port(), Weight: 1})
	}
	return s
}

// Namespaces whose backends accept and never answer don't keep another one's from being probed,
// whether they were there before or not.
func TestTarpit(t *testing.T) {
	const room, namespaces = 64, 3
	port, connections := tarpit(t)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	verdicts := make(chan health.Verdict, 1000)
	m := health.New(health.Config{
		Paths: health.DirectPaths{}, Prober: New, Probes: room, Log: slog.New(slog.DiscardHandler),
		Report: func(take func() []health.Verdict) {
			for _, v := range take() {
				verdicts <- v
			}
		},
	})
	var all []lb.Service
	for i := range namespaces {
		var servers []netip.AddrPort
		for j := range 2 * room {
			servers = append(servers, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i), byte(j + 1)}), port))
		}
		all = append(all, checked(fmt.Sprintf("tarpit%d", i), fmt.Sprintf("198.51.100.%d", i+1), time.Hour, servers...))
	}
	m.Set(all)
	fake.Run(t, fake.Part(m.Run))
	await.True(t, "nearly as many connections as the tarpits get", func() bool { return connections() >= room*3/4 })
	deadline := time.After(time.Minute)

	address := netip.MustParseAddrPort(server.Listener.Addr().String())
	ours := checked("ours", "198.51.100.200", 50*time.Millisecond, address)
	ours.Health.Status = lb.StatusSet{{Low: 404, High: 404}}
	m.Update([]lb.Service{ours}, nil)
	found := func(healthy bool) {
		t.Helper()
		for {
			select {
			case v := <-verdicts:
				if v.VIP == ours.VIP && v.Known && v.Healthy == healthy {
					return
				}
			case <-deadline:
				t.Fatalf("the server isn't found healthy: %t", healthy)
			}
		}
	}
	found(true)
	server.Close()
	found(false)
	if connections() >= room {
		t.Errorf("%d connections to the tarpits", connections())
	}
}
