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
	"fairlead.io/fairlead/internal/dataplane/fake"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source/file"
	"fairlead.io/fairlead/internal/source/kube"
)

// scriptedSource is a cluster in which a test decides what happens.
type scriptedSource struct {
	updates chan kube.Update
	// done follows each update that was taken over.
	done chan struct{}
	bye  farewell
}

func (s *scriptedSource) Config() *file.Config {
	return &file.Config{
		Node: file.Node{Name: "lb1", DrainTimeout: time.Second},
		BGP:  &bgp.Config{Local: bgp.Local{ASN: 65021, RouterID: netip.MustParseAddr("192.0.2.1")}, ShutdownDelay: 20 * time.Millisecond},
	}
}

func (s *scriptedSource) State() file.State                 { return file.State{} }
func (s *scriptedSource) Reload() error                     { return nil }
func (s *scriptedSource) farewell(context.Context) farewell { return s.bye }
func (s *scriptedSource) forget() error                     { return nil }
func (s *scriptedSource) kubernetes() *observe.Kubernetes {
	return &observe.Kubernetes{Server: "https://there", Reachable: true}
}

func (s *scriptedSource) run(ctx context.Context, a *agent) error {
	defer a.departures.wait()
	for {
		select {
		case u := <-s.updates:
			if err := a.follow(ctx, u); err != nil {
				return err
			}
			s.done <- struct{}{}
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *scriptedSource) tell(u kube.Update) {
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
	a := &testAgent{t: t, dp: fake.New(), terminate: make(chan struct{}), socket: filepath.Join(t.TempDir(), "agent.sock")}
	speaker := &testSpeaker{look: func() string {
		if strings.Contains(a.dp.Dump(), "10.1.1.2:80") {
			return " (served)"
		}
		return ""
	}}
	s := &scriptedSource{updates: make(chan kube.Update), done: make(chan struct{})}
	a.launch(s, speaker, func() error { return nil })
	s.tell(kube.Update{Whole: true, Changed: []lb.Service{podService("d/a/80", 1), podService("d/b/80", 2)}})
	a.until("both routes stand", func() bool { return speaker.last() == "set 10.1.1.1/32 10.1.1.2/32 (served)" })
	return a, s, speaker
}

func (a *testAgent) until(what string, holds func() bool) {
	a.t.Helper()
	until(a.t, what, holds)
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

// What other nodes serve from now on is announced as leaving, then withdrawn, and
// only then taken out of the data plane.
func TestServiceLeaves(t *testing.T) {
	a, s, speaker := launchFollower(t)
	vip := podService("", 2).VIP
	s.tell(kube.Update{Left: []lb.VIP{vip}})
	a.until("it is gone", func() bool { return !strings.Contains(a.dp.Dump(), "10.1.1.2:80") })
	lines := speaker.said()
	for _, want := range []string{"set 10.1.1.1/32 10.1.1.2/32 leaving (served)", "set 10.1.1.1/32 (served)"} {
		if !slices.Contains(lines, want) {
			t.Errorf("the speaker was told %q, which lacks %q", lines, want)
		}
	}
	if !strings.Contains(a.show("status"), "kubernetes  https://there, reached") {
		t.Errorf("status:\n%s", a.show("status"))
	}
}

// A service that comes back stays, also with another VIP or under another name.
func TestServiceComesBack(t *testing.T) {
	a, s, speaker := launchFollower(t)
	both := "set 10.1.1.1/32 10.1.1.2/32 (served)"
	vip := podService("", 2).VIP
	s.tell(kube.Update{Left: []lb.VIP{vip}})
	s.tell(kube.Update{Changed: []lb.Service{podService("d/b/80", 2)}})
	a.until("both routes stand again", func() bool { return speaker.last() == both })
	s.tell(kube.Update{Left: []lb.VIP{vip}})
	s.tell(kube.Update{Changed: []lb.Service{podService("d/b/80", 3)}})
	a.until("it is at its new address", func() bool { return speaker.last() == "set 10.1.1.1/32 10.1.1.3/32" })
	if dump := a.dp.Dump(); strings.Contains(dump, "10.1.1.2:80") {
		t.Errorf("the old address is still there:\n%s", dump)
	}
}

// An agent that is only replaced withdraws nothing; one whose node leaves does.
func TestTerminatedFollower(t *testing.T) {
	a, _, speaker := launchFollower(t)
	close(a.terminate)
	a.await("its next agent takes over", 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if got := speaker.last(); got != "set 10.1.1.1/32 10.1.1.2/32 (served)" || strings.Contains(a.log.String(), "node draining") {
		t.Errorf("routes are %q", got)
	}
	if !strings.Contains(a.dp.Dump(), "10.1.1.2:80") {
		t.Error("the data plane serves nothing any more")
	}

	a, s, speaker := launchFollower(t)
	s.bye.reason = "cordoned"
	close(a.terminate)
	a.await(`msg="node leaves" reason=cordoned`, 1)
	a.until("all routes are withdrawn", func() bool { return speaker.last() == "set (served)" })
	if err := a.stop(); err != nil || a.wired.forever {
		t.Errorf("error %v, forever %t of an agent that may come back", err, a.wired.forever)
	}

	a, s, speaker = launchFollower(t)
	s.bye = farewell{reason: "uninstalled", forever: true}
	close(a.terminate)
	a.await(`msg="node leaves" reason=uninstalled`, 1)
	a.until("all routes are withdrawn", func() bool { return speaker.last() == "set (served)" })
	if err := a.stop(); err != nil || !a.wired.forever {
		t.Errorf("error %v, forever %t of an agent that doesn't come back", err, a.wired.forever)
	}
}
