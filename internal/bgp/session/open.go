// SPDX-License-Identifier: Apache-2.0

package session

import (
	"net/netip"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Open has the contents of a peer's OPEN message (RFC 4271 §4.2).
type Open struct {
	ASN      uint32
	RouterID netip.Addr
	// HoldTime is the peer's proposal.
	HoldTime time.Duration
	// IPv4 and IPv6 are set for the families that it accepts, IPv4OverIPv6 if it
	// accepts IPv4 prefixes with IPv6 next hops (RFC 8950).
	IPv4, IPv6, IPv4OverIPv6 bool
	// GracefulRestart is set if it keeps routes over a restart (RFC 4724). Its own ones are to be kept for RestartTime;
	// over the restart that this OPEN ends it has preserved forwarding in the families of Preserved.
	GracefulRestart bool
	RestartTime     time.Duration
	Preserved       Families

	longASN bool     // ASNs have 32 bits (RFC 6793)
	paths   Families // in which it accepts several paths (RFC 7911)
}

// Families are some of the two address families.
type Families struct{ IPv4, IPv6 bool }

// Has reports whether the family of an address is one of them.
func (f Families) Has(address netip.Addr) bool {
	return address.Is4() && f.IPv4 || address.Is6() && f.IPv6
}

// add adds a family; others than IPv4 and IPv6 unicast are ignored.
func (f *Families) add(family wire.Family) {
	f.IPv4 = f.IPv4 || family == wire.RF_IPv4_UC
	f.IPv6 = f.IPv6 || family == wire.RF_IPv6_UC
}

// The flags of the graceful restart capability (RFC 4724 §3).
const (
	restartState    = 0x8  // of the four bits before the time
	forwardingState = 0x80 // of a family
)

// readOpen reads an OPEN message.
func readOpen(m *wire.BGPOpen) *Open {
	o := &Open{ASN: uint32(m.MyAS), RouterID: m.ID, HoldTime: time.Duration(m.HoldTime) * time.Second}
	multiprotocol, families := false, Families{}
	for _, c := range capabilities(m) {
		switch c := c.(type) {
		case *wire.CapMultiProtocol:
			multiprotocol = true
			families.add(c.CapValue)
		case *wire.CapFourOctetASNumber:
			o.ASN, o.longASN = c.CapValue, true
		case *wire.CapGracefulRestart:
			o.GracefulRestart, o.RestartTime = true, time.Duration(c.Time)*time.Second
			for _, t := range c.Tuples {
				if t.Flags&forwardingState != 0 {
					o.Preserved.add(wire.NewFamily(t.AFI, t.SAFI))
				}
			}
		case *wire.CapExtendedNexthop:
			for _, t := range c.Tuples {
				if t.NLRIAFI == wire.AFI_IP && t.NLRISAFI == uint16(wire.SAFI_UNICAST) && t.NexthopAFI == wire.AFI_IP6 {
					o.IPv4OverIPv6 = true
				}
			}
		case *wire.CapAddPath:
			for _, t := range c.Tuples {
				if t.Mode&wire.BGP_ADD_PATH_RECEIVE != 0 {
					o.paths.add(t.Family)
				}
			}
		}
	}
	o.IPv4, o.IPv6 = families.IPv4 || !multiprotocol, families.IPv6 // RFC 4760 §8: without the capability, IPv4 only
	return o
}

// capabilities returns the capabilities of all optional parameters.
func capabilities(m *wire.BGPOpen) (all []wire.ParameterCapabilityInterface) {
	for _, p := range m.OptParams {
		if p, ok := p.(*wire.OptionParameterCapability); ok {
			all = append(all, p.Capability...)
		}
	}
	return all
}

// asTrans replaces an ASN of 32 bits in a field of 16 (RFC 6793 §9).
const asTrans = 23456

func shortASN(asn uint32) uint16 {
	if asn > 1<<16-1 {
		return asTrans
	}
	return uint16(asn)
}

// open is this side's OPEN. The F bit ("forwarding state preserved") is always set: the kernel forwards packets whatever
// happens to sessions. The R bit is set in the first session after a start.
func (s *Session) open() ([]byte, error) {
	families := []wire.Family{wire.RF_IPv4_UC, wire.RF_IPv6_UC}
	offered := []wire.ParameterCapabilityInterface{wire.NewCapRouteRefresh(), wire.NewCapFourOctetASNumber(s.o.Local.ASN)}
	var paths []*wire.CapAddPathTuple
	var restart []*wire.CapGracefulRestartTuple
	for _, family := range families {
		offered = append(offered, wire.NewCapMultiProtocol(family))
		paths = append(paths, wire.NewCapAddPathTuple(family, wire.BGP_ADD_PATH_SEND))
		restart = append(restart, wire.NewCapGracefulRestartTuple(family, true))
	}
	offered = append(offered, wire.NewCapExtendedNexthop([]*wire.CapExtendedNexthopTuple{
		wire.NewCapExtendedNexthopTuple(wire.RF_IPv4_UC, wire.AFI_IP6)}))
	if s.o.Paths {
		offered = append(offered, wire.NewCapAddPath(paths))
	}
	if t := s.o.Peer.RestartTime; t > 0 {
		offered = append(offered, wire.NewCapGracefulRestart(s.o.Restarted, false, uint16(t/time.Second), restart))
	}
	m, err := wire.NewBGPOpenMessage(shortASN(s.o.Local.ASN), uint16(s.o.Peer.HoldTime/time.Second), s.o.Local.RouterID,
		[]wire.OptionParameterInterface{wire.NewOptionParameterCapability(offered)})
	if err != nil {
		return nil, err
	}
	return m.Serialize()
}
