// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Edge cases apart from connections that fit: 1500 bytes on every link, tunnels included, so
// that clients and servers have to discover the path MTU. A tunnel over IPv6 takes 20 bytes
// more.
func TestEdges(t *testing.T) {
	t.Parallel()
	for forward, overhead := range map[lb.Forward]int{lb.L2DSR: 0, lb.IPIP: 20, lb.GUE: 32, lb.VXLAN: 50, lb.Geneve: 50} {
		t.Run(forward.String(), func(t *testing.T) {
			t.Parallel()
			topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: forward, MTU: 1500, Balancers: 3, Servers: 4})
			if err != nil {
				t.Fatal(err)
			}
			l := bringUp(t, "edges-"+forward.String(), topology)
			harness.EachFamily(t, func(t *testing.T, vip string) {
				learned := map[string]int{harness.VIP4: 1500 - overhead, harness.VIP6: 1500 - overhead - 20}[vip]
				if overhead == 0 {
					learned = 0
				}
				t.Run("upload", func(t *testing.T) { l.checkDiscovery(t, vip, learned) })
				t.Run("long datagrams", func(t *testing.T) { l.checkLongDatagrams(t, vip) })
			})
			t.Run("small link", l.checkSmallLink)
			t.Run("unavailable", l.checkUnavailable)
		})
	}
}

// checkDiscovery uploads in segments of 1500 bytes: where a tunnel leaves less, the balancers
// report the MTU (RFC 1191, RFC 8201), and the client's kernel learns it; 0 is none.
func (l *lab) checkDiscovery(t *testing.T, vip string, learned int) {
	before := l.Totals(t)
	l.checkUpload(t, "client", vip)
	after := l.Totals(t).Minus(before)
	after.CheckClean(t)
	if answered := after.Exit("answer_too_big"); (answered > 0) != (learned > 0) {
		t.Errorf("%d packets were too big:\n%s", answered, after)
	}
	if got := l.pathMTU(t, "client", vip); got != learned {
		t.Errorf("the client takes %d for the MTU to %s, want %d", got, vip, learned)
	}
}

// checkUnavailable takes all backends away from services that reject.
func (l *lab) checkUnavailable(t *testing.T) {
	l.Configure(t, l.Changed(func(s *lb.Service) { s.Backends, s.Unavailable = nil, lb.Reject }))
	defer l.Configure(t, l.Topology.Services)
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		if _, err := l.Get(t.Context(), "client", harness.Origin(vip)); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: a request ended with %v, want a refusal", vip, err)
		}
		port := 32000
		harness.Until(t, "a new flow of datagrams is refused", func() bool {
			port++ // those that were seen while flows are learned stay
			conn := l.Sockets(t, "client", vip, []int{port})[port]
			defer conn.Close()
			_, err := exchangeOnce(conn, []byte("x"))
			return errors.Is(err, syscall.ECONNREFUSED)
		})
	}
}
