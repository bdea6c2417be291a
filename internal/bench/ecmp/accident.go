// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bench"
)

// accident is a way in which a balancer goes.
type accident struct {
	// name is what results begin with, text is for people.
	name, text string
	// happen makes it happen to the balancer of that number, mend is the end of it.
	happen, mend func(ctx context.Context, n int) error
	// stays says that the balancer goes on forwarding, and that its routes may stay.
	stays bool
	// claims are judged.
	claims []claim
}

// claim is a bound on one of the accident's results: on the sum of all rounds and
// families, or on the largest.
type claim struct {
	result, text string
	sum          bool
	target       bench.Target
}

// accidents are those that are measured, in their order.
func (s *site) accidents() []accident {
	lossless := func(text string) []claim {
		return []claim{
			{"lost", "datagrams lost when " + text, true, bench.AtMost(0)},
			{"tcp_broken", "connections broken when " + text, true, bench.AtMost(0)},
		}
	}
	do := func(a action) func(context.Context, int) error {
		return func(ctx context.Context, n int) error { return s.make(ctx, change{a, []int{n}}) }
	}
	signal := func(sent unix.Signal) func(context.Context, int) error {
		return func(ctx context.Context, n int) error { return s.Signal(ctx, s.names[n], agentProcess, sent) }
	}
	// Without BFD the hold time decides.
	within := func(text string) []claim {
		if !s.bfd {
			return nil
		}
		return []claim{{"outage_ms", text, false, bench.AtMost(500)}}
	}
	return []accident{
		{
			name: "node_loss", text: "its node is lost",
			happen: func(_ context.Context, n int) error { return s.Cut(s.names[n]) },
			mend:   func(_ context.Context, n int) error { return s.Mend(s.names[n]) },
			claims: within("most milliseconds in which packets go to a lost node"),
		},
		{
			name: "hung_agent", text: "its agent hangs",
			happen: signal(unix.SIGSTOP), mend: signal(unix.SIGCONT),
			claims: within("most milliseconds in which packets go to a node whose agent hangs"),
		},
		{
			name: "agent_restart", text: "its agent is killed and started again", stays: true,
			happen: s.killAndRestart, mend: func(context.Context, int) error { return nil },
			claims: lossless("an agent is killed and started again"),
		},
		{
			name: "clean_stop", text: "its agent is stopped", happen: do(stop), mend: do(start),
			claims: lossless("an agent is stopped"),
		},
		{
			name: "drain", text: "it is drained", happen: do(drain), mend: do(undrain),
			claims: lossless("a node is drained"),
		},
	}
}

func (s *site) killAndRestart(ctx context.Context, n int) error {
	if err := s.Kill(ctx, s.names[n], agentProcess); err != nil {
		return err
	}
	return s.Restart(ctx, s.names[n], agentProcess)
}
