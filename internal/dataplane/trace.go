// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Tracer is a data plane that can trace a packet without sending it.
type Tracer interface {
	Trace(ctx context.Context, packet Packet) (Trace, error)
}

// Packet is a frame to be traced.
type Packet struct {
	// Interface is where it would come in; empty means the first one on which
	// packets are balanced.
	Interface string `json:"interface,omitempty"`
	// Frame begins with the Ethernet header and has no checksum at its end. One for the
	// MAC address 00:00:00:00:00:00 is for the interface, whatever its own is.
	Frame []byte `json:"frame"`
}

// Trace is a data plane's handling of a packet, with reasons. Steps that the packet
// did not reach are missing.
type Trace struct {
	// Exit names the counter that the packet bumps (see Stats.Exits), Verdict
	// the verdict on its frame: pass (to the kernel), drop, transmit (out of the
	// interface that it came in by) or redirect (out of another one).
	Exit    string `json:"exit"`
	Verdict string `json:"verdict"`
	// Client and VIP as looked up; Length of the IP packet in bytes, header
	// included.
	Client netip.AddrPort `json:"client,omitzero"`
	VIP    lb.VIP         `json:"vip,omitzero"`
	Length int            `json:"length,omitempty"`
	// Found says that a service has the VIP.
	Found   bool          `json:"found"`
	Ring    *TraceRing    `json:"ring,omitempty"`
	Flow    *TraceFlow    `json:"flow,omitempty"`
	Backend *TraceBackend `json:"backend,omitempty"`
	// Frame is as it leaves the program.
	Frame []byte `json:"frame,omitempty"`
}

// TraceRing is the packet's entry in the service's ring.
type TraceRing struct {
	// Place is the number of the entry, 0 to Size-1.
	Place int `json:"place"`
	Size  int `json:"size"`
	// Backend is the entry's.
	Backend lb.BackendID `json:"backend"`
	// Unstable marks an entry that changed not long ago, so that its flows are
	// recorded. Previous is the backend of older ones.
	Unstable bool         `json:"unstable"`
	Previous lb.BackendID `json:"previous,omitzero"`
}

// Phase is the state of the packet's flow, as far as the packet shows it.
type Phase string

// The phases.
const (
	PhaseOpen     Phase = "open"     // TCP: an earlier packet opened the connection
	PhaseOpening  Phase = "opening"  // TCP SYN
	PhaseDatagram Phase = "datagram" // UDP: any packet may be the first
)

// TraceFlow is the packet's record in the flow table.
type TraceFlow struct {
	Phase Phase `json:"phase"`
	// Tracked is set if the table was searched, Hit if its record decided.
	Tracked bool `json:"tracked"`
	Hit     bool `json:"hit"`
	// Named is set if the packet itself names its backend, by a QUIC connection
	// ID; then neither the ring nor the table is used.
	Named bool `json:"named"`
	// Client is set if the backend is from the client's earlier flows, which the
	// service remembers.
	Client bool `json:"client,omitempty"`
	// Recorded is the record's backend, if there is one and the backend is still
	// the service's; Age is the time since the flow's last packet.
	Recorded lb.BackendID  `json:"recorded,omitzero"`
	Age      time.Duration `json:"age,omitempty"`
}

// TraceBackend is the backend of a packet, and the path to it.
type TraceBackend struct {
	ID lb.BackendID `json:"id"`
	// NextHop is where the frame is sent: interface, MAC address, VLAN.
	NextHop string `json:"nextHop"`
	// Forward is the mode; Local and Remote are the tunnel's ends, if it has any.
	// Where addresses are translated they are the addresses that the backend sees;
	// without a Local it is the client's own, and relayed packets have neither.
	Forward lb.Forward `json:"forward"`
	Local   netip.Addr `json:"local,omitzero"`
	Remote  netip.Addr `json:"remote,omitzero"`
	// Segment is the network inside the tunnel, if there is one.
	Segment lb.Segment `json:"segment,omitzero"`
	// MTU is the largest IP packet on the path, tunnel header included, in bytes.
	MTU int `json:"mtu"`
}

//go:generate go test -run ^TestExits$ -update

// ExitText returns why packets leave the XDP data plane through an exit, as a
// clause that follows the verdict. An unknown exit is described by its name.
func ExitText(exit string) string {
	if text, ok := exitTexts[exit]; ok {
		return text
	}
	return strings.ReplaceAll(exit, "_", " ")
}
