// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	// connections are held while balancers fail.
	connections = 200
	// tcpTimeout is longer than TCP needs to repair losses.
	tcpTimeout = 10 * time.Second
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

// measureFaults injects all faults under constant load.
func (t *testbed) measureFaults(ctx context.Context) (err error) {
	load, err := sendDatagrams(ctx, t.dial, t.echoes(lb.UDP))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, load.stop()) }()
	rounds, aftermath := 3, time.Second
	if t.config.Quick {
		rounds, aftermath = 1, time.Second/2
	}
	random, wrong, happened := t.config.random(2), 0.0, 0
	for _, f := range t.faults() {
		found := impact{}
		for range rounds {
			if err := t.measureFault(ctx, f, random.IntN(len(t.names)), aftermath, load, found); err != nil {
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

// faultWindow holds the observations of one fault.
type faultWindow struct {
	window
	// end is when the table had been right for a while; then the balancer was
	// repaired, and back for a while.
	end, repaired, back time.Time
	trials              map[family]trial
	// outages are from the cause to the last packet that the router sent to the
	// balancer.
	outages map[family]time.Duration
}

// measureFault injects and repairs one fault and adds its impact. The aftermath is
// how long the lab is observed after the table has become right.
func (t *testbed) measureFault(ctx context.Context, f fault, n int, aftermath time.Duration, load *datagrams, found impact) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	held := &bench.Load{Dial: t.dial, Timeout: tcpTimeout, Progress: t.config.Log}
	for _, vip := range t.echoes(lb.TCP) {
		held.Targets = append(held.Targets, bench.Destination{VIP: vip, Servers: bench.NewPresence(nil)})
	}
	held.Start(ctx, connections, 0, 0)
	w, err := t.observeFault(ctx, f, n, aftermath)
	seen, stopped := held.Stop()
	if err := errors.Join(ctx.Err(), err, stopped); err != nil {
		return err
	}
	for _, family := range families() {
		last := t.tap.lastTo(t.topology.Host(t.names[n]).Interfaces[0].MAC, family)
		if last.IsZero() {
			return fmt.Errorf("%s: the router never sent it a packet of %s", t.names[n], family)
		}
		w.outages[family] = max(0, last.Sub(w.cause))
	}
	if err := t.recoverFault(ctx, f, n, aftermath, w); err != nil {
		return err
	}
	found.add("", "tcp_connections", float64(seen.Connections))
	found.add("", "tcp_broken", float64(seen.TCPBroken()))
	for _, family := range families() {
		t.addImpact(w, f, t.names[n], family, load, found)
	}
	return nil
}

// observeFault injects a fault and observes the table until it has been right for a
// while.
func (t *testbed) observeFault(ctx context.Context, f fault, n int, aftermath time.Duration) (*faultWindow, error) {
	left := slices.Clone(t.fleet)
	w := &faultWindow{window: window{limit: faultLimit, subject: n}, outages: map[family]time.Duration{}}
	if !f.stays {
		left[n], w.subject = stopped, noSubject
	}
	w.before, w.after = t.tables(t.fleet), t.tables(left)
	if err := t.openWindow(&w.window); err != nil {
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
	if err := t.followForGood(ctx, &w.window, aftermath); err != nil {
		return nil, err
	}
	w.end = time.Now()
	var err error
	w.trials, err = t.closeWindow(&w.window)
	return w, err
}

// recoverFault repairs a fault and waits until the tables are as before, and late
// answers have arrived.
func (t *testbed) recoverFault(ctx context.Context, f fault, n int, aftermath time.Duration, w *faultWindow) error {
	w.repaired = time.Now()
	if err := f.repair(ctx, n); err != nil {
		return err
	}
	if err := t.await(ctx, t.tables(t.fleet)); err != nil {
		return err
	}
	if err := netlab.Sleep(ctx, aftermath); err != nil {
		return err
	}
	w.back = time.Now()
	return netlab.Sleep(ctx, answerTimeout)
}

// addImpact adds the impact of a fault on one family.
func (t *testbed) addImpact(w *faultWindow, f fault, name string, family family, load *datagrams, found impact) {
	trial := w.trials[family]
	o := trial.judge()
	during, after := load.count(w.cause, w.end, family), load.count(w.repaired, w.back, family)
	wrong, absent := 0.0, time.Duration(0)
	if o.wrong != "" {
		wrong = 1
		t.config.Log("%s when %s: table of %s is wrong: %s", name, f.text, family, o.wrong)
	}
	for _, absence := range o.absences {
		absent += absence
	}
	if f.stays {
		found.add(family, "absent_ms", bench.Milliseconds(absent))
		t.config.Log("%s when %s: %s: not in the table for %.0f ms, %d of %d datagrams lost, %d moved",
			name, f.text, family, bench.Milliseconds(absent), during.lost, during.sent, during.moved)
	} else {
		found.add(family, "outage_ms", bench.Milliseconds(w.outages[family]))
		found.add(family, "table_ms", bench.Milliseconds(o.delay))
		found.add(family, "return_lost", float64(after.lost))
		t.config.Log("%s when %s: %s: table right after %.0f ms, last packet after %.0f ms, %d of %d datagrams lost, %d moved; %d of %d lost after repair",
			name, f.text, family, bench.Milliseconds(o.delay), bench.Milliseconds(w.outages[family]), during.lost, during.sent, during.moved, after.lost, after.sent)
	}
	found.add(family, "wrong_tables", wrong)
	found.add(family, "sent", float64(during.sent))
	found.add(family, "lost", float64(during.lost))
	found.add(family, "moved", float64(during.moved))
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
			{"sent", "datagrams"}, {"lost", "datagrams"}, {"moved", "datagrams"}, {"return_lost", "datagrams"},
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
