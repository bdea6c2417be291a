// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// capabilityTests returns the tests of optional capabilities.
func capabilityTests() []contractTest {
	memberless := func(f lb.Forward) bool { return !slices.Contains([]lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE}, f) }
	with := func(set func(*suite, *lb.Service)) func(*suite) {
		return func(s *suite) { s.wantBalanced(set) }
	}
	return []contractTest{
		{"backends of the other family", "other family *", nil, otherFamily},
		{"vlans are apart", "segment vlan", nil, segmentsApart(lb.SegmentVLAN)},
		{"vxlan segments are apart", "segment vxlan", lb.Forward.Translates, segmentsApart(lb.SegmentVXLAN)},
		{"geneve segments are apart", "segment geneve", lb.Forward.Translates, segmentsApart(lb.SegmentGeneve)},
		{"one backend for a client", "affinity client", nil, affinityClient},
		{"clients are remembered", "affinityTimeout", nil, clientsRemembered},
		{"other packets to a quic service", "affinity quic", nil, affinityQUIC},
		{"rr", "scheduler rr", nil, scheduled(lb.SchedulerRR, 1, 1, 1, 1)},
		{"wrr", "scheduler wrr", nil, scheduled(lb.SchedulerWRR, 1, 2, 5)},
		{"lc", "scheduler lc", nil, scheduled(lb.SchedulerLC, 1, 1, 1, 1)},
		{"wlc", "scheduler wlc", nil, scheduled(lb.SchedulerWLC, 1, 2, 5)},
		{"sh", "scheduler sh", nil, sourceHash},
		{"connection limits", "maxConnections", nil, connectionLimits},
		{"firewall marks", "firewallMark", nil, firewallMarks},
		{"sources", "sources", nil, sources},
		{"sources of services are apart", "sources", nil, sourcesApart},
		{"new flows of a service", "limits", nil, newFlows},
		{"new flows of a client", "limits", nil, newFlowsPerSource},
		{"every flow is tracked", "tracking", nil, with(func(_ *suite, svc *lb.Service) { svc.Tracking = lb.TrackingFull })},
		{"own idle timeout", "idleTimeout", nil, with(func(_ *suite, svc *lb.Service) { svc.IdleTimeout = time.Hour })},
		{"reject", "unavailable", nil, with(func(_ *suite, svc *lb.Service) { svc.Unavailable = lb.Reject })},
		{"balancers are members", "membership", memberless, with(func(_ *suite, svc *lb.Service) {
			svc.Membership.Self = netip.MustParseAddr("10.0.2.11")
		})},
		{"given next hops", "mac", func(f lb.Forward) bool { return f.Overlay() != lb.SegmentUnset }, with(func(s *suite, svc *lb.Service) {
			for i := range svc.Backends {
				svc.Backends[i].MAC = s.MAC(svc.Backends[i].Address)
			}
		})},
	}
}

// wantBalanced checks that services with a property balance as others do.
func (s *suite) wantBalanced(set func(*suite, *lb.Service)) {
	s.Helper()
	for _, vip := range []lb.VIP{vip(1), vip6(1)} {
		svc := s.service(vip, 1, 1, 1)
		svc.Name = "web"
		set(s, svc)
		if found := append(svc.Check(), s.Limits.Check(svc)...); len(found) > 0 {
			s.Fatalf("the service of the test is wrong: %v", found)
		}
		first := s.update(svc)
		if again := s.update(svc); first.InUse() != 3 || !same(first, again) {
			s.Errorf("the second update made %+v, the first %+v", again, first)
		}
		for i := range 16 {
			id, forwarded := s.probe(vip, client(vip, i))
			if again, _ := s.probe(vip, client(vip, i)); !forwarded || again != id {
				s.Errorf("%s went to %s (%t), and then to %s", client(vip, i), id, forwarded, again)
			}
		}
		without := *svc
		without.Backends = slices.Clone(svc.Backends[:1])
		s.update(&without)
		s.wantServices(vip)
		for i := range 16 {
			if id, _ := s.probe(vip, client(vip, 16+i)); id != without.Backends[0].ID() {
				s.Errorf("%s went to %s, want the only backend", client(vip, 16+i), id)
			}
		}
		s.must(s.dp.Delete(s.Context(), vip))
	}
}

func otherFamily(s *suite) {
	for i, vip := range []lb.VIP{vip(1), vip6(1)} {
		svc := s.service(vip)
		for _, b := range s.backends[8*(1-i):][:3] {
			b.Port, b.Weight = vip.Port, 1
			svc.Backends = append(svc.Backends, b)
		}
		if p := s.update(svc); p.InUse() != 3 {
			s.Errorf("%s: %d backends in use, want 3: %+v", vip, p.InUse(), p)
		}
		for _, id := range s.flows(vip) {
			if id.Addr().Is4() == vip.Address.Is4() {
				s.Fatalf("%s: a flow went to %s", vip, id)
			}
		}
	}
}

func segmentsApart(kind lb.SegmentType) func(*suite) {
	return func(s *suite) {
		none, one, two := s.service(vip(1), 1), s.service(vip(1), 0, 1), s.service(vip(1), 0, 0, 1)
		one.Segment = lb.Segment{Type: kind, ID: 100}
		two.Segment = lb.Segment{Type: kind, ID: 200}
		s.wantApart(none, one, two)
	}
}

