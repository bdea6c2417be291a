// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"math"
	"slices"
)

func backendsComeAndGo(s *suite) {
	for _, weights := range [][]int{{1}, {1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1}, {1}} {
		svc := s.service(vip(1), weights...)
		if p := s.update(svc); p.InUse() != len(weights) {
			s.Errorf("%d of %d backends in use: %+v", p.InUse(), len(weights), p)
		}
	}
	s.update(s.service(vip(1)))
	s.wantServices(vip(1))
}

// Shares follow the weights within the bounds of maglev.Build for a ring that has
// many entries for each backend: 1 % and two entries.
func weights(s *suite) {
	for _, weights := range [][]int{{1, 1, 1, 1}, {1, 2, 3, 4}, {4, 3, 2, 1}, {1, 256}, {100, 100, 50}} {
		p := s.update(s.service(vip(1), weights...))
		total := 0
		for _, weight := range weights {
			total += weight
		}
		for i, weight := range weights {
			want := float64(p.RingSize) * float64(weight) / float64(total)
			if got := p.Backends[i].RingEntries; math.Abs(float64(got)-want) > 2+want/100 {
				s.Errorf("weights %v: backend %d has %d of %d entries, want %.1f", weights, i, got, p.RingSize, want)
			}
		}
	}
}

func weightZero(s *suite) {
	p := s.update(s.service(vip(1), 1, 0, 1))
	if b := p.Backends[1]; b.InUse || b.Reason == "" {
		s.Errorf("the backend of weight 0 is in use or without a reason: %+v", b)
	}
	if p.InUse() != 2 {
		s.Errorf("%d backends in use, want 2", p.InUse())
	}
	if p = s.update(s.service(vip(1), 1, 1, 1)); p.InUse() != 3 {
		s.Errorf("%d backends in use, want 3", p.InUse())
	}
}

func noUsableBackend(s *suite) {
	for _, weights := range [][]int{nil, {0}, {0, 0, 0}} {
		svc := s.service(vip(1), weights...)
		if p := s.update(svc); p.RingSize != 0 {
			s.Errorf("weights %v: a ring of %d entries, want none", weights, p.RingSize)
		}
		s.wantServices(svc.VIP)
		s.wantNoTraffic(svc.VIP)
	}
	p := s.update(s.service(vip(1), 1, 1))
	if p.InUse() != 2 {
		s.Errorf("%d backends in use after there were none, want 2", p.InUse())
	}
	s.flows(vip(1))
	s.update(s.service(vip(1), 0, 0))
	s.wantNoTraffic(vip(1))
}

func unusableBackend(s *suite) {
	backend := s.backends[len(s.backends)-1]
	backend.Port, backend.Weight = vip(1).Port, 1
	svc := s.service(vip(1), 1, 1)
	svc.Backends = append(svc.Backends, backend)
	p := s.update(svc)
	if b := p.Backends[2]; b.InUse || b.Reason == "" || p.InUse() != 2 {
		s.Errorf("the unusable backend is in use or without a reason: %+v", p)
	}
	svc.Backends = svc.Backends[2:]
	if p := s.update(svc); p.RingSize != 0 {
		s.Errorf("a ring of %d entries with one unusable backend, want none", p.RingSize)
	}
	s.wantNoTraffic(svc.VIP)
}

// The order of a service's backends has no meaning: nodes that learn of them in
// different orders must agree on every flow.
func orderOfBackends(s *suite) {
	svc := s.service(vip(1), 1, 2, 3, 1, 1)
	first := s.update(svc)
	flows := s.flows(svc.VIP)
	turned := *svc
	turned.Backends = slices.Clone(svc.Backends)
	slices.Reverse(turned.Backends)
	if second := s.update(&turned); !same(first, second) {
		s.Errorf("in the other order the ring is %+v, at first %+v", second, first)
	}
	s.wantFlows(svc.VIP, flows)
}
