// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// scriptedSource is a cluster whose updates a test sends.
type scriptedSource struct {
	updates chan source.Update
	// done follows each update that was taken over.
	done chan struct{}
	plan source.Shutdown
}

func (s *scriptedSource) Config() *config.Config {
	return &config.Config{
		Node: config.Node{Name: "lb1", DrainTimeout: time.Second},
		BGP:  &bgp.Config{Local: bgp.Local{ASN: 65021, RouterID: netip.MustParseAddr("192.0.2.1")}, ShutdownDelay: 20 * time.Millisecond},
	}
}

func (s *scriptedSource) State() source.File                       { return source.File{} }
func (s *scriptedSource) Reload() error                            { return nil }
func (s *scriptedSource) Shutdown(context.Context) source.Shutdown { return s.plan }
func (s *scriptedSource) Forget() error                            { return nil }
func (s *scriptedSource) Followed() source.Followed {
	return source.Followed{Cluster: &source.State{Server: "https://there", Reachable: true}}
}

func (s *scriptedSource) Run(ctx context.Context, apply func(source.Update) error) error {
	for {
		select {
		case u := <-s.updates:
			if err := apply(u); err != nil {
				return err
			}
			s.done <- struct{}{}
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *scriptedSource) send(u source.Update) {
	s.updates <- u
	<-s.done
}

// podService is a service at 10.1.1.n.
func podService(name string, n byte) lb.Service {
	return lb.Service{
		Name: name, VIP: lb.VIP{Address: netip.AddrFrom4([4]byte{10, 1, 1, n}), Port: 80, Protocol: lb.TCP},
		Forward: lb.NAT, MinHealthy: 1, Backends: []lb.Backend{{Address: netip.MustParseAddr("10.0.0.1"), Port: 8080, Weight: 1}},
	}
}

func launchFollower(t *testing.T) (*testAgent, *scriptedSource, *testSpeaker) {
	t.Helper()
	a := &testAgent{t: t, dp: dataplanetest.NewFake(), terminate: make(chan struct{}), socket: filepath.Join(t.TempDir(), "agent.sock")}
	speaker := &testSpeaker{}
	speaker.mark("served", a.dp.Dump, "10.1.1.2:80")
	s := &scriptedSource{updates: make(chan source.Update), done: make(chan struct{})}
	a.launch(s, speaker, func() error { return nil })
	s.send(source.Update{Whole: true, Changed: []lb.Service{podService("d/a/80", 1), podService("d/b/80", 2)}})
	until(t, "both routes stand", func() bool { return speaker.last() == "set 10.1.1.1/32 10.1.1.2/32 (served)" })
	return a, s, speaker
}

// last is the last set of routes.
func (s *testSpeaker) last() string {
	for _, line := range slices.Backward(s.said()) {
		if strings.HasPrefix(line, "set") {
			return line
		}
	}
	return ""
}

// A service that moves to other nodes is announced as leaving, then withdrawn, and
// only then removed from the data plane.
func TestServiceLeaves(t *testing.T) {
	a, s, speaker := launchFollower(t)
	vip := podService("", 2).VIP
	s.send(source.Update{Leaving: []lb.VIP{vip}})
	until(t, "it is gone", func() bool { return !strings.Contains(a.dp.Dump(), "10.1.1.2:80") })
	lines := speaker.said()
	for _, want := range []string{"set 10.1.1.1/32 10.1.1.2/32 leaving (served)", "set 10.1.1.1/32 (served)"} {
		if !slices.Contains(lines, want) {
			t.Errorf("the speaker announced %q, which lacks %q", lines, want)
		}
	}
	a.shows("status", "kubernetes  https://there, reached")
}

// A service that comes back stays, also with another VIP or under another name.
func TestServiceReturns(t *testing.T) {
	a, s, speaker := launchFollower(t)
	both := "set 10.1.1.1/32 10.1.1.2/32 (served)"
	vip := podService("", 2).VIP
	for range 20 { // a hand-off may end before it is cancelled
		s.send(source.Update{Leaving: []lb.VIP{vip}})
		s.send(source.Update{Changed: []lb.Service{podService("d/b/80", 2)}})
		until(t, "both routes stand again", func() bool { return speaker.last() == both })
	}
	s.send(source.Update{Leaving: []lb.VIP{vip}})
	s.send(source.Update{Changed: []lb.Service{podService("d/b/80", 3)}})
	until(t, "it is at its new address", func() bool { return speaker.last() == "set 10.1.1.1/32 10.1.1.3/32" })
	if dump := a.dp.Dump(); strings.Contains(dump, "10.1.1.2:80") {
		t.Errorf("the old address is still there:\n%s", dump)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if log := a.log.String(); strings.Contains(log, "routes not withdrawn") {
		t.Errorf("the log warns of routes that were to stay:\n%s", log)
	}
}

// An agent that is only replaced withdraws nothing; one whose node leaves does.
func TestTerminatedFollower(t *testing.T) {
	a, _, speaker := launchFollower(t)
	close(a.terminate)
	a.await("node stays in service", 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if got := speaker.last(); got != "set 10.1.1.1/32 10.1.1.2/32 (served)" || strings.Contains(a.log.String(), "node draining") {
		t.Errorf("routes are %q", got)
	}
	if !strings.Contains(a.dp.Dump(), "10.1.1.2:80") {
		t.Error("the data plane serves nothing any more")
	}

	for _, plan := range []source.Shutdown{{Reason: "cordoned"}, {Reason: "uninstalled", Permanent: true}} {
		a, s, speaker := launchFollower(t)
		s.plan = plan
		close(a.terminate)
		a.await(`msg="agent stopping, node leaves" reason=`+plan.Reason, 1)
		until(t, "all routes are withdrawn", func() bool { return speaker.last() == "set (served)" })
		if err := a.stop(); err != nil || a.wired.Permanent() != plan.Permanent {
			t.Errorf("error %v, permanent %t, want that of %+v", err, a.wired.Permanent(), plan)
		}
	}
}
