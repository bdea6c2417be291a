// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/e2e/harness"
)

// A client whose port changes with every packet, as behind a NAT that forgets,
// stays on the server that its connection id names, whichever balancer it meets.
func TestQUIC(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "quic", harness.ECMP(t, lb.L2DSR))
	l.Configure(t, l.Changed(func(s *lb.Service) {
		if s.Protocol == lb.UDP {
			s.Affinity, s.QUIC = lb.AffinityQUIC, &lb.QUIC{ConfigID: 1, ServerIDLength: 1, NonceLength: 6}
			for i := range s.Backends {
				s.Backends[i].ServerID = lb.ServerID([]byte{byte(i + 1)})
			}
		}
	}))
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		for server := 1; server <= 4; server++ {
			id := string([]byte{1 << 5, byte(server)}) + "nonce!"
			for name, packet := range map[string]string{
				"long":  "\xc0\x00\x00\x00\x01\x08" + id + strings.Repeat("e", 100),
				"short": "\x40" + id + strings.Repeat("e", 100),
			} {
				want := map[string]int{fmt.Sprintf("server%d", server): harness.Window}
				if got := l.migrate(t, vip, packet); !maps.Equal(got, want) {
					t.Errorf("%s: packets with a %s header were answered by %v, want %v", vip, name, got, want)
				}
			}
		}
		if got := l.migrate(t, vip, "\x40"+string([]byte{7 << 5, 1})+"nonce!"); len(got) < 2 {
			t.Errorf("%s: packets without a server id were all answered by %v", vip, got)
		}
	}
}

// migrate sends one packet from each of many ports, and counts the servers that answer.
func (l *lab) migrate(t *testing.T, vip, packet string) map[string]int {
	t.Helper()
	conns := l.Sockets(t, "client", vip, harness.Ports(harness.Window))
	defer harness.CloseSockets(conns)
	names, err := harness.Exchange(conns, func(int) []byte { return []byte(packet) })
	if err != nil {
		t.Fatal(err)
	}
	return harness.ByServer(names)
}
