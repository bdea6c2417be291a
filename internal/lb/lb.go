// SPDX-License-Identifier: Apache-2.0

// Package lb is the vocabulary of Fairlead: services, their virtual addresses and their
// backends. Sources translate the outside world into these types, and store, reconcile,
// data plane and observe use them. The package is pure: it imports no kernel,
// Kubernetes, netlink or eBPF package.
package lb

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Protocol is a transport protocol, by its IANA protocol number.
type Protocol uint8

// The protocols that are balanced.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

var protocolWords = words{TCP: "tcp", UDP: "udp"}

// String returns "tcp" or "udp".
func (p Protocol) String() string { return protocolWords.text(uint8(p)) }

// MarshalText writes the protocol as String does.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads "tcp" or "udp"; any other text is an error.
func (p *Protocol) UnmarshalText(text []byte) error {
	return protocolWords.read("protocol", string(text), (*uint8)(p))
}

// SegmentType is the type of virtual network of a packet. The segment is a part of the
// VIP's key.
type SegmentType uint8

// Segment types. The zero value leaves the segment open: the untagged network for a
// service, the segment of the route or the service for a backend. SegmentNone is the
// untagged network explicitly.
const (
	SegmentUnset SegmentType = iota
	SegmentNone
	SegmentVLAN
	SegmentVXLAN
	SegmentGeneve
)

var segmentWords = words{SegmentNone: "none", SegmentVLAN: "vlan", SegmentVXLAN: "vxlan", SegmentGeneve: "geneve"}

// String returns "none", "vlan", "vxlan" or "geneve", and "" for SegmentUnset.
func (t SegmentType) String() string {
	if t == SegmentUnset {
		return ""
	}
	return segmentWords.text(uint8(t))
}

// MarshalText writes the type as String does.
func (t SegmentType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (t *SegmentType) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*t = SegmentUnset
		return nil
	}
	return segmentWords.read("segment type", string(text), (*uint8)(t))
}

// Segment is one virtual network. Two services with the same address, port and
// protocol in two segments are two services.
type Segment struct {
	Type SegmentType `json:"type,omitempty"`
	// ID is the VLAN id (1 to 4094, IEEE 802.1Q) or the VXLAN or Geneve network
	// identifier (24 bits); 0 where Type is unset or none.
	ID uint32 `json:"id,omitempty"`
}

// Tagged reports whether packets of the segment carry its id.
func (s Segment) Tagged() bool { return s.Type > SegmentNone }

// Overlay reports whether packets of the segment are encapsulated in VXLAN or Geneve.
func (s Segment) Overlay() bool { return s.Type == SegmentVXLAN || s.Type == SegmentGeneve }

// String returns for example "vlan 100", or "" for the untagged network.
func (s Segment) String() string {
	if !s.Tagged() {
		return ""
	}
	return fmt.Sprintf("%s %d", s.Type, s.ID)
}

// VIP is the virtual address of a service and its identity; it is comparable. Address is
// never an IPv4-mapped IPv6 address and has no zone; the Segment of the untagged network
// is the zero Segment.
type VIP struct {
	Address  netip.Addr `json:"address"`
	Port     uint16     `json:"port"`
	Protocol Protocol   `json:"protocol"`
	Segment  Segment    `json:"segment,omitzero"`
}

// ParseVIP reads for example 10.1.1.1:80/tcp or [fd00::1]:53/udp.
func ParseVIP(text string) (vip VIP, err error) {
	const want = "want address:port/protocol, such as 10.1.1.1:80/tcp"
	end, protocol, found := strings.Cut(text, "/")
	if !found {
		return vip, fmt.Errorf("vip %q has no protocol: %s", text, want)
	}
	at, err := netip.ParseAddrPort(end)
	if err != nil || at.Port() == 0 {
		return vip, fmt.Errorf("vip %q: %s", text, want)
	}
	vip = VIP{Address: at.Addr(), Port: at.Port()}
	return vip, errors.Join(CheckAddress(vip.Address), vip.Protocol.UnmarshalText([]byte(protocol)))
}

// String returns for example "tcp 10.1.1.1:80" or "udp [fd00::1]:53 vlan 100".
func (v VIP) String() string {
	s := v.Protocol.String() + " " + netip.AddrPortFrom(v.Address, v.Port).String()
	if v.Segment.Tagged() {
		s += " " + v.Segment.String()
	}
	return s
}

// Compare orders VIPs by address, port, protocol and segment; it returns -1, 0
// or +1.
func (v VIP) Compare(o VIP) int {
	return cmp.Or(
		v.Address.Compare(o.Address),
		cmp.Compare(v.Port, o.Port),
		cmp.Compare(v.Protocol, o.Protocol),
		cmp.Compare(v.Segment.Type, o.Segment.Type),
		cmp.Compare(v.Segment.ID, o.Segment.ID),
	)
}

// words are the texts of a small enumeration in configuration files and JSON, indexed by
// value; empty for a value without text.
type words []string

func (w words) text(v uint8) string {
	if int(v) < len(w) && w[v] != "" {
		return w[v]
	}
	return fmt.Sprintf("unknown(%d)", v)
}

// read sets v to the value of a text, or to 0 with an error.
func (w words) read(kind, text string, v *uint8) error {
	*v = 0
	if i := slices.Index(w, text); i >= 0 && text != "" {
		*v = uint8(i)
		return nil
	}
	known := slices.DeleteFunc(slices.Clone(w), func(s string) bool { return s == "" })
	return fmt.Errorf("unknown %s %q: want one of %s", kind, text, strings.Join(known, ", "))
}
