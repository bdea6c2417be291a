// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	// tracePause is the time between two traces, which leave the agent most of its time, and
	// apiTracePause that during changes that take longer: traces every two milliseconds took a sixth
	// of the agent's time, and doubled the 99th percentile.
	tracePause    = 500 * time.Microsecond
	apiTracePause = 5 * time.Millisecond
	changeTimeout = 30 * time.Second
)

// clientAddress is the source of the traced flows, in the block reserved for
// benchmarks (RFC 2544, appendix C.2.2).
var clientAddress = netip.MustParseAddrPort("198.18.0.1:40000")

// writer takes a backend of the nth service out of it, or puts it back in.
type writer func(ctx context.Context, n int, backend netip.Addr, in bool) error

// flow is a flow to a service, and the backend to which the program sends it.
type flow struct {
	service int
	backend netip.Addr
	syn     []byte
}

// changes are the milliseconds of changes.
type changes struct {
	// Decided and Written are those from before the write of a change to the program's
	// decision, and to the API server's answer. Followed is the difference; 0 where the
	// program was first.
	Decided, Written, Followed bench.Runs
}

// change takes backends, each of another service, out of their service and puts them back, by
// write. Each time it waits until the program sends a new flow to another backend, or back, which
// it traces with these pauses. Addresses are by the services' numbers.
func (t *testbed) change(ctx context.Context, addresses []netip.Addr, count int, pause time.Duration, write writer) (c changes, err error) {
	for len(c.Decided) < count {
		var flows []flow
		services := rand.Perm(len(addresses))
		for _, n := range services[:min(len(services), (count-len(c.Decided)+1)/2)] {
			one, err := t.flow(ctx, n, addresses[n])
			if err != nil {
				return c, fmt.Errorf("service %s: %w", addresses[n], err)
			}
			flows = append(flows, one)
		}
		for _, in := range []bool{false, true} {
			for _, one := range flows {
				if err := c.add(ctx, t, one, in, pause, write); err != nil {
					return c, fmt.Errorf("change %d: service %s: %w", len(c.Decided), addresses[one.service], err)
				}
			}
		}
	}
	return c, nil
}

// flow traces a flow to the nth service.
func (t *testbed) flow(ctx context.Context, n int, address netip.Addr) (one flow, err error) {
	one.service = n
	one.syn, err = (frame.Description{
		Protocol: frame.TCP, Flags: frame.SYN, From: clientAddress, To: netip.AddrPortFrom(address, servicePort),
	}).Build()
	if err != nil {
		return one, err
	}
	one.backend, err = t.decide(ctx, one.syn)
	return one, err
}

// add writes whether a backend is in its service and measures the time to the
// program's decision. It traces also during the write: the program may be faster than the
// answer.
func (c *changes) add(ctx context.Context, t *testbed, one flow, in bool, pause time.Duration, write writer) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	var decided time.Time
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	group.Go(func() (err error) {
		decided, err = t.awaitDecision(ctx, one.syn, one.backend, in, pause)
		return err
	})
	err := write(ctx, one.service, one.backend, in)
	answered := time.Now()
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	c.Decided = append(c.Decided, bench.Milliseconds(decided.Sub(began)))
	c.Written = append(c.Written, bench.Milliseconds(answered.Sub(began)))
	c.Followed = append(c.Followed, bench.Milliseconds(max(0, decided.Sub(answered))))
	return nil
}

// awaitDecision traces until the program sends the packet to a backend (chosen), or to
// another one, and returns the time.
func (t *testbed) awaitDecision(ctx context.Context, syn []byte, backend netip.Addr, chosen bool, pause time.Duration) (time.Time, error) {
	for {
		now, err := t.decide(ctx, syn)
		if err != nil {
			return time.Time{}, err
		}
		if (now == backend) == chosen {
			return time.Now(), nil
		}
		if err := netlab.Sleep(ctx, pause); err != nil {
			return time.Time{}, fmt.Errorf("the program chooses %s: %w", now, err)
		}
	}
}

// decide returns the backend to which the program would send a packet.
func (t *testbed) decide(ctx context.Context, packet []byte) (netip.Addr, error) {
	traces, err := netlab.Decode[[]observe.Trace](t.agent.Traces(ctx, []dataplane.Packet{{Frame: packet}}))
	if err != nil {
		return netip.Addr{}, err
	}
	if len(traces) != 1 || traces[0].Backend == nil {
		return netip.Addr{}, fmt.Errorf("agent: the program has no backend for a packet: %+v", traces)
	}
	return traces[0].Backend.ID.Addr(), nil
}
