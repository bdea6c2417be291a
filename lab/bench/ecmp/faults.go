// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	// connections and UDP flows are held while balancers fail, half of them IPv6.
	connections = 200
	flows       = 256
	// tcpTimeout is longer than TCP needs to repair losses.
	tcpTimeout = 10 * time.Second
	// answerTimeout is the time after which a datagram counts as lost.
	answerTimeout = time.Second
	// faultLimit is the longest delay of the table that isn't wrong: it covers hold
	// times.
	faultLimit = 5 * time.Second
)

// fault is a way in which a balancer fails or leaves.
type fault struct {
	// name begins the names of results, text is for progress.
	name, text string
	// inject and repair act on the balancer of a number.
	inject, repair func(ctx context.Context, n int) error
	// stays is set if the balancer continues to forward, and its routes may stay.
	stays  bool
	claims []claim
}

// claim bounds one of the fault's results: the sum of all rounds and families, or
// the largest.
type claim struct {
	result, text string
	sum          bool
	target       bench.Target
}

// faults are in the order of the report.
func (t *testbed) faults() []fault {
	lossless := func(text string) []claim {
		return []claim{
			{"lost", "datagrams lost when " + text, true, bench.AtMost(0)},
			{"tcp_broken", "connections broken when " + text, true, bench.AtMost(0)},
		}
	}
	do := func(a action) func(context.Context, int) error {
		return func(ctx context.Context, n int) error { return t.apply(ctx, change{a, []int{n}}) }
	}
	signal := func(s unix.Signal) func(context.Context, int) error {
		return func(ctx context.Context, n int) error { return t.Signal(ctx, t.names[n], agentProcess, s) }
	}
	// Without BFD the hold time decides.
	within := func(text string) []claim {
		if !t.setting.bfd() {
			return nil
		}
		return []claim{{"outage_ms", text, false, bench.AtMost(500)}}
	}
	return []fault{
		{
			name: "node_loss", text: "its node is lost",
			inject: func(_ context.Context, n int) error { return t.Cut(t.names[n]) },
			repair: func(_ context.Context, n int) error { return t.Mend(t.names[n]) },
			claims: within("most milliseconds in which packets go to a lost node"),
		},
		{
			name: "hung_agent", text: "its agent hangs",
			inject: signal(unix.SIGSTOP), repair: signal(unix.SIGCONT),
			claims: within("most milliseconds in which packets go to a node whose agent hangs"),
		},
		{
			name: "agent_restart", text: "its agent is killed and started again", stays: true,
			inject: func(ctx context.Context, n int) error {
				if err := t.Kill(ctx, t.names[n], agentProcess); err != nil {
					return err
				}
				return t.Restart(ctx, t.names[n], agentProcess)
			},
			repair: func(context.Context, int) error { return nil },
			claims: lossless("an agent is killed and started again"),
		},
		{
			name: "clean_stop", text: "its agent is stopped", inject: do(stop), repair: do(start),
			claims: lossless("an agent is stopped"),
		},
		{
			name: "drain", text: "it is drained", inject: do(drain), repair: do(undrain),
			claims: lossless("a node is drained"),
		},
	}
}

// measureFaults injects all faults under load.
func (t *testbed) measureFaults(ctx context.Context) error {
	rounds, aftermath := 3, time.Second
	if t.config.Quick {
		rounds, aftermath = 1, time.Second/2
	}
	random, wrong, happened := t.config.random(2), 0.0, 0
	for _, f := range t.faults() {
		found := impact{}
		for range rounds {
			if err := t.measureFault(ctx, f, random.IntN(len(t.names)), aftermath, found); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			happened++
		}
		found.report(t.report, t.setting, f)
		wrong += found.all("wrong_tables").Sum()
	}
	t.report.Judge(fmt.Sprintf("%s: wrong tables when balancers were lost, hung, killed, stopped or drained, %d times in all", t.setting, happened),
		bench.Documented, bench.AtMost(0), wrong)
	return nil
}

// loads are the clients of the echo services.
type loads map[family]*bench.Load

// startLoads opens connections and UDP flows, half of them of each family.
func (t *testbed) startLoads(ctx context.Context, connections, flows int) loads {
	started := loads{}
	for _, f := range families() {
		started[f] = &bench.Load{
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				return t.Dial(ctx, clientHost, network, address)
			},
			Targets: []bench.Destination{{VIP: netip.AddrPortFrom(t.vips[f].Addr(), echoPort), Servers: t.servers}},
			Timeout: tcpTimeout, Late: answerTimeout, Progress: t.config.Log,
		}
		started[f].Start(ctx, connections/2, flows/2, 0)
	}
	return started
}

// stop ends the loads when late answers have arrived.
func (l loads) stop() (counts map[family]bench.Counts, err error) {
	counts = map[family]bench.Counts{}
	for f, load := range l {
		seen, failed := load.Stop()
		counts[f], err = seen, errors.Join(err, failed)
	}
	return counts, err
}

// effect has the measurements of one fault and one family.
type effect struct {
	trial *trial
	// outage is from the cause to the last packet that the router sent to the balancer.
	outage time.Duration
	// during counts until the table had been right for a while, after from before the repair.
	during, after bench.Counts
}

