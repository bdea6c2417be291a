// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// mistake is one that an operator makes about a session with a router.
type mistake struct {
	name string
	// ours changes the balancer's side, theirs are lines of the router's, which those
	// in mended undo.
	ours           func(*bgp.Peer)
	theirs, mended []string
	// reason is, or is part of, what the balancer says.
	reason string
}

// mistakes are made with these balancers, on each side; "LB" is the balancer's
// address.
var mistakes = map[string][]mistake{
	"lb1": {
		{
			name: "wrong ASN here", ours: func(p *bgp.Peer) { p.ASN = 65009 },
			reason: "bad peer AS: the peer is AS 65000, configured is AS 65009",
		},
		{
			name: "wrong ASN there",
			theirs: []string{
				"no neighbor LB", "neighbor LB remote-as 65099", "neighbor LB passive", "address-family ipv4 unicast", "neighbor LB activate",
			},
			mended: []string{"no neighbor LB", "neighbor LB peer-group balancers"},
			reason: "received NOTIFICATION: bad peer AS: the peer does not accept AS 65021, and is AS 65000 itself",
		},
		{
			name: "wrong password here", ours: func(p *bgp.Peer) { p.Password.Env = envWrong },
			theirs: []string{"neighbor LB password " + passwordInEnv}, mended: []string{"no neighbor LB password"},
			reason: "timed out: wrong password, or unreachable",
		},
	},
	"lb2": {
		{
			name:   "no password here",
			theirs: []string{"neighbor LB password " + passwordInEnv}, mended: []string{"no neighbor LB password"},
			reason: "timed out: unreachable, or it wants a password",
		},
		{
			name: "no password there", ours: func(p *bgp.Peer) { p.Password.File = passwordFile },
			reason: "timed out: wrong password, or unreachable",
		},
	},
	"lb3": {
		{
			name: "TTL security only here", ours: func(p *bgp.Peer) { p.TTLSecurity = 1 },
			reason: "the peer does not respond: it may be further away than TTL security allows, or not use TTL security",
		},
		{
			name:   "TTL security only there",
			theirs: []string{"neighbor LB ttl-security hops 1"}, mended: []string{"no neighbor LB ttl-security hops 1"},
			// FRR begins to drop packets after it has taken the connection: the first ones
			// may have passed, and then it is the hold timer that says so.
			reason: "the peer ",
		},
	},
}

// unreachable are peers without a session, and the reported reasons.
var unreachable = map[string]string{
	"10.0.2.222": "no route to host",
	"10.99.0.1":  "network is unreachable",
	"10.0.2.12":  "connection refused",
}

