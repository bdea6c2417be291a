// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

func updateIdempotent(s *suite) {
	svc := s.service(vip(1), 1, 1, 1)
	first := s.update(svc)
	flows := s.flows(svc.VIP)
	if again := s.update(svc); !same(first, again) {
		s.Errorf("the second update made %+v, the first %+v", again, first)
	}
	s.wantServices(svc.VIP)
	s.wantFlows(svc.VIP, flows)
}

func updateChangesOne(s *suite) {
	one, other := s.service(vip(1), 1, 1, 1), s.service(vip(2), 1, 1, 1)
	before := s.update(one)
	s.update(other)
	flows := s.flows(one.VIP)
	s.update(s.service(other.VIP, 0, 5, 1, 2))
	s.wantFlows(one.VIP, flows)
	s.update(s.service(other.VIP))
	s.wantFlows(one.VIP, flows)
	s.must(s.dp.Delete(s.Context(), other.VIP))
	s.wantFlows(one.VIP, flows)
	s.wantServices(one.VIP)
	if again := s.update(one); !same(before, again) {
		s.Errorf("updates of another service made %+v of %+v", again, before)
	}
}

func deleteIdempotent(s *suite) {
	s.must(s.dp.Delete(s.Context(), vip(1)))
	s.update(s.service(vip(1), 1))
	s.update(s.service(vip(2), 1))
	s.must(s.dp.Delete(s.Context(), vip(1)))
	s.must(s.dp.Delete(s.Context(), vip(1)))
	s.wantServices(vip(2))
	s.wantNoTraffic(vip(1))
}

func recreate(s *suite) {
	svc := s.service(vip(1), 1, 1, 1)
	first := s.update(svc)
	flows := s.flows(svc.VIP)
	s.must(s.dp.Delete(s.Context(), svc.VIP))
	s.wantServices()
	if again := s.update(svc); !same(first, again) {
		s.Errorf("created again it is %+v, at first %+v", again, first)
	}
	s.wantServices(svc.VIP)
	s.wantFlows(svc.VIP, flows)
}

func pruneKeeps(s *suite) {
	for n := byte(1); n <= 4; n++ {
		s.update(s.service(vip(n), 1, 1))
	}
	flows := s.flows(vip(2))
	// Keeping an unknown VIP makes nothing.
	s.must(s.dp.Prune(s.Context(), []lb.VIP{vip(4), vip(2), vip(9)}))
	s.wantServices(vip(2), vip(4))
	s.wantFlows(vip(2), flows)
	s.wantNoTraffic(vip(1))
	s.must(s.dp.Prune(s.Context(), []lb.VIP{vip(4), vip(2)}))
	s.wantServices(vip(2), vip(4))
}

func pruneAll(s *suite) {
	s.must(s.dp.Prune(s.Context(), nil))
	s.update(s.service(vip(1), 1))
	s.update(s.service(vip6(1), 1))
	s.must(s.dp.Prune(s.Context(), nil))
	s.wantServices()
	s.wantNoTraffic(vip(1))
	s.update(s.service(vip(1), 1))
	s.wantServices(vip(1))
}

func bothFamilies(s *suite) {
	four, six := s.service(vip(1), 1, 1, 1), s.service(vip6(1), 1, 1, 1)
	for _, svc := range []*lb.Service{four, six} {
		if p := s.update(svc); p.InUse() != 3 {
			s.Errorf("%s: %d backends in use, want 3: %+v", svc.VIP, p.InUse(), p)
		}
		s.flows(svc.VIP)
	}
	s.wantServices(four.VIP, six.VIP)
	s.must(s.dp.Delete(s.Context(), four.VIP))
	s.wantServices(six.VIP)
}

func protocolsAndPortsApart(s *suite) {
	tcp, udp, port := s.service(vip(1), 1), s.service(vip(1), 0, 1), s.service(vip(1), 0, 0, 1)
	udp.Protocol = lb.UDP
	port.Port = 81
	for i := range port.Backends {
		port.Backends[i].Port = 81
	}
	s.wantApart(tcp, udp, port)
}

// wantApart checks that services stand side by side; the ith uses its ith
// backend.
func (s *suite) wantApart(services ...*lb.Service) {
	s.Helper()
	var all []lb.VIP
	for _, svc := range services {
		s.update(svc)
		all = append(all, svc.VIP)
	}
	s.wantServices(all...)
	for i, svc := range services {
		s.wantOnly(svc.VIP, svc.Backends[i].ID())
	}
	s.must(s.dp.Delete(s.Context(), all[0]))
	s.wantServices(all[1:]...)
	s.wantNoTraffic(all[0])
	for i, svc := range services[1:] {
		s.wantOnly(svc.VIP, svc.Backends[i+1].ID())
	}
}

// Several goroutines drive services of their own; run it with -race.
func concurrentUpdates(s *suite) {
	workers, rounds := byte(8), 5
	if testing.Short() {
		workers, rounds = 4, 2
	}
	var group sync.WaitGroup
	var want []lb.VIP
	for n := byte(1); n <= workers; n++ {
		keep, gone := s.service(vip(n), 1, 1, 1), s.service(vip6(n), 1, 1)
		want = append(want, keep.VIP)
		group.Go(func() {
			for range rounds {
				for _, svc := range []*lb.Service{keep, gone} {
					if p, err := s.dp.Update(s.Context(), svc); err != nil || p.InUse() != len(svc.Backends) {
						s.Errorf("update of %s: %d backends in use, error %v", svc.VIP, p.InUse(), err)
					}
				}
				if err := s.dp.Delete(s.Context(), gone.VIP); err != nil {
					s.Errorf("delete: %v", err)
				}
				if _, err := s.dp.Stats(s.Context()); err != nil {
					s.Errorf("stats: %v", err)
				}
			}
		})
	}
	group.Wait()
	s.wantServices(want...)
}

func cancelled(s *suite) {
	svc := s.service(vip(1), 1, 1)
	s.update(svc)
	flows := s.flows(svc.VIP)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, updated := s.dp.Update(ctx, s.service(svc.VIP, 0, 0, 1))
	_, created := s.dp.Update(ctx, s.service(vip(2), 1))
	_, read := s.dp.Stats(ctx)
	for op, err := range map[string]error{
		"update": updated,
		"create": created,
		"delete": s.dp.Delete(ctx, svc.VIP),
		"prune":  s.dp.Prune(ctx, nil),
		"stats":  read,
	} {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s with a cancelled context: error %v, want %v", op, err, context.Canceled)
		}
	}
	s.wantServices(svc.VIP)
	s.wantFlows(svc.VIP, flows)
}

func tooManyBackends(s *suite) {
	svc := s.service(vip(1), 1, 1)
	s.update(svc)
	flows := s.flows(svc.VIP)
	for _, vip := range []lb.VIP{svc.VIP, vip(2)} {
		many := s.service(vip)
		for i := range s.Limits.MaxBackends + 1 {
			address := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			many.Backends = append(many.Backends, lb.Backend{Address: address, Port: vip.Port, Weight: 1})
		}
		if _, err := s.dp.Update(s.Context(), many); err == nil {
			s.Errorf("%d backends are taken, want an error: the limit is %d", len(many.Backends), s.Limits.MaxBackends)
		}
	}
	s.wantServices(svc.VIP)
	s.wantFlows(svc.VIP, flows)
}
