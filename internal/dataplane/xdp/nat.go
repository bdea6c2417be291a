// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/lb"
)

// NAT says from where flows of services with mode NAT reach their backends.
type NAT struct {
	// Addresses are this node's; of a family without any it is the address that
	// the route to the backend prefers. At most 64 of each family.
	Addresses []netip.Addr
	// FirstPort and LastPort are the range of ports; what is 0 is 1024 and 32767,
	// those below the ports that Linux gives to its own sockets.
	FirstPort, LastPort uint16
}

// The range of ports that a NAT without one has.
const (
	defaultFirstPort = 1024
	defaultLastPort  = 32767
)

// orDefault replaces what is 0.
func (n NAT) orDefault() NAT {
	n.FirstPort, n.LastPort = cmp.Or(n.FirstPort, defaultFirstPort), cmp.Or(n.LastPort, defaultLastPort)
	return n
}

// family returns the addresses of one family.
func (n NAT) family(ipv4 bool) []netip.Addr {
	var of []netip.Addr
	for _, a := range n.Addresses {
		if a.Is4() == ipv4 {
			of = append(of, a)
		}
	}
	return of
}

// natAddresses is NAT_ADDRESSES of bpf/types.h: the table's places for a family.
const natAddresses = 64

// setNATAddresses stores the addresses where programs find them.
func (k *kernel) setNATAddresses() error {
	for first, ipv4 := range map[int]bool{0: true, natAddresses: false} {
		of := k.nat.family(ipv4)
		if len(of) > natAddresses {
			return fmt.Errorf("table nat_addresses: %d addresses of one family: at most %d", len(of), natAddresses)
		}
		for i, a := range of {
			if err := k.maps.NatAddresses.Put(uint32(first+i), a.As16()); err != nil {
				return fmt.Errorf("table nat_addresses: %w", err)
			}
		}
	}
	return nil
}

// set writes the constants of a program.
func (n NAT) set(spec *ebpf.CollectionSpec) error {
	for name, value := range map[string]uint32{
		balancerVarNatFirstPort:     uint32(n.FirstPort),
		balancerVarNatPorts:         uint32(n.LastPort) - uint32(n.FirstPort) + 1,
		balancerVarNatIpv4Addresses: uint32(len(n.family(true))),
		balancerVarNatIpv6Addresses: uint32(len(n.family(false))),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	return nil
}

// establishedIdle is how long an established TCP connection may be silent: two
// hours and four minutes (RFC 5382, REQ-5).
const establishedIdle = 2*time.Hour + 4*time.Minute

// natIdle is how long an established session of the service may be silent, in the
// unit of flow records; 0 in other modes.
func natIdle(svc *lb.Service) uint32 {
	idle := svc.Idle()
	switch {
	case !svc.Forward.Translates():
		return 0
	case svc.IdleTimeout == 0 && svc.Protocol == lb.TCP:
		idle = establishedIdle
	}
	return uint32(idle >> flowTimeShift)
}
