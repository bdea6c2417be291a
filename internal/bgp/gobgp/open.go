// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"fmt"
	"net/netip"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Open is what a peer said of itself when the session began (RFC 4271 §4.2).
type Open struct {
	ASN      uint32
	RouterID netip.Addr
	// HoldTime is what the peer proposes.
	HoldTime time.Duration
	// IPv4 and IPv6 say which families it takes, IPv4OverIPv6 that it takes IPv4
	// prefixes with IPv6 next hops (RFC 8950).
	IPv4, IPv6, IPv4OverIPv6 bool
	// GracefulRestart says that it keeps routes over a restart (RFC 4724).
	GracefulRestart bool

	longASN bool // it has ASNs of 32 bits (RFC 6793)
}

// The flags of the graceful restart capability (RFC 4724 §3).
const (
	restartState    = 0x8  // of the four bits before the time
	forwardingState = 0x80 // of a family
)

// parse is the library's parser; what makes it fail in ways that it doesn't
// foresee, or panic, is an error.
func parse(message []byte, options *wire.MarshallingOption) (m *wire.BGPMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("malformed message: %v", r)
		}
	}()
	return wire.ParseBGPMessage(message, options)
}

// readOpen reads an OPEN message.
func readOpen(m *wire.BGPOpen) *Open {
	o := &Open{ASN: uint32(m.MyAS), RouterID: m.ID, HoldTime: time.Duration(m.HoldTime) * time.Second}
	multiprotocol := false
	for _, c := range capabilities(m) {
		switch c := c.(type) {
		case *wire.CapMultiProtocol:
			multiprotocol = true
			o.IPv4 = o.IPv4 || c.CapValue == wire.RF_IPv4_UC
			o.IPv6 = o.IPv6 || c.CapValue == wire.RF_IPv6_UC
		case *wire.CapFourOctetASNumber:
			o.ASN, o.longASN = c.CapValue, true
		case *wire.CapGracefulRestart:
			o.GracefulRestart = true
		case *wire.CapExtendedNexthop:
			for _, t := range c.Tuples {
				if t.NLRIAFI == wire.AFI_IP && t.NLRISAFI == uint16(wire.SAFI_UNICAST) && t.NexthopAFI == wire.AFI_IP6 {
					o.IPv4OverIPv6 = true
				}
			}
		}
	}
	if !multiprotocol { // RFC 4760 §8: then it speaks of IPv4 only
		o.IPv4 = true
	}
	return o
}

// capabilities are those of all optional parameters.
func capabilities(m *wire.BGPOpen) (all []wire.ParameterCapabilityInterface) {
	for _, p := range m.OptParams {
		if p, ok := p.(*wire.OptionParameterCapability); ok {
			all = append(all, p.Capability...)
		}
	}
	return all
}

// ownOpen is the library's OPEN message as it is sent. The library ties the F bit
// ("forwarding state preserved") to its own restart and then holds routes back
// until all peers have sent theirs; here the data plane is the kernel's, which
// goes on whatever happens to sessions, and nothing is learnt from peers: so the F
// bit is always set, and the R bit in the first session after a start.
// Nor does the library know a hold time of 0.
func ownOpen(message []byte, restarted, forever bool) ([]byte, error) {
	m, err := parse(message, nil)
	if err != nil {
		return nil, err
	}
	open := m.Body.(*wire.BGPOpen)
	if forever {
		open.HoldTime = 0
	}
	for _, c := range capabilities(open) {
		c, ok := c.(*wire.CapGracefulRestart)
		if !ok {
			continue
		}
		if restarted {
			c.Flags |= restartState
		}
		for _, t := range c.Tuples {
			t.Flags |= forwardingState
		}
	}
	return m.Serialize()
}