// clientsRemembered checks that new flows of known clients go where earlier ones went when
// backends join. There are few clients, as a data plane may limit the rate of new ones.
func clientsRemembered(s *suite) {
	byClient := func(weights ...int) *lb.Service {
		svc := s.service(vip(1), weights...)
		svc.Affinity, svc.AffinityTimeout = lb.AffinityClient, time.Hour
		return svc
	}
	s.update(byClient(1, 1, 1))
	var before [8]lb.BackendID
	for i := range before {
		before[i], _ = s.probe(vip(1), client(vip(1), i))
	}
	s.update(byClient(1, 1, 1, 1, 1, 1))
	for i, was := range before {
		again := netip.AddrPortFrom(client(vip(1), i).Addr(), 40000)
		if id, forwarded := s.probe(vip(1), again); !forwarded || id != was {
			s.Fatalf("%s went to %s, and then to %s (%t)", again.Addr(), was, id, forwarded)
		}
	}
}

// affinityQUIC checks that other packets than QUIC's are balanced by flow.
func affinityQUIC(s *suite) {
	svc := s.service(vip(1), 1, 1, 1)
	svc.Protocol, svc.Affinity, svc.QUIC = lb.UDP, lb.AffinityQUIC, &lb.QUIC{ServerIDLength: 1, NonceLength: 4}
	for i := range svc.Backends {
		svc.Backends[i].ServerID = lb.ServerID([]byte{byte(i)})
	}
	if p := s.update(svc); p.InUse() != 3 {
		s.Errorf("%d backends in use, want 3: %+v", p.InUse(), p)
	}
	s.wantFlows(svc.VIP, s.flows(svc.VIP))
}

// scheduled checks that new flows are spread over the backends as exactly as by turns.
func scheduled(scheduler lb.Scheduler, weights ...int) func(*suite) {
	return func(s *suite) {
		for _, vip := range []lb.VIP{vip(1), vip6(1)} {
			svc := s.service(vip, weights...)
			svc.Scheduler = scheduler
			s.update(svc)
			got, total := map[lb.BackendID]int{}, 0
			for _, id := range s.flows(vip) {
				got[id]++
			}
			for _, weight := range weights {
				total += weight
			}
			for i, b := range svc.Backends {
				want := float64(flowCount()*weights[i]) / float64(total)
				if n := got[b.ID()]; math.Abs(float64(n)-want) > float64(total) {
					s.Errorf("%s: the backend of weight %d got %d of %d flows, want about %.0f", vip, weights[i], n, flowCount(), want)
				}
			}
		}
	}
}

func sourceHash(s *suite) {
	for _, vip := range []lb.VIP{vip(1), vip6(1)} {
		svc := s.service(vip, 1, 1, 1, 1)
		svc.Scheduler = lb.SchedulerSH
		s.update(svc)
		went := map[lb.BackendID]bool{}
		for i := range 16 {
			went[s.wantTogether(vip, client(vip, i).Addr())] = true
		}
		if len(went) < 2 {
			s.Errorf("%s: 16 clients went to one backend", vip)
		}
	}
}

func connectionLimits(s *suite) {
	const limit = 10
	svc := s.service(vip(1), 1, 1)
	svc.Backends[0].MaxConnections = limit
	s.update(svc)
	got := map[lb.BackendID]int{}
	for _, id := range s.flows(vip(1)) {
		got[id]++
	}
	if n := got[svc.Backends[0].ID()]; n == 0 || n > limit {
		s.Errorf("the backend got %d connections, want 1 to %d", n, limit)
	}
}

// firewallMarks checks that a client of two services with one mark has one backend.
func firewallMarks(s *suite) {
	var vips []lb.VIP
	for port := uint16(80); port < 82; port++ {
		vip := vip(1)
		vip.Port = port
		svc := s.service(vip, 1, 1, 1, 1)
		svc.FirewallMark, svc.Affinity = 7, lb.AffinityClient
		s.update(svc)
		vips = append(vips, vip)
	}
	s.wantServices(vips...)
	for i := range flowCount() {
		one, _ := s.probe(vips[0], client(vips[0], i))
		other, forwarded := s.probe(vips[1], client(vips[1], i))
		if !forwarded || one.Addr() != other.Addr() {
			s.Fatalf("%s: one service sent it to %s, the other to %s (%t)", client(vips[0], i), one, other, forwarded)
		}
	}
}

// newFlows checks that a limit lets as many flows pass at once, and not all.
func newFlows(s *suite) {
	const limit = 16
	svc := s.service(vip(1), 1, 1)
	svc.Limits.NewFlows = limit
	s.update(svc)
	passed := 0
	for i := range flowCount() {
		if _, forwarded := s.probe(svc.VIP, client(svc.VIP, i)); forwarded {
			passed++
		}
	}
	if passed < limit || passed == flowCount() {
		s.Errorf("%d of %d flows passed a limit of %d", passed, flowCount(), limit)
	}
}

func newFlowsPerSource(s *suite) {
	const limit = 16
	svc := s.service(vip(1), 1, 1)
	svc.Limits.NewFlowsPerSource = limit
	s.update(svc)
	one, passed := client(svc.VIP, 1), 0
	for port := range uint16(flowCount()) {
		if _, forwarded := s.probe(svc.VIP, netip.AddrPortFrom(one.Addr(), 30000+port)); forwarded {
			passed++
		}
	}
	if passed < limit || passed == flowCount() {
		s.Errorf("%d of %d flows of one client passed a limit of %d", passed, flowCount(), limit)
	}
	if _, forwarded := s.probe(svc.VIP, client(svc.VIP, 2)); !forwarded {
		s.Error("another client was not forwarded")
	}
}
