// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// bird is a router of AS 65000 that takes any neighbour and knows it only while
// there is a session, so that its BFD sessions live no longer either. The lines are
// about its neighbours.
func bird(lines string) string {
	return `
router id 10.0.2.1;
protocol device { }
protocol direct { ipv4; ipv6; interface "eth*"; }
protocol kernel { merge paths on; ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel { merge paths on; ipv6 { import none; export where source = RTS_BGP; }; }
protocol bfd { interface "eth0" { interval 100 ms; multiplier 20; }; }
template bgp balancer {
  dynamic name "balancer";
  passive on;
  ipv4 { import all; export none; extended next hop on; };
  ipv6 { import all; export none; };
  ` + lines + `
}
protocol bgp from balancer { local 10.0.2.1 as 65000; neighbor range 10.0.2.0/24 external; }
protocol bgp from balancer { local fd00:2::1 as 65000; neighbor range fd00:2::/64 external; }
`
}

// startBIRD starts a router.
func startBIRD(t *testing.T, config string) *box {
	t.Helper()
	needs(t, "/usr/sbin/bird")
	r := newBox(t, first)
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "bird.conf"), filepath.Join(dir, "bird.ctl")
	r.must(os.WriteFile(file, []byte(config), 0o644))
	r.run("bird", "/usr/sbin/bird", "-f", "-c", file, "-s", socket)
	await.True(r.t, "BIRD", func() bool { _, err := os.Stat(socket); return err == nil })
	return r
}

// watchedByBIRD is the peer that a router with BFD is.
func watchedByBIRD() bgp.Peer {
	peer := router(router4, 65000)
	peer.BFD = &patient
	return peer
}

func TestBIRD(t *testing.T) {
	r := startBIRD(t, bird("bfd on;"))
	s := openFollowed(t, r, watchedByBIRD())
	awaitBFD(t, s)
	wantFlaps(t, s, 0)
}

func TestBIRDRestartWithinDetectionTime(t *testing.T) {
	checkBack(t, startBIRD(t, bird("bfd on;")), watchedByBIRD())
}

// BIRD's BFD knows nothing of restarts: it takes routes away that graceful restart
// keeps (against RFC 5882 §4.3), as soon as the speaker that died is silent for long
// enough. They come back with the next one, whose session must not fail with the
// rest of the old BFD session.
func TestBIRDAbandonWithBFD(t *testing.T) {
	r := startBIRD(t, bird("bfd on;"))
	s := open(t, watchedByBIRD())
	announce(t, r, s, "10.1.1.1")
	awaitBFD(t, s)
	start := time.Now()
	s.Abandon()
	r.awaitHops("10.1.1.1/32")
	t.Log("taken away after", time.Since(start))

	again := open(t, watchedByBIRD())
	set(t, again, "10.1.1.1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	awaitBFD(t, again)
	kept := r.watch("10.1.1.1/32")
	detection := patient.Interval * time.Duration(patient.Multiplier)
	up := again.Peers()[0].BFDSince
	await.True(t, "three detection times of peace", func() bool { return time.Since(up) > 3*detection })
	kept()
	wantFlaps(t, again, 0)
}
