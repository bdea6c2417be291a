// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// birdRouter is a router of AS 65000 that takes any neighbour and knows it only
// while there is a session, so that its BFD sessions live no longer either.
const birdRouter = `
router id 10.0.2.1;
protocol device { }
protocol direct { ipv4; ipv6; interface "eth*"; }
protocol kernel { merge paths on; ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel { merge paths on; ipv6 { import none; export where source = RTS_BGP; }; }
protocol bfd { interface "eth0" { interval 100 ms; multiplier 3; }; }
protocol bgp balancer {
  local 10.0.2.1 as 65000;
  neighbor range 10.0.2.0/24 external;
  dynamic name "balancer";
  passive on;
  bfd on;
  ipv4 { import all; export none; };
  ipv6 { import all; export none; };
}
`

// startBIRD starts a router.
func startBIRD(t *testing.T, config string) *box {
	t.Helper()
	r := newBox(t, "/usr/sbin/bird")
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "bird.conf"), filepath.Join(dir, "bird.ctl")
	r.must(os.WriteFile(file, []byte(config), 0o644))
	r.run("bird", "/usr/sbin/bird", "-f", "-c", file, "-s", socket)
	r.await("BIRD", func() bool { _, err := os.Stat(socket); return err == nil })
	return r
}

func TestBIRD(t *testing.T) {
	r := startBIRD(t, birdRouter)
	peer := router(router4, 65000)
	peer.BFD = &bgp.DefaultBFD
	start := time.Now()
	s := open(t, peer)
	set(t, s, "10.1.1.1", "fd00:10:1:1::1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	t.Log("from nothing to the kernel:", time.Since(start))
	r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
	for range 5 {
		start = time.Now()
		set(t, s)
		r.awaitHops("10.1.1.1/32")
		t.Log("withdrawn:", time.Since(start))
		start = time.Now()
		set(t, s, "10.1.1.1", "fd00:10:1:1::1")
		r.awaitHops("10.1.1.1/32", "10.0.2.11")
		t.Log("announced:", time.Since(start))
	}
	await(t, "BFD", func() bool { return s.Peers()[0].BFD == bgp.BFDUp })

	gone := r.watch("10.1.1.1/32")
	s.Abandon()
	again := open(t, peer)
	set(t, again, "10.1.1.1")
	r.awaitHops("fd00:10:1:1::1/128")
	await(t, "BFD", func() bool { return again.Peers()[0].BFD == bgp.BFDUp })
	if lost := gone(); len(lost) > 0 {
		t.Error("lost meanwhile:", lost)
	}
	if state := again.Peers()[0]; state.Flaps != 0 {
		t.Errorf("%+v", state)
	}
}
