// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/host/rtnl"
	"fairlead.io/fairlead/internal/lb"
)

// closePorts adds the chain that drops packets to VIPs which no service takes. A VIP is a local address, so
// the node's own programs would answer at its other ports. ICMP passes, and so do answers to the node.
func (t *tables) closePorts(of *table) {
	chain := t.conn.AddChain(&nftables.Chain{
		Table: of.Table, Name: "unserved", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter, // IPVS is later
	})
	in := func(set *nftables.Set, absent bool) *expr.Lookup {
		return &expr.Lookup{SourceRegister: register, SetName: set.Name, SetID: set.ID, Invert: absent}
	}
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	native := func(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
	for _, rule := range [][]expr.Any{
		of.match(of.packet()[:1], in(of.addresses, true), accept),
		{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
			&expr.Cmp{Register: register, Data: []byte{of.icmp()}}, accept,
		},
		{
			&expr.Ct{Key: expr.CtKeySTATE, Register: register},
			&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: native(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED), Xor: native(0)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: native(0)}, accept,
		},
		of.match(of.packet(), in(of.services, false), accept),
		of.match(of.packet()[:1], in(of.addresses, false), &expr.Verdict{Kind: expr.VerdictDrop}),
	} {
		t.conn.AddRule(&nftables.Rule{Table: of.Table, Chain: chain, Exprs: rule})
	}
}

// readClosed reads the addresses whose ports are closed. Tables of earlier agents get the chain.
func (t *tables) readClosed(of *table) error {
	elements, err := t.conn.GetSetElements(of.addresses)
	if errors.Is(err, os.ErrNotExist) {
		if err = t.conn.AddSet(of.addresses, nil); err == nil {
			t.closePorts(of)
			err = t.conn.Flush()
		}
	}
	if err != nil {
		return fmt.Errorf("nftables set %s: %w", of.addresses.Name, err)
	}
	for _, e := range elements {
		if a, ok := netip.AddrFromSlice(e.Key); ok {
			t.closed[a] = true
		}
	}
	return nil
}

// setClosed closes or opens the ports of an address that no service has.
func (t *tables) setClosed(a netip.Addr, closed bool) error {
	if t.closed[a] == closed {
		return nil
	}
	set, element := t.family[familyOf(a)].addresses, []nftables.SetElement{{Key: a.AsSlice()}}
	change := t.conn.SetAddElements
	if !closed {
		change = t.conn.SetDeleteElements
	}
	if err := errors.Join(change(set, element), t.conn.Flush()); err != nil {
		return fmt.Errorf("nftables set %s, %s: %w", set.Name, a, err)
	}
	if t.closed[a] = closed; !closed {
		delete(t.closed, a)
	}
	return nil
}

// closeUnserved closes the ports of a VIP that no service has, unless it is the address of an interface: then
// the node's programs may have them.
func (k *kernel) closeUnserved(vip lb.VIP) error {
	own, err := k.interfaceAddresses()
	if err != nil {
		return err
	}
	return k.tables.setClosed(vip.Address, !own[vip.Address])
}

// interfaceAddresses are the addresses of the node's interfaces.
func (k *kernel) interfaceAddresses() (map[netip.Addr]bool, error) {
	all, err := rtnl.Dump(func() ([]netlink.Addr, error) { return k.rtnetlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("addresses of interfaces: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, a := range all {
		if address, ok := netip.AddrFromSlice(a.IP); ok {
			own[address.Unmap()] = true
		}
	}
	return own, nil
}

// icmp is the number of the family's ICMP.
func (t *table) icmp() byte {
	if t.isIPv4() {
		return unix.IPPROTO_ICMP
	}
	return unix.IPPROTO_ICMPV6
}
