// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A lab that can't be finished leaves nothing, however far it came.
func TestFailureRemovesEverything(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Topology)
		want  string
	}{
		"sysctl": {
			func(tp *Topology) { tp.Hosts[2].Sysctls = map[string]string{"net.ipv4.nonsense": "1"} },
			"host server1: sysctl net.ipv4.nonsense",
		},
		"route": {
			func(tp *Topology) { tp.Hosts[2].Routes[0].Gateways = []netip.Addr{netip.MustParseAddr("192.0.2.1")} },
			"host server1: route add 0.0.0.0/0 via 192.0.2.1: ",
		},
		"rules": {
			func(tp *Topology) { tp.Host("router").Rules = "nonsense" },
			"host router: ",
		},
		"program": {
			func(tp *Topology) { tp.Hosts[2].Processes[1].Args[1] = "\x00" },
			"host server1: process echo",
		},
		"process": {
			func(tp *Topology) { tp.Hosts[2].Files[nginxConfig] = "nonsense;" },
			"host server1: process nginx has ended: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			labs := newLabs(t)
			topology := plain(1)
			c.spoil(&topology)
			lab := newLabName()
			_, err := labs.Up(t.Context(), lab, topology)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %s", err, c.want)
			}
			checkGone(t, labs, newState(lab, labs.Dir, &topology))
		})
	}
}

func TestCancelRemovesEverything(t *testing.T) {
	labs := newLabs(t)
	ctx, cancel := context.WithCancel(t.Context())
	labs.Progress = func(line string) {
		if strings.HasPrefix(line, "waiting") {
			cancel()
		}
	}
	topology, name := unanswered(), newLabName()
	if _, err := labs.Up(ctx, name, topology); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was canceled", err)
	}
	checkGone(t, labs, newState(name, labs.Dir, &topology))
}

// The creator is killed while it waits for an answer that never comes; another
// process takes down its lab.
func TestDownAfterCreatorWasKilled(t *testing.T) {
	labs := newLabs(t)
	name := newLabName()
	creator := exec.Command("/proc/self/exe", "lab", "create", labs.Dir, name)
	creator.Stderr = os.Stderr
	if err := creator.Start(); err != nil {
		t.Fatal(err)
	}
	var state State
	waitFor(t, "both processes of the server", func() bool {
		states, err := labs.List()
		if err != nil || len(states) == 0 {
			return false
		}
		state = states[0]
		return len(state.Host("server1").Processes) == 2
	})
	if err := creator.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = creator.Wait() // reports the signal
	for _, p := range state.Host("server1").Processes {
		if p.running() == nil {
			t.Errorf("process %s did not outlive its starter", p.Name)
		}
	}
	takeDown(t, labs, name)
	checkGone(t, labs, state)
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !condition() {
		if ctx.Err() != nil {
			t.Fatalf("timeout: %s", what)
		}
		_ = Sleep(ctx, 5*time.Millisecond)
	}
}
