// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Passwords, which only the kernel may have. One is in the environment of the agent of lb1.
const (
	passwordInFile = "horse-battery-staple"
	passwordInEnv  = "correct-zebra-fountain"
	passwordWrong  = "tr0ub4dor-and-3"
	envPassword    = "FAIRLEAD_TEST_PASSWORD"
	passwordFile   = "password"
)

// The status explains a failed session, which is retried and comes up when the mistake is
// corrected. Passwords are from the environment and from files, and no output of the agent
// contains any of them. TestStates of internal/bgp/speaker has more mistakes.
func TestPeerMistakes(t *testing.T) {
	t.Parallel()
	topology := harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR})
	unprotect(&topology)
	processes := topology.Host("lb1").Processes
	agent := &processes[slices.IndexFunc(processes, func(p netlab.Process) bool { return p.Name == "agent" })]
	agent.Env = append(agent.Env, envPassword+"="+passwordInEnv)
	l := bringUp(t, "mistakes", topology)
	l.awaitVia(t, "lb1", "lb2", "lb3")
	l.configurePeer(t, func(p *bgp.Peer) { p.TTLSecurity = 1 })
	l.checkSaid(t, "the peer does not respond: it may be further away than TTL security allows, or not use TTL security")
	l.configurePeer(t, func(*bgp.Peer) {})
	l.awaitSession(t)

	l.writePassword(t, passwordInFile)
	for _, step := range []struct {
		password string
		from     bgp.Secret
	}{{passwordInEnv, bgp.Secret{Env: envPassword}}, {passwordInFile, bgp.Secret{File: passwordFile}}} {
		l.configureRouter(t, "neighbor LB password "+step.password)
		l.configurePeer(t, func(p *bgp.Peer) { p.Password = step.from })
		l.awaitSession(t)
		l.checkSecret(t, "lb1")
	}
	l.writePassword(t, passwordWrong) // for the next session
	l.configureRouter(t, "no neighbor LB password", "neighbor LB password "+passwordInEnv)
	l.checkSaid(t, "timed out: wrong password, or unreachable")
	l.checkSecret(t, "lb1")
}

// unprotect removes passwords and TTL security from sessions with the router.
func unprotect(topology *netlab.Topology) {
	files := topology.Host("router").Files
	var lines []string
	for line := range strings.Lines(files["bgpd.conf"]) {
		if !strings.Contains(line, "password") && !strings.Contains(line, "ttl-security") {
			lines = append(lines, line)
		}
	}
	files["bgpd.conf"] = strings.Join(lines, "")
	for _, h := range topology.Hosts {
		if h.Agent != nil {
			h.Agent.BGP.Peers[0].Password, h.Agent.BGP.Peers[0].TTLSecurity = bgp.Secret{}, 0
		}
	}
}

func (l *lab) writePassword(t *testing.T, password string) {
	t.Helper()
	if err := l.State().Host("lb1").ReplaceFile(passwordFile, password+"\n"); err != nil {
		t.Fatal(err)
	}
}

// configureRouter changes the router's BGP configuration; "LB" is the address of lb1.
func (l *lab) configureRouter(t *testing.T, lines ...string) {
	t.Helper()
	args := []string{"--vty_socket", l.State().Host("router").Directory, "-c", "configure terminal", "-c", "router bgp 65000"}
	for _, line := range lines {
		args = append(args, "-c", strings.ReplaceAll(line, "LB", l.Address("lb1").String()))
	}
	if said, err := exec.CommandContext(t.Context(), "vtysh", args...).CombinedOutput(); err != nil || strings.Contains(string(said), "% ") {
		t.Fatalf("%q: %v: %s", lines, err, said)
	}
}

// configurePeer changes lb1's configuration of the router, which is right before.
func (l *lab) configurePeer(t *testing.T, change func(*bgp.Peer)) {
	t.Helper()
	config := *l.Topology.Host("lb1").Agent.BGP
	config.Peers = slices.Clone(config.Peers)
	change(&config.Peers[0])
	l.reconfigureBGP(t, l.State().Host("lb1"), &config)
}

// checkSaid waits until lb1 says why it has no session with the router, and when it tries
// again; to programs, and to people, who may ask while it tries.
func (l *lab) checkSaid(t *testing.T, reason string) {
	t.Helper()
	router := l.Address("router")
	var peer bgp.PeerState
	// A busy machine loses BFD's packets, and with them attempts.
	said := await.Holds(func() bool {
		peer = l.peer(t, "lb1", router)
		return peer.State == bgp.Idle && strings.Contains(peer.Reason, reason) && peer.NextTry.After(time.Now())
	})
	if !said {
		t.Errorf("got %+v, want idle: %q", peer, reason)
		return
	}
	var line string
	shown := await.Holds(func() bool {
		line = lineOf(l.Show(t, "lb1", "routes"), router.String())
		return strings.Contains(line, reason) && (!strings.Contains(line, "idle: ") || strings.Contains(line, ", next try in "))
	})
	if !shown {
		t.Errorf("lb1 says %q, want %q and the next try", line, reason)
	}
}

// awaitSession waits until lb1 is in session with the router.
func (l *lab) awaitSession(t *testing.T) {
	t.Helper()
	router := l.Address("router")
	if !await.Holds(func() bool { return l.peer(t, "lb1", router).State == bgp.Established }) {
		t.Fatalf("mended, and still: %+v", l.peer(t, "lb1", router))
	}
}

// checkSecret searches all that an agent says for passwords.
func (l *lab) checkSecret(t *testing.T, balancer string) {
	t.Helper()
	h := l.State().Host(balancer)
	said := map[string]string{}
	for _, command := range []string{"status", "routes", "services", "drains"} {
		for _, format := range []string{"table", "json"} {
			said["fairlead "+command+" -o "+format] = l.Show(t, balancer, command, "-o", format)
		}
	}
	_, checked, wrong := harness.Fairlead(t, "config", "check", h.Directory+"/"+netlab.AgentFile, "-o", "json")
	said["fairlead config check"] = checked + wrong
	for _, path := range []string{"/metrics", "/", "/api/v1/status", "/api/v1/routes", "/api/v1/events", "/api/v1/history"} {
		text, err := l.Get(t.Context(), balancer, "http://127.0.0.1:"+harness.PagePort+path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		said[path] = text
	}
	for _, file := range []string{fmt.Sprintf("/proc/%d/cmdline", harness.Status(t, h).PID), h.Directory + "/agent.log"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said[file] = string(text)
	}
	for where, text := range said {
		for _, password := range []string{passwordInFile, passwordInEnv, passwordWrong} {
			if strings.Contains(text, password) {
				t.Errorf("%s has a password:\n%s", where, text)
			}
		}
		if text == "" {
			t.Errorf("%s says nothing", where)
		}
	}
}