// The status says what is wrong with a session, which is retried and comes up when the
// mistake is corrected.
func TestPeerMistakes(t *testing.T) {
	t.Parallel()
	topology := harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR})
	unprotect(&topology)
	agent := processOf(&topology, "lb1", "agent")
	agent.Env = append(agent.Env, envPassword+"="+passwordInEnv, envWrong+"="+passwordWrong)
	l := bringUp(t, "mistakes", topology)
	l.awaitVia(t, "lb1", "lb2", "lb3")
	for _, name := range []string{"lb1", "lb2"} {
		if err := l.State().Host(name).ReplaceFile(passwordFile, passwordInFile+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	l.configurePeer(t, "lb1", nil)
	r := &frr{lab: l}
	t.Run("made", func(t *testing.T) {
		for balancer, all := range mistakes {
			t.Run(balancer, func(t *testing.T) {
				t.Parallel()
				for _, m := range all {
					t.Run(m.name, func(t *testing.T) { l.checkMistake(t, r, balancer, &m) })
				}
			})
		}
		t.Run("unreachable", l.checkUnreachablePeers)
	})
	t.Run("passwords", func(t *testing.T) { l.checkPasswords(t, r) })
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

// processOf is what a topology runs in a host under that name.
func processOf(topology *netlab.Topology, host, name string) *netlab.Process {
	processes := topology.Host(host).Processes
	return &processes[slices.IndexFunc(processes, func(p netlab.Process) bool { return p.Name == name })]
}

// frr is a router whose configuration is changed by one caller at a time.
type frr struct {
	lab *lab
	mu  sync.Mutex
}

// configure changes the router's BGP configuration of a balancer.
func (r *frr) configure(t *testing.T, balancer string, lines []string) {
	t.Helper()
	if len(lines) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	args := []string{"--vty_socket", r.lab.State().Host("router").Directory, "-c", "configure terminal", "-c", "router bgp 65000"}
	for _, line := range lines {
		args = append(args, "-c", strings.ReplaceAll(line, "LB", r.lab.Address(balancer).String()))
	}
	if said, err := exec.CommandContext(t.Context(), "vtysh", args...).CombinedOutput(); err != nil || strings.Contains(string(said), "% ") {
		t.Fatalf("%q: %v: %s", lines, err, said)
	}
}

// configurePeer changes what a balancer is configured to know of the router; nil is
// the right thing. lb1 has the unreachable peers besides.
func (l *lab) configurePeer(t *testing.T, balancer string, change func(*bgp.Peer)) {
	t.Helper()
	config := *l.Topology.Host(balancer).Agent.BGP
	config.Peers = slices.Clone(config.Peers)
	if change != nil {
		change(&config.Peers[0])
	}
	if balancer == "lb1" {
		for address := range unreachable {
			config.Peers = append(config.Peers, bgp.Peer{Address: netip.MustParseAddr(address), ASN: hostileASN, HoldTime: 3 * time.Second})
		}
	}
	l.reconfigureBGP(t, l.State().Host(balancer), &config)
}

// checkMistake makes a mistake, looks at what is said of it, and mends it.
func (l *lab) checkMistake(t *testing.T, r *frr, balancer string, m *mistake) {
	r.configure(t, balancer, m.theirs)
	if m.ours != nil {
		l.configurePeer(t, balancer, m.ours)
	}
	l.checkSaid(t, balancer, l.Address("router"), m.reason)
	if m.ours != nil {
		l.configurePeer(t, balancer, nil)
	}
	r.configure(t, balancer, m.mended)
	l.awaitSession(t, balancer)
}

// checkSaid waits until a balancer says why it has no session with a peer, and when
// it tries again; to programs, and to people, who may ask while it tries.
func (l *lab) checkSaid(t *testing.T, balancer string, a netip.Addr, reason string) {
	t.Helper()
	var peer bgp.PeerState
	// A busy machine loses BFD's packets, and with them attempts.
	said := harness.Within(time.Minute, func() bool {
		peer = l.peer(t, balancer, a)
		return peer.State == bgp.Idle && strings.Contains(peer.Reason, reason) && peer.NextTry.After(time.Now())
	})
	if !said {
		t.Errorf("%s of %s: got %+v, want idle: %q", balancer, a, peer, reason)
		return
	}
	var line string
	shown := harness.Within(harness.Timeout, func() bool {
		line = lineOf(l.Show(t, balancer, "routes"), a.String())
		return strings.Contains(line, reason) && (!strings.Contains(line, "idle: ") || strings.Contains(line, ", next try in "))
	})
	if !shown {
		t.Errorf("%s says %q, want %q and the next try", balancer, line, reason)
	}
}

// awaitSession waits until a balancer is in session with the router.
func (l *lab) awaitSession(t *testing.T, balancer string) {
	t.Helper()
	since := time.Now()
	up := harness.Within(time.Minute, func() bool { return l.peer(t, balancer, l.Address("router")).State == bgp.Established })
	if !up {
		t.Fatalf("mended, and still: %+v", l.peer(t, balancer, l.Address("router")))
	}
	t.Logf("in session %s after it was mended", time.Since(since).Round(time.Millisecond))
}

// Peers that can't be reached are tried less and less often.
func (l *lab) checkUnreachablePeers(t *testing.T) {
	t.Parallel()
	for text, reason := range unreachable {
		a := netip.MustParseAddr(text)
		l.checkSaid(t, "lb1", a, reason)
		seldom := harness.Within(2*harness.Timeout, func() bool { return time.Until(l.peer(t, "lb1", a).NextTry) > time.Second })
		if !seldom {
			t.Errorf("%s: tried all the time: %+v", a, l.peer(t, "lb1", a))
		}
	}
}
