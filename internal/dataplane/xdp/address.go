// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/lb"
)

// place is an address in a segment: what a packet without ports is for.
type place struct {
	address netip.Addr
	segment lb.Segment
}

func placeOf(vip lb.VIP) place { return place{vip.Address, vip.Segment} }

// addressBook holds the VIPs of every address that the program answers for, so
// that a change of one service need not look at all others.
type addressBook map[place]map[lb.VIP]bool

// note takes the VIP in, or out if it has no service any more, and returns the
// VIPs of its address.
func (b addressBook) note(vip lb.VIP, served bool) map[lb.VIP]bool {
	at := placeOf(vip)
	vips := b[at]
	switch {
	case served && vips == nil:
		b[at] = map[lb.VIP]bool{vip: true}
	case served:
		vips[vip] = true
	default:
		delete(vips, vip)
		if len(vips) == 0 {
			delete(b, at)
		}
	}
	return b[at]
}

// showAddress makes the table of addresses say what the services of the VIP's
// address are now. It is idempotent.
func (p *Plane) showAddress(vip lb.VIP) error {
	_, served := p.services[vip]
	vips := p.addresses.note(vip, served)
	key := addressKey(placeOf(vip))
	if len(vips) == 0 {
		if err := p.kernel.maps.Addresses.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("vip %s: address table: %w", vip, err)
		}
		return nil
	}
	var flags balancerAddressFlag
	for other := range vips {
		flags |= p.services[other].addressFlags()
	}
	if err := p.kernel.maps.Addresses.Put(key, uint32(flags)); err != nil {
		return fmt.Errorf("vip %s: address table: %w", vip, err)
	}
	return nil
}

// addressFlags is what the service adds to those of its address.
func (s *service) addressFlags() balancerAddressFlag {
	var flags balancerAddressFlag
	if s.now.flags&uint16(balancerViewFlagVIEW_EMPTY) == 0 {
		flags |= balancerAddressFlagADDRESS_USABLE
	}
	if s.now.flags&uint16(balancerViewFlagVIEW_REJECT) != 0 {
		flags |= balancerAddressFlagADDRESS_REJECT
	}
	if s.now.flags&uint16(balancerViewFlagVIEW_TUNNEL_END) != 0 {
		flags |= balancerAddressFlagADDRESS_TUNNELLED
	}
	return flags
}

// adoptAddresses makes the table fit the adopted services, whatever an earlier
// agent left undone.
func (p *Plane) adoptAddresses() error {
	for vip := range p.services {
		if err := p.showAddress(vip); err != nil {
			return err
		}
	}
	var key balancerAddressKey
	var flags uint32
	var gone []balancerAddressKey
	it := p.kernel.maps.Addresses.Iterate()
	for it.Next(&key, &flags) {
		if p.addresses[placeOfKey(key)] == nil {
			gone = append(gone, key)
		}
	}
	errs := []error{it.Err()}
	for _, key := range gone {
		errs = append(errs, p.kernel.maps.Addresses.Delete(key))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("address table: %w", err)
	}
	return nil
}

// addressKey is a place's key in the program's table.
func addressKey(at place) balancerAddressKey {
	key := vipKey(lb.VIP{Address: at.address, Segment: at.segment})
	return balancerAddressKey{Address: key.Address, SegmentId: key.SegmentId, SegmentType: key.SegmentType}
}

// placeOfKey is the inverse of addressKey.
func placeOfKey(key balancerAddressKey) place {
	return placeOf(vipOf(balancerVipKey{Address: key.Address, SegmentId: key.SegmentId, SegmentType: key.SegmentType}))
}
