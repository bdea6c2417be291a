// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	discovery "k8s.io/api/discovery/v1"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/observe"
)

const (
	// lookPause is between two questions to the program, so that they leave the
	// agent most of its time.
	lookPause = 500 * time.Microsecond
	// changeTimeout is for how long a change is waited for.
	changeTimeout = 30 * time.Second
)

// customer begins the flow whose backend is asked for, from the block that is set aside
// for benchmarks (RFC 2544, appendix C.2.2).
var customer = netip.MustParseAddrPort("198.18.0.1:40000")

// flow is one to a Service, with the endpoint to which the program sends it.
type flow struct {
	service, endpoint int
	syn               []byte
}

// change has endpoints, each of another Service, cease to be ready, and then be ready
// again, so many times in all. Each time it waits until the program sends a new flow
// elsewhere, or there again.
func (f *findings) change(ctx context.Context, w *world, s *site, addresses []netip.Addr, changes int) error {
	for len(f.decided) < changes {
		var flows []flow
		services := rand.Perm(len(addresses))
		for _, n := range services[:min(len(services), (changes-len(f.decided)+1)/2)] {
			one, err := w.flow(ctx, s, n, addresses[n])
			if err != nil {
				return fmt.Errorf("service %s: %w", addresses[n], err)
			}
			flows = append(flows, one)
		}
		for _, ready := range []bool{false, true} {
			for _, one := range flows {
				if err := f.changeOne(ctx, w, s, one, ready); err != nil {
					return fmt.Errorf("change %d: service %s: %w", len(f.decided), addresses[one.service], err)
				}
			}
		}
	}
	return nil
}

// flow asks the program for the endpoint of a flow to the nth Service.
func (w *world) flow(ctx context.Context, s *site, n int, address netip.Addr) (one flow, err error) {
	one.service = n
	one.syn, err = (frame.Description{
		Protocol: frame.TCP, Flags: frame.SYN, From: customer, To: netip.AddrPortFrom(address, servicePort),
	}).Build()
	if err != nil {
		return one, err
	}
	chosen, err := s.decide(ctx, one.syn)
	if err != nil {
		return one, err
	}
	one.endpoint = slices.IndexFunc(w.slices[n].Endpoints, func(e discovery.Endpoint) bool { return e.Addresses[0] == chosen.String() })
	if one.endpoint < 0 {
		return one, fmt.Errorf("the program chooses %s, which is no endpoint", chosen)
	}
	return one, nil
}

// changeOne writes whether an endpoint is ready and measures until the program
// decides by it. It is asked also while that is written: it may be faster than the
// API server's answer.
func (f *findings) changeOne(ctx context.Context, w *world, s *site, one flow, ready bool) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	var decided time.Time
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	group.Go(func() (err error) {
		decided, err = s.awaitDecision(ctx, one.syn, podAddress(one.endpoint, one.service), ready)
		return err
	})
	err := w.setReady(ctx, one.service, one.endpoint, ready)
	answered := time.Now()
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	f.decided = append(f.decided, milliseconds(decided.Sub(began)))
	f.written = append(f.written, milliseconds(answered.Sub(began)))
	f.followed = append(f.followed, milliseconds(max(0, decided.Sub(answered))))
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// awaitDecision asks again and again until the program sends the packet to a backend,
// or to another one, and returns when that was.
func (s *site) awaitDecision(ctx context.Context, syn []byte, backend netip.Addr, chosen bool) (time.Time, error) {
	for {
		now, err := s.decide(ctx, syn)
		if err != nil {
			return time.Time{}, err
		}
		if (now == backend) == chosen {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("the program chooses %s: %w", now, ctx.Err())
		case <-time.After(lookPause):
		}
	}
}

// decide is the backend to which the program would send a packet.
func (s *site) decide(ctx context.Context, packet []byte) (netip.Addr, error) {
	text, err := s.agent.Traces(ctx, []dataplane.Packet{{Frame: packet}})
	if err != nil {
		return netip.Addr{}, err
	}
	var traces []observe.Trace
	if err := json.Unmarshal(text, &traces); err != nil {
		return netip.Addr{}, fmt.Errorf("agent: trace: %w", err)
	}
	if len(traces) != 1 || traces[0].Backend == nil {
		return netip.Addr{}, fmt.Errorf("agent: the program has no backend for a packet: %+v", traces)
	}
	return traces[0].Backend.ID.Addr(), nil
}
