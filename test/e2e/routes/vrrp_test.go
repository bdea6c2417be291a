// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
	"fairlead.io/fairlead/test/measured"
)

// gateway is the address that keepalived moves between the balancers; the router's routes to VIPs lead there.
const gateway = "10.0.2.250"

// keepalivedConf has VRRP (RFC 9568) with an interval of advertisements in seconds, and a priority. The address comes
// without preemption of the one that has it.
const keepalivedConf = `global_defs {
  vrrp_garp_master_delay 0
}
vrrp_instance fairlead {
  version 3
  state BACKUP
  nopreempt
  interface eth0
  virtual_router_id 51
  priority %d
  advert_int %s
  virtual_ipaddress {
    ` + gateway + `/24 dev eth0
  }
}
`

// Two balancers share VIPs by keepalived's VRRP, or by ECMP with BFD: the node that forwards is cut off, and another one
// answers. Two links carry twice as much as one by ECMP only. With -reports each is measured five times.
func TestVRRP(t *testing.T) {
	rounds := 1
	if measured.Wanted() {
		rounds = 5
	}
	gaps, rates := map[string]bench.Runs{}, map[string]bench.Runs{}
	for _, way := range []string{"vrrp 1 s", "vrrp 0.1 s", "ecmp"} {
		l := bringUp(t, "vrrp", redundant(t, way))
		for range rounds {
			rates[way] = append(rates[way], l.requestRate(t))
		}
		for range rounds {
			gaps[way] = append(gaps[way], bench.Milliseconds(l.failOver(t, way)))
		}
		t.Logf("%s: %v requests a second, %v ms without answers", way, rates[way], gaps[way])
	}
	measured.Write(t, "../../..", "vrrp", func(r *bench.Report) {
		for way := range gaps {
			r.Add("outage_ms", "ms", gaps[way], map[string]string{"by": way})
			r.Add("rate", "requests/s", rates[way], map[string]string{"by": way})
		}
		err := r.Compare(
			bench.Comparison{
				Name: "ecmp_rate", A: rates["ecmp"], B: rates["vrrp 1 s"], Claim: "requests by two balancers of ECMP over those by VRRP",
				Source: bench.Documented, Target: bench.AtLeast(1.6),
			},
			bench.Comparison{
				Name: "ecmp_outage", A: gaps["ecmp"], B: gaps["vrrp 1 s"], Claim: "outage with ECMP and BFD over the one with VRRP and 1 s",
				Source: bench.Documented, Target: bench.AtMost(0.5),
			},
		)
		if err != nil {
			t.Error(err)
		}
	})
}

// redundant is two balancers of l2dsr behind a router: with BGP, or with static routes to the address of VRRP.
func redundant(t *testing.T, way string) netlab.Topology {
	t.Helper()
	interval, vrrp := strings.CutPrefix(way, "vrrp ")
	options := netlab.ECMPOptions{Forward: lb.L2DSR, Balancers: 2, Servers: 2}
	if !vrrp {
		options.Router = netlab.FRR
	}
	topology, err := netlab.ECMP(options)
	if err != nil {
		t.Fatal(err)
	}
	topology.Probes = nil
	if !vrrp {
		return topology
	}
	router := topology.Host("router")
	router.Routes = slices.DeleteFunc(router.Routes, func(r netlab.Route) bool { return r.Destination == vipPrefixes[0] })
	router.Routes = append(router.Routes, netlab.Route{Destination: vipPrefixes[0], Gateways: []netip.Addr{netip.MustParseAddr(gateway)}})
	for n, name := range []string{"lb1", "lb2"} {
		h := topology.Host(name)
		if h.Files == nil {
			h.Files = map[string]string{}
		}
		h.Files["keepalived.conf"] = fmt.Sprintf(keepalivedConf, 100+n, strings.TrimSuffix(interval, " s"))
		h.Processes = append(h.Processes, netlab.Process{Name: "keepalived", Args: []string{
			"keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", "keepalived.conf", "--pid", "keepalived.pid", "--vrrp_pid", "vrrp.pid",
		}})
	}
	return topology
}

// requestRate is how many requests a second are answered if each balancer's link carries 4 Mbit/s.
func (l *lab) requestRate(t *testing.T) float64 {
	t.Helper()
	for _, balancer := range []string{"lb1", "lb2"} {
		l.Run(t, "switch", "tc", "qdisc", "replace", "dev", balancer, "root", "tbf", "rate", "4mbit", "burst", "20k", "latency", "50ms")
		defer l.Run(t, "switch", "tc", "qdisc", "delete", "dev", balancer, "root")
	}
	l.awaitAnswers(t)
	wrk, err := l.Wrk(t.Context(), "client", 5*time.Second, "-c", "64", harness.Origin(harness.VIP4))
	if err != nil {
		t.Fatal(err)
	}
	result, err := wrk.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return float64(result.Requests) / 5
}

// failOver cuts a balancer off that forwards and returns how long until all flows are answered. The balancer is there
// again afterwards.
func (l *lab) failOver(t *testing.T, way string) time.Duration {
	t.Helper()
	lost := "lb1"
	if way == "ecmp" {
		l.awaitRouteOf(t, harness.VIP4, "lb1", "lb2")
	} else {
		harness.Until(t, "one balancer has the address, and the router knows", func() bool {
			var have []string
			for _, name := range []string{"lb1", "lb2"} {
				if strings.Contains(l.Run(t, name, "ip", "-4", "address", "show", "dev", "eth0"), gateway) {
					have = append(have, name)
				}
			}
			lost = strings.Join(have, " ")
			if len(have) != 1 {
				return false
			}
			l.Run(t, "router", "ip", "neighbour", "flush", "to", gateway) // it may still have the one before
			_, _ = l.Get(t.Context(), "client", harness.Origin(harness.VIP4))
			mac := l.Topology.Host(lost).Interfaces[0].MAC.String()
			return strings.Contains(l.Run(t, "router", "ip", "neighbour", "show", gateway), mac)
		})
	}
	l.awaitAnswers(t)
	conns := l.Sockets(t, "client", harness.VIP4, harness.Ports(32))
	defer harness.CloseSockets(conns)
	var last, failures atomic.Int64 // when a flow last had no answer, in nanoseconds since the start; how often
	start := time.Now()
	var steps []func() error
	for _, conn := range conns {
		steps = append(steps, func() error {
			if !answers(conn) {
				last.Store(int64(time.Since(start)))
				failures.Add(1)
			}
			return nil
		})
	}
	end := harness.Repeat(t, 10*time.Millisecond, steps...)
	cut := time.Since(start)
	if err := l.Cut(lost); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "all flows are answered", func() bool {
		return failures.Load() > 0 && time.Since(start)-time.Duration(last.Load()) > time.Second/2
	})
	end()
	if err := l.Mend(lost); err != nil {
		t.Fatal(err)
	}
	return time.Duration(last.Load()) - cut
}

// answers sends a datagram and reports whether something is sent back within 20 ms.
func answers(conn net.Conn) bool {
	_, sent := conn.Write([]byte("vrrp"))
	received := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if received == nil {
		_, received = conn.Read(make([]byte, 64))
	}
	return sent == nil && received == nil
}

// awaitAnswers waits until ten requests in turn are answered.
func (l *lab) awaitAnswers(t *testing.T) {
	t.Helper()
	harness.Until(t, "requests are answered", func() bool {
		for range 10 {
			if _, err := l.Get(t.Context(), "client", harness.Origin(harness.VIP4)); err != nil {
				return false
			}
		}
		return true
	})
}
