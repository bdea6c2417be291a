// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
)

// firstVNI is the identifier of the first segment of every topology.
const firstVNI = 5001

// vx0 is a host's device in its tenant's segment.
const vx0 = "vx0"

// overlayNetwork is a site's network beyond its router if that is a VXLAN
// segment, which the service network carries.
type overlayNetwork struct {
	id uint32
	// family is that of the tunnels' ends: 0 is IPv4, 1 is IPv6.
	family int
	// tenant and servers number the site's router and servers in the network
	// that carries them all: 0 and 0 for the first site.
	tenant, servers int
}

// overlayMAC numbers the hosts of a segment.
func overlayMAC(id uint32, number int) lb.MAC {
	return lb.MAC{0x02, 1, byte(id >> 8), byte(id), serverNumber, byte(number)}
}

// routerEnd and serverEnd are numbers in the service network.
func (o *overlayNetwork) routerEnd() int      { return routerNumber + o.tenant }
func (o *overlayNetwork) serverEnd(n int) int { return serverNumber + o.servers + n }

// end is the tunnel end point of a host with that number.
func (o *overlayNetwork) end(number int) netip.Addr {
	return addresses(serviceNetwork, number)[o.family]
}

// mtu is how large a packet of the segment may be where frames of it are carried
// by packets of at most carrier bytes (RFC 7348, section 5, and the headers in
// front of UDP), and no larger than elsewhere.
func (o *overlayNetwork) mtu(carrier int) int {
	headers := []int{50, 70}[o.family]
	return min(carrier-headers, defaultMTU)
}

// routerDevice is the router's place in its tenant's segment. The balancers say
// nothing there: the router knows where they are.
func (s *site) routerDevice() Overlay {
	o := s.overlay
	device := Overlay{
		Name: vx0, ID: o.id, Local: o.end(o.routerEnd()), MAC: overlayMAC(o.id, 0), MTU: o.mtu(s.mtu),
		Addresses: networkAddresses(tenantNetwork, routerNumber),
	}
	for n := range s.servers {
		device.Members = append(device.Members, o.end(o.serverEnd(n+1)))
	}
	for n := range s.balancers {
		device.Stations = append(device.Stations, Station{balancerMAC(n + 1), o.end(balancerNumber + n + 1)})
	}
	return device
}

// serverDevices are the nth server's places in segments: in its tenant's; or,
// where the client's packets come from no segment but balancers send them into
// one, one that takes them from tunnels of each family.
func (s *site) serverDevices(n int) []Overlay {
	switch o := s.overlay; {
	case o != nil:
		return []Overlay{{
			Name: vx0, ID: o.id, Local: o.end(o.serverEnd(n)), MAC: overlayMAC(o.id, n), MTU: o.mtu(s.mtu),
			Addresses: networkAddresses(tenantNetwork, serverNumber+n),
			Members:   []netip.Addr{o.end(o.routerEnd())},
		}}
	case s.forward == lb.VXLAN:
		var devices []Overlay
		for family, name := range []string{"vx4", "vx6"} {
			devices = append(devices, Overlay{
				Name: name, ID: firstVNI, Local: addresses(serviceNetwork, serverNumber+n)[family], MAC: overlayMAC(firstVNI, n),
			})
		}
		return devices
	default:
		return nil
	}
}

// behindTunnel fills in how a backend is reached in its segment. The end of a
// Geneve segment has no device, so what it opens is for the interface.
func (s *site) behindTunnel(b *lb.Backend, n int) {
	if s.overlay != nil {
		b.TunnelEnd, b.MAC = s.overlay.end(s.overlay.serverEnd(n)), overlayMAC(s.overlay.id, n)
		return
	}
	b.TunnelEnd, b.MAC = b.Address, overlayMAC(firstVNI, n)
	if s.forward == lb.Geneve {
		b.MAC = s.mac(n)
	}
	b.Segment = lb.Segment{Type: s.forward.Overlay(), ID: firstVNI}
}
