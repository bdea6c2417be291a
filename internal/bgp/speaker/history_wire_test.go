// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// The types of messages (RFC 4271 §4.1, RFC 2918).
const (
	typeOpen = iota + 1
	typeUpdate
	typeNotification
	typeKeepalive
	typeRefresh
)

// framed is a message with its header.
func framed(kind byte, body ...byte) []byte {
	m := binary.BigEndian.AppendUint16(bytes.Repeat([]byte{0xff}, 16), uint16(19+len(body)))
	return append(append(m, kind), body...)
}

// openOf is an OPEN as a router sends it.
type openOf struct {
	version, parameter byte // of another parameter than capabilities; 0 for none
	asn                uint16
	hold               uint16 // in seconds
	id                 byte   // the last one of the identifier; 0 for no identifier
	six                bool   // IPv6 routes, too
	graceful           bool
}

func (o openOf) message() []byte {
	capabilities := []byte{2, 0, 65, 4, 0, 0, byte(o.asn >> 8), byte(o.asn), 1, 4, 0, 1, 0, 1}
	if o.six {
		capabilities = append(capabilities, 1, 4, 0, 2, 0, 1)
	}
	if o.graceful {
		capabilities = append(capabilities, 64, 2, 0, 120)
	}
	parameters := append([]byte{2, byte(len(capabilities))}, capabilities...)
	if o.parameter != 0 {
		parameters = append(parameters, o.parameter, 1, 0)
	}
	identifier := []byte{10, 0, 2, o.id}
	if o.id == 0 {
		identifier = make([]byte, 4)
	}
	body := binary.BigEndian.AppendUint16([]byte{o.version}, o.asn)
	body = append(binary.BigEndian.AppendUint16(body, o.hold), identifier...)
	return framed(typeOpen, slices.Concat(body, []byte{byte(len(parameters))}, parameters)...)
}

// readCapabilities are the values of an OPEN's capabilities by code.
func readCapabilities(open []byte) map[byte][]byte {
	found := make(map[byte][]byte)
	for parameters := open[29:]; len(parameters) >= 2; parameters = parameters[2+parameters[1]:] {
		for list := parameters[2 : 2+parameters[1]]; len(list) >= 2; list = list[2+list[1]:] {
			found[list[0]] = append(found[list[0]], list[2:2+list[1]]...)
		}
	}
	return found
}

// readUpdate reads the prefixes of an UPDATE: those announced, with their MED, and those withdrawn.
func readUpdate(m []byte) (announced map[netip.Prefix]uint32, withdrawn []netip.Prefix) {
	announced = make(map[netip.Prefix]uint32)
	part := func(from []byte) (part, rest []byte) {
		n := 2 + int(binary.BigEndian.Uint16(from))
		return from[2:n], from[n:]
	}
	gone, rest := part(m[19:])
	attributes, nlri := part(rest)
	withdrawn = prefixesOf(gone, 4)
	reached, med := prefixesOf(nlri, 4), uint32(0)
	for len(attributes) > 0 {
		kind, size, head := attributes[1], int(attributes[2]), 3
		if attributes[0]&0x10 != 0 {
			size, head = int(binary.BigEndian.Uint16(attributes[2:])), 4
		}
		value := attributes[head : head+size]
		switch kind {
		case 4: // MULTI_EXIT_DISC
			med = binary.BigEndian.Uint32(value)
		case 14: // MP_REACH_NLRI
			reached = append(reached, prefixesOf(value[5+value[3]:], 16)...)
		case 15: // MP_UNREACH_NLRI
			withdrawn = append(withdrawn, prefixesOf(value[3:], 16)...)
		}
		attributes = attributes[head+size:]
	}
	for _, prefix := range reached {
		announced[prefix] = med
	}
	return announced, withdrawn
}

// prefixesOf reads the NLRI of addresses of a size.
func prefixesOf(nlri []byte, size int) (list []netip.Prefix) {
	for len(nlri) > 0 {
		bits := int(nlri[0])
		n := 1 + (bits+7)/8
		address, _ := netip.AddrFromSlice(append(slices.Clone(nlri[1:n]), make([]byte, size+1-n)...))
		list, nlri = append(list, netip.PrefixFrom(address, bits)), nlri[n:]
	}
	return list
}