// measureFault injects and repairs one fault and adds its impact. The aftermath is
// how long the lab is observed after the table has become right.
func (t *testbed) measureFault(ctx context.Context, f fault, n int, aftermath time.Duration, found impact) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	load := t.startLoads(ctx, connections, flows)
	trials, err := t.observeFault(ctx, f, n, aftermath)
	during, stopped := load.stop()
	if err := errors.Join(ctx.Err(), err, stopped); err != nil {
		return err
	}
	effects := map[family]effect{}
	for _, family := range families() {
		last := t.tap.lastTo(t.topology.Host(t.names[n]).Interfaces[0].MAC, family)
		if last.IsZero() {
			return fmt.Errorf("%s: the router never sent it a packet of %s", t.names[n], family)
		}
		outage := max(0, last.Sub(trials[family].cause))
		effects[family] = effect{trial: trials[family], outage: outage, during: during[family]}
	}
	load = t.startLoads(ctx, 0, flows)
	err = t.recoverFault(ctx, f, n, aftermath)
	after, stopped := load.stop()
	if err := errors.Join(ctx.Err(), err, stopped); err != nil {
		return err
	}
	for _, family := range families() {
		e := effects[family]
		e.after = after[family]
		t.addImpact(e, f, t.names[n], family, found)
	}
	all := during[ipv4].Connections + during[ipv6].Connections
	found.add("", "tcp_connections", float64(all))
	found.add("", "tcp_broken", float64(during[ipv4].TCPBroken()+during[ipv6].TCPBroken()))
	return nil
}

// observeFault injects a fault and observes the table until it has been right for a
// while.
func (t *testbed) observeFault(ctx context.Context, f fault, n int, aftermath time.Duration) (window, error) {
	left, subject := slices.Clone(t.fleet), n
	if !f.stays {
		left[n], subject = stopped, noSubject
	}
	w, err := t.openWindow(left, faultLimit, subject)
	if err != nil {
		return nil, err
	}
	if err := f.inject(ctx, n); err != nil {
		return nil, err
	}
	if f.stays {
		if err := t.settle(ctx); err != nil {
			return nil, err
		}
	}
	if err := t.followForGood(ctx, w, aftermath); err != nil {
		return nil, err
	}
	return w, t.closeWindow(w)
}

// recoverFault repairs a fault and waits until the tables have been as before for a while.
func (t *testbed) recoverFault(ctx context.Context, f fault, n int, aftermath time.Duration) error {
	if err := f.repair(ctx, n); err != nil {
		return err
	}
	if err := t.await(ctx, t.tables(t.fleet)); err != nil {
		return err
	}
	return netlab.Sleep(ctx, aftermath)
}

// addImpact adds the impact of a fault on one family.
func (t *testbed) addImpact(e effect, f fault, name string, family family, found impact) {
	o := e.trial.judge()
	wrong, absent := 0.0, time.Duration(0)
	if o.wrong != "" {
		wrong = 1
		t.config.Log("%s when %s: table of %s is wrong: %s", name, f.text, family, o.wrong)
	}
	for _, absence := range o.absences {
		absent += absence
	}
	text := fmt.Sprintf("%s when %s: %s: %d of %d datagrams lost, %d flows moved", name, f.text, family, e.during.Lost, e.during.Datagrams, e.during.Moved)
	if f.stays {
		found.add(family, "absent_ms", bench.Milliseconds(absent))
		t.config.Log("%s, not in the table for %.0f ms", text, bench.Milliseconds(absent))
	} else {
		found.add(family, "outage_ms", bench.Milliseconds(e.outage))
		found.add(family, "table_ms", bench.Milliseconds(o.delay))
		found.add(family, "return_lost", float64(e.after.Lost))
		t.config.Log("%s, table right after %.0f ms, last packet after %.0f ms; %d of %d lost after repair",
			text, bench.Milliseconds(o.delay), bench.Milliseconds(e.outage), e.after.Lost, e.after.Datagrams)
	}
	found.add(family, "wrong_tables", wrong)
	found.add(family, "sent", float64(e.during.Datagrams))
	found.add(family, "lost", float64(e.during.Lost))
	found.add(family, "moved", float64(e.during.Moved))
}

// impact holds the measurements of one kind of fault by family and by the end of the
// result's name; measurements of no family have the empty one.
type impact map[family]map[string]bench.Runs

func (i impact) add(f family, name string, v float64) {
	if i[f] == nil {
		i[f] = map[string]bench.Runs{}
	}
	i[f][name] = append(i[f][name], v)
}

// all are the measurements of all families.
func (i impact) all(name string) bench.Runs {
	return slices.Concat(i[ipv4][name], i[ipv6][name], i[""][name])
}

// report adds the results and verdicts of a setting.
func (i impact) report(r *bench.Report, setting Setting, f fault) {
	for _, family := range append(families(), "") {
		for _, result := range [][2]string{ // ends of names, and units
			{"outage_ms", "ms"}, {"table_ms", "ms"}, {"absent_ms", "ms"}, {"wrong_tables", "tables"},
			{"sent", "datagrams"}, {"lost", "datagrams"}, {"moved", "flows"}, {"return_lost", "datagrams"},
			{"tcp_connections", "connections"}, {"tcp_broken", "connections"},
		} {
			r.Add(f.name+"_"+result[0], result[1], i[family][result[0]], setting.labels(family))
		}
	}
	for _, c := range f.claims {
		runs := i.all(c.result)
		_, value := runs.Bounds()
		if c.sum {
			value = runs.Sum()
		}
		r.Judge(fmt.Sprintf("%s: %s", setting, c.text), bench.Documented, c.target, value)
	}
}
