//go:build guest

// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
)

// Connections of both protocols and families reach both servers in all modes, and their
// packets are counted.
func TestModes(t *testing.T) {
	w := newLab(t)
	p := w.open()
	for _, forward := range Limits().Forwards {
		for _, vip := range []netip.Addr{vip4, vip6} {
			for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
				t.Run(fmt.Sprintf("%s %s %s", forward, protocol, vip), func(t *testing.T) {
					w := testLab{w.Lab, t, w.clientPort}
					svc := service(vip, protocol, forward)
					w.update(p, svc, 2)
					defer func() {
						if err := p.Delete(t.Context(), svc.VIP); err != nil {
							t.Error(err)
						}
					}()
					w.reach(svc.VIP, "server1", "server2")
					w.eventually(func() error { return checkCounts(t, p, svc, 8) })
				})
			}
		}
	}
}

// checkCounts checks the counters of a service after so many connections to two backends. The
// kernel sums them up every two seconds. A backend that it had for an earlier service with this VIP
// also counts packets that came late for that service's connections.
func checkCounts(t *testing.T, p *Plane, svc *lb.Service, connections uint64) error {
	stats, err := p.Stats(t.Context())
	if err != nil {
		return err
	}
	got := stats.Services[svc.VIP]
	if got.NewFlows != connections || got.Packets < connections || got.Bytes < 20*got.Packets {
		return fmt.Errorf("counted %+v, want %d connections", got.Traffic, connections)
	}
	var sum dataplane.Traffic
	for _, b := range svc.Backends {
		share, _ := got.Backend(b.ID())
		if share.NewFlows != connections/2 {
			return fmt.Errorf("%s: counted %+v, want half of %d connections", b.ID(), share, connections)
		}
		sum = sum.Add(share)
	}
	if sum.NewFlows != got.NewFlows || sum.Packets < got.Packets || sum.Bytes < got.Bytes {
		return fmt.Errorf("counted %+v, and %+v of the backends", got.Traffic, sum)
	}
	if n := stats.Exits["forward_"+svc.Forward.String()]; n < got.Packets {
		return fmt.Errorf("%d packets left by forward_%s, %d were counted", n, svc.Forward, got.Packets)
	}
	return nil
}

// A service changes its mode: connections keep theirs while they send, and new ones reach both servers.
func TestModeChanges(t *testing.T) {
	w := newLab(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		p := w.open()
		svc := service(vip, lb.TCP, lb.NAT)
		var sessions []*session
		for _, forward := range []lb.Forward{lb.NAT, lb.L2DSR, lb.IPIP, lb.L2DSR, lb.GUE, lb.L2DSR, lb.NAT, lb.IPIP} {
			svc = changed(svc, func(s *lb.Service) { s.Forward = forward })
			w.update(p, svc, 2)
			for _, s := range sessions {
				w.stays(s)
			}
			w.reach(svc.VIP, "server1", "server2")
			sessions = append(sessions, w.must(svc.VIP), w.must(svc.VIP))
			w.eventually(func() error {
				n := 0
				counts, err := p.CountFlows(t.Context())
				for _, of := range counts[svc.VIP] {
					n += of
				}
				if n != len(sessions) {
					err = errors.Join(err, fmt.Errorf("%d connections of %d", n, len(sessions)))
				}
				return err
			})
		}
		for _, s := range sessions {
			_ = s.Close()
		}
		// The servers of the modes before leave with the update after their last connections.
		w.eventually(func() error {
			w.update(p, svc, 2)
			servers, err := p.kernel.ipvs.servers(idOf(svc.VIP, 0))
			if len(servers) != 2 {
				err = errors.Join(err, fmt.Errorf("servers %+v", servers))
			}
			return err
		})
	}
}

// NAT translates ports.
func TestPorts(t *testing.T) {
	w := newLab(t)
	p := w.open()
	svc := service(vip4, lb.TCP, lb.NAT)
	for i := range svc.Backends {
		svc.Backends[i].Port = ports[1]
	}
	w.update(p, svc, 2)
	w.reach(svc.VIP, "server1", "server2")
}

// A server that fails loses its connections, and returns. A drained one keeps its own.
func TestHealth(t *testing.T) {
	for _, forward := range []lb.Forward{lb.NAT, lb.IPIP} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(fmt.Sprintf("%s %s", forward, protocol), func(t *testing.T) {
				w := newLab(t)
				p := w.open()
				svc := service(vip4, protocol, forward)
				w.update(p, svc, 2)
				sessions := map[string]*session{}
				for range 2 {
					s := w.must(svc.VIP)
					sessions[s.server] = s
				}
				if len(sessions) != 2 {
					t.Fatalf("two connections in turn have the servers %v", sessions)
				}
				w.update(p, changed(svc, func(s *lb.Service) { s.Backends[0].Weight, s.Backends[0].Drained = 0, true }), 1)
				w.stays(sessions["server1"])
				w.stays(sessions["server2"])
				w.reach(svc.VIP, "server2")
				w.update(p, changed(svc, func(s *lb.Service) { s.Backends[0].Down = true }), 1)
				if name, err := sessions["server1"].ask(refusal); name == "server1" {
					t.Errorf("the connection of a server that is down is answered (%v)", err)
				}
				w.stays(sessions["server2"])
				w.reach(svc.VIP, "server2")
				w.update(p, svc, 2)
				w.reach(svc.VIP, "server1", "server2")
				w.stays(sessions["server2"])
			})
		}
	}
}

// A backend gets as many connections as its limit and no more; with all at their limits, and
// without a usable backend, clients are refused or, with drop, not answered.
func TestThreshold(t *testing.T) {
	w := newLab(t)
	p := w.open()
	for _, vip := range []netip.Addr{vip4, vip6} {
		svc := service(vip, lb.TCP, lb.NAT)
		for i := range svc.Backends {
			svc.Backends[i].MaxConnections = 2
		}
		w.update(p, svc, 2)
		held := map[string]int{}
		for range 4 {
			held[w.must(svc.VIP).server]++
		}
		if held["server1"] != 2 || held["server2"] != 2 {
			t.Errorf("%s: connections are held by %v, want two each", vip, held)
		}
		if s, err := w.connect(svc.VIP); err == nil {
			t.Errorf("%s: a fifth connection went to %s", vip, s.server)
		}
		flows, err := p.CountFlows(t.Context())
		if err != nil || flows[svc.VIP][svc.Backends[0].ID()] != 2 || flows[svc.VIP][svc.Backends[1].ID()] != 2 {
			t.Errorf("%s: flows %v: %v", vip, flows, err)
		}
		none := changed(svc, func(s *lb.Service) { s.Backends = nil })
		w.update(p, none, 0)
		if _, err := w.dial(svc.VIP, await.Patience); !isRefused(err) {
			t.Errorf("%s: without backends: %v, want that the connection is refused", vip, err)
		}
		w.update(p, changed(none, func(s *lb.Service) { s.Unavailable = lb.Drop }), 0)
		if _, err := w.dial(svc.VIP, refusal); !isTimeout(err) {
			t.Errorf("%s: without backends: %v, want no answer", vip, err)
		}
	}
}
