// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// A client whose port changes with every packet, as behind a NAT that forgets,
// stays on the server that its connection id names, whichever balancer it meets.
func TestQUIC(t *testing.T) {
	l := bringUp(t, "quic", ecmp(t, lb.L2DSR))
	l.configure(t, l.changed(func(s *lb.Service) {
		if s.Protocol == lb.UDP {
			s.Affinity, s.QUIC = lb.AffinityQUIC, &lb.QUIC{ConfigID: 1, ServerIDLength: 1, NonceLength: 6}
			for i := range s.Backends {
				s.Backends[i].ServerID = lb.ServerID([]byte{byte(i + 1)})
			}
		}
	}))
	for _, vip := range []string{vip4, vip6} {
		for server := 1; server <= 4; server++ {
			id := string([]byte{1 << 5, byte(server)}) + "nonce!"
			for name, packet := range map[string]string{
				"long":  "\xc0\x00\x00\x00\x01\x08" + id + strings.Repeat("e", 100),
				"short": "\x40" + id + strings.Repeat("e", 100),
			} {
				want := map[string]int{fmt.Sprintf("server%d", server): window}
				if got := l.wander(t, vip, packet); !maps.Equal(got, want) {
					t.Errorf("%s: packets with a %s header were answered by %v, want %v", vip, name, got, want)
				}
			}
		}
		if got := l.wander(t, vip, "\x40"+string([]byte{7 << 5, 1})+"nonce!"); len(got) < 2 {
			t.Errorf("%s: packets that name nobody were all answered by %v", vip, got)
		}
	}
}

// wander sends one packet from each of many ports, and counts who answers.
func (l *lab) wander(t *testing.T, vip, packet string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	answer := make([]byte, 2*maxPayload)
	for _, conn := range l.sockets(t, "client", vip, ports(window)) {
		defer conn.Close()
		if _, err := conn.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(answer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			counts[""]++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		name, echoed, _ := bytes.Cut(answer[:n], []byte(" "))
		if string(echoed) != packet {
			t.Fatalf("%d bytes came back changed", len(packet))
		}
		counts[string(name)]++
	}
	return counts
}
