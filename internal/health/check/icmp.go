// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// probeICMP sends one echo request (RFC 792, RFC 4443 §4). It needs the right
// to open raw sockets, as not every network namespace lets anybody have one for
// echoes only (net.ipv4.ping_group_range).
func probeICMP(ctx context.Context, path way) error {
	want := echo{v4: path.Target.Addr().Is4(), id: rand.Uint64(), data: rand.Uint64()}
	request, err := want.request()
	if err != nil {
		return err
	}
	network := "ip6:ipv6-icmp"
	if want.v4 {
		network = "ip4:icmp"
	}
	// The socket sees the ICMP messages of the target only.
	conn, err := path.dialer().DialIP(ctx, network, path.Source, path.Target.Addr())
	if err != nil {
		return err
	}
	return exchange(ctx, conn, request, func(answer []byte) (bool, error) { return want.answeredBy(answer), nil })
}

// echo is an exchange of echo request and reply, identified by its payload.
type echo struct {
	v4       bool
	id, data uint64
}

func (e echo) message() *icmp.Echo {
	return &icmp.Echo{ID: int(e.id & 0xffff), Seq: 1, Data: binary.BigEndian.AppendUint64(nil, e.data)}
}

// request leaves the checksum of ICMPv6 to the kernel (RFC 3542 §3.1).
func (e echo) request() ([]byte, error) {
	m := icmp.Message{Type: ipv6.ICMPTypeEchoRequest, Body: e.message()}
	if e.v4 {
		m.Type = ipv4.ICMPTypeEcho
	}
	return m.Marshal(nil)
}

func (e echo) answeredBy(packet []byte) bool {
	protocol, reply := 58, icmp.Type(ipv6.ICMPTypeEchoReply) // IPPROTO_ICMPV6
	if e.v4 {
		protocol, reply = 1, ipv4.ICMPTypeEchoReply
	}
	m, err := icmp.ParseMessage(protocol, packet)
	if err != nil || m.Type != reply {
		return false
	}
	got, ok := m.Body.(*icmp.Echo)
	want := e.message()
	return ok && got.ID == want.ID && got.Seq == want.Seq && bytes.Equal(got.Data, want.Data)
}
