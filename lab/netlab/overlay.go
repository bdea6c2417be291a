// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// Overlay is a VXLAN device (RFC 7348) of a host.
type Overlay struct {
	Name string
	// ID is the segment's network identifier, 1 to 2^24-1.
	ID uint32
	// Local is the host's tunnel end point, one of its own addresses.
	Local netip.Addr
	MAC   lb.MAC
	// MTU of packets in the segment in bytes; 0 means 1500.
	MTU int
	// Addresses are the host's in the segment with the length of their network.
	Addresses []netip.Prefix
	// Members are the tunnel end points to which the host floods frames.
	Members []netip.Addr
	// Stations are hosts of the segment that aren't learned.
	Stations []Station
}

// Station is the tunnel end point of a host in a segment.
type Station struct {
	MAC       lb.MAC
	TunnelEnd netip.Addr
}

// Bridge connects interfaces of a host, which unlike a switch has addresses on it.
type Bridge struct {
	Name string
	// Ports are interfaces of the host.
	Ports []string
	// Addresses are the host's at the bridge with the length of their network.
	Addresses []netip.Prefix
}
