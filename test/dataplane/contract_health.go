// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import "fairlead.io/fairlead/internal/lb"

// A server that health checks found dead gets nothing; the ring stays as large
// as it is, so that few of the others' flows move, and back it is as it was.
func downBackend(s *suite) {
	svc := s.service(vip(1), 1, 1, 1, 1)
	whole := s.update(svc)
	before := s.flows(svc.VIP)
	svc = s.service(vip(1), 1, 1, 1, 1)
	svc.Backends[2].Down = true
	p := s.update(svc)
	if b := p.Backends[2]; b.InUse || b.Reason != "unhealthy" || b.RingEntries != 0 || p.InUse() != 3 {
		s.Errorf("the backend that is down is %+v, and %d others are in use", b, p.InUse())
	}
	if s.Limits.Rings && p.RingSize != whole.RingSize {
		s.Errorf("a ring of %d entries, want the %d of before", p.RingSize, whole.RingSize)
	}
	dead, moved := svc.Backends[2].ID(), 0
	for i, id := range s.flows(svc.VIP) {
		if id == dead {
			s.Fatalf("a flow went to %s, which is down", id)
		}
		if before[i] != dead && before[i] != id {
			moved++
		}
	}
	if moved > flowCount()/8 {
		s.Errorf("%d of %d flows of living backends moved", moved, flowCount())
	}
	if again := s.update(s.service(vip(1), 1, 1, 1, 1)); !same(whole, again) {
		s.Errorf("back again it is %+v, at first %+v", again, whole)
	}
}

func allDown(s *suite) {
	svc := s.service(vip(1), 1, 1)
	whole := s.update(svc)
	svc = s.service(vip(1), 1, 1)
	svc.Backends[0].Down, svc.Backends[1].Down = true, true
	if p := s.update(svc); p.RingSize != 0 || p.InUse() != 0 {
		s.Errorf("all backends are down: %+v", p)
	}
	s.wantServices(svc.VIP)
	s.wantNoTraffic(svc.VIP)
	svc = s.service(vip(1), 1, 1)
	svc.Backends[0].Down = true
	if p := s.update(svc); p.InUse() != 1 || s.Limits.Rings && p.RingSize != whole.RingSize {
		s.Errorf("one backend is back: %+v", p)
	}
	s.wantOnly(svc.VIP, svc.Backends[1].ID())
}

func drainedBackend(s *suite) {
	svc := s.service(vip(1), 1, 1, 1)
	whole := s.update(svc)
	svc = s.service(vip(1), 1, 0, 1)
	svc.Backends[1].Drained = true
	p := s.update(svc)
	if b := p.Backends[1]; b.InUse || b.Reason != "drained" || s.Limits.Rings && p.RingSize != whole.RingSize {
		s.Errorf("the drained backend is %+v in a ring of %d entries, want it out of one of %d", b, p.RingSize, whole.RingSize)
	}
	for _, id := range s.flows(svc.VIP) {
		if id == svc.Backends[1].ID() {
			s.Fatal("a new flow went to the drained backend")
		}
	}
}

// In slow start a backend gets a part of its share, of a ring that is as large
// as it is without.
func slowStart(s *suite) {
	svc := s.service(vip(1), 1, 1)
	whole := s.update(svc)
	last := 0
	for share := 1; share < 16; share++ {
		svc = s.service(vip(1), 1, 1)
		svc.Backends[0].Share = share
		p := s.update(svc)
		got, want := p.Backends[0].RingEntries, whole.RingSize*share/(16+share)
		if p.RingSize != whole.RingSize || got < last || got < want-4 || got > want+4 {
			s.Errorf("with %d sixteenths it has %d of %d entries, want about %d of %d", share, got, p.RingSize, want, whole.RingSize)
		}
		last = got
	}
	if again := s.update(s.service(vip(1), 1, 1)); !same(whole, again) {
		s.Errorf("after the slow start it is %+v, want %+v", again, whole)
	}
}

// A dead server is out at once also where a planned change waits until flows
// have been learned; one that returns when there was none doesn't wait either.
func deathWaitsForNothing(s *suite) {
	udp := func(down ...bool) *lb.Service {
		svc := s.service(vip(1), 1, 1)
		svc.Protocol, svc.Learn = lb.UDP, lb.MaxLearn
		for i := range down {
			svc.Backends[i].Down = down[i]
		}
		return svc
	}
	s.update(udp())
	for _, step := range []struct {
		down  []bool
		inUse int
	}{{[]bool{true, false}, 1}, {[]bool{true, true}, 0}, {[]bool{true, false}, 1}} {
		if p := s.update(udp(step.down...)); p.InUse() != step.inUse {
			s.Errorf("down %v: %+v, want %d in use", step.down, p.Backends, step.inUse)
		}
	}
}
