// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net"
	"net/netip"
)

// MaxWeight is the largest weight of a backend (as in OpenStack Octavia).
const MaxWeight = 256

// WholeShare is the whole of a backend's weight in slow start, of which it gets a part.
const WholeShare = 16

// MAC is an Ethernet address. The zero MAC means "not given".
type MAC [6]byte

// String returns the address as six colon-separated hexadecimal bytes.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// IsZero reports whether the address is not given.
func (m MAC) IsZero() bool { return m == MAC{} }

// MarshalText writes the address as String does.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a 48-bit unicast Ethernet address.
func (m *MAC) UnmarshalText(text []byte) error {
	hw, err := net.ParseMAC(string(text))
	if err != nil || len(hw) != len(m) {
		return fmt.Errorf("bad MAC address %q: want six hexadecimal bytes such as 02:00:00:00:00:01", text)
	}
	if hw[0]&1 != 0 || MAC(hw) == (MAC{}) {
		return fmt.Errorf("bad MAC address %q: not a unicast address", text)
	}
	*m = MAC(hw)
	return nil
}

// BackendID names a backend within its service: its address and port.
type BackendID = netip.AddrPort

// Backend is one real server of a service.
type Backend struct {
	// Address is where the server is reached; never IPv4-mapped, without zone.
	Address netip.Addr `json:"address"`
	// Port is the server's port. In the DSR modes it equals the service's port,
	// because the packet is delivered as it came.
	Port uint16 `json:"port"`
	// Weight is the backend's share relative to the others', 0 to MaxWeight. A
	// backend of weight 0 gets no new flows. The store makes it 0 for one that is
	// drained, and for one that counts as dead until it has been probed.
	Weight int `json:"weight"`
	// TunnelEnd is the address of the tunnel end point behind which the backend
	// is, in the modes VXLAN and Geneve; no other mode has one.
	TunnelEnd netip.Addr `json:"tunnelEnd,omitzero"`
	// Node is the node that has the backend, in mode DNAT: packets are relayed to
	// it if it is directly connected, and else translated as in mode NAT. Without
	// one the backend is this node's own; no other mode has one.
	Node netip.Addr `json:"node,omitzero"`
	// Outside says that the backend is on no node that takes part, in mode DNAT:
	// packets for it are translated as in mode NAT. It has no Node.
	Outside bool `json:"outside,omitempty"`
	// MAC overrides what the neighbour table says of the backend's next hop. In
	// the modes VXLAN and Geneve it is the backend's own address within its
	// segment, and has to be given.
	MAC MAC `json:"mac,omitzero"`
	// Segment overrides the segment in which the backend is reached: a VLAN, or
	// in the modes VXLAN and Geneve one of theirs.
	Segment Segment `json:"segment,omitzero"`
	// ServerID is what the server writes into QUIC connection ids, with
	// AffinityQUIC. Without one it is found by the five-tuple only.
	ServerID ServerID `json:"serverID,omitempty"`
	// Down says that health checks found the server dead: it gets no new flows
	// and loses those that it has. The store sets it, never a source, and of servers
	// that get no new TCP flows anyway only for those from which nothing comes back.
	Down bool `json:"down,omitempty"`
	// Share is the part of its weight that a backend in slow start gets, in
	// sixteenths: 1 to 15, or 0 for the whole. The store sets it, never a source.
	Share int `json:"share,omitempty"`
	// Drained says that an operator wants the server to get no new flows; its
	// Weight is 0 then. The store sets it, never a source.
	Drained bool `json:"drained,omitempty"`
}

// Own reports whether the backend is this node's own, in mode DNAT.
func (b Backend) Own() bool { return !b.Node.IsValid() && !b.Outside }

// ID returns the backend's name within its service.
func (b Backend) ID() BackendID { return netip.AddrPortFrom(b.Address, b.Port) }
