// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// register is the first of nftables' registers of four bytes that hold the key of a set.
const register = unix.NFT_REG32_00

// match is a rule that loads a key and does something with it.
func (t *table) match(load []expr.Any, then ...expr.Any) []expr.Any { return append(load, then...) }

// isIPv4 says of which family the table is.
func (t *table) isIPv4() bool { return t.Family == nftables.TableFamilyIPv4 }

// after is the register behind the address.
func (t *table) after() uint32 {
	if t.isIPv4() {
		return register + 1
	}
	return register + 4
}

// packet loads a packet's destination address, protocol and destination port.
func (t *table) packet() []expr.Any {
	offset, length := uint32(24), uint32(16) // RFC 8200 §3
	if t.isIPv4() {
		offset, length = 16, 4 // RFC 791 §3.1
	}
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: t.after()},
		&expr.Payload{DestRegister: t.after() + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// connection loads the destination of the connection's first packet, as its client sent it.
func (t *table) connection() []expr.Any {
	const original = 0 // IP_CT_DIR_ORIGINAL
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyDST, Direction: original, Register: register},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: t.after()},
		&expr.Ct{Key: expr.CtKeyPROTODST, Direction: original, Register: t.after() + 1},
	}
}

// unreachable matches ICMP errors "port unreachable" and loads the destination of the packet
// that they are about, which begins after eight bytes. One with IPv4 options isn't found.
func (t *table) unreachable() []expr.Any {
	const inner = 8
	protocol, kind := byte(unix.IPPROTO_ICMPV6), []byte{1, 4}
	address, length, next, port := uint32(24), uint32(16), uint32(6), uint32(40+2)
	if t.isIPv4() {
		protocol, kind = unix.IPPROTO_ICMP, []byte{3, 3}
		address, length, next, port = 16, 4, 9, 20+2
	}
	inError := func(to, offset, length uint32) *expr.Payload {
		return &expr.Payload{DestRegister: to, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length}
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Register: register, Data: []byte{protocol}},
		inError(register, 0, 2),
		&expr.Cmp{Register: register, Data: kind},
		inError(register, inner+address, length),
		inError(t.after(), inner+next, 1),
		inError(t.after()+1, inner+port, 2),
	}
}
