// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// tableName is the name of the nftables tables, one for each family.
const tableName = "fairlead-ipvs"

// entry is a service's state in the tables. Every VIP whose IPVS service is Fairlead's
// has one, from before the IPVS service exists until after it doesn't.
type entry struct {
	// mark is the firewall mark of the service's packets; 0 is none.
	mark uint32
	// masquerade has backends see an address of this node as the client's.
	masquerade bool
	// silent discards the ICMP errors of IPVS for a service without a usable backend.
	silent bool
}

// table is the nftables table of one family, with its sets, whose keys are address,
// protocol and port.
type table struct {
	*nftables.Table
	services, masquerade, silent *nftables.Set
	marks                        *nftables.Set // a map
	// addresses are VIPs whose other ports are closed.
	addresses *nftables.Set
	// settings are the earlier values of sysctls by their numbers; in the IPv4 table only.
	settings *nftables.Set
}

// tables are the nftables tables of both families. They exist as long as a service
// does.
type tables struct {
	conn   *nftables.Conn
	family map[uint16]*table
	// closed are the addresses of both families.
	closed map[netip.Addr]bool
}

// openTables opens the tables of the calling thread's network namespace, which may not
// exist.
func openTables() (tables, error) {
	c, err := nftables.New()
	if err != nil {
		return tables{}, fmt.Errorf("nftables: %w", err)
	}
	switch _, err := c.ListTables(); {
	case errors.Is(err, os.ErrPermission):
		return tables{}, fmt.Errorf("nftables: %w", err)
	case err != nil:
		return tables{}, &MissingError{Module: "nf_tables", Err: err}
	}
	return tables{conn: c, closed: map[netip.Addr]bool{}, family: map[uint16]*table{
		unix.AF_INET:  newTable(nftables.TableFamilyIPv4, nftables.TypeIPAddr),
		unix.AF_INET6: newTable(nftables.TableFamilyIPv6, nftables.TypeIP6Addr),
	}}, nil
}

func newTable(family nftables.TableFamily, address nftables.SetDatatype) *table {
	t := &table{Table: &nftables.Table{Name: tableName, Family: family}}
	key := nftables.MustConcatSetType(address, nftables.TypeInetProto, nftables.TypeInetService)
	set := func(name string) *nftables.Set {
		return &nftables.Set{Table: t.Table, Name: name, KeyType: key, Concatenation: true}
	}
	t.services, t.masquerade, t.silent, t.marks = set("services"), set("masquerade"), set("silent"), set("marks")
	t.marks.IsMap, t.marks.DataType = true, nftables.TypeMark
	t.addresses = &nftables.Set{Table: t.Table, Name: "addresses", KeyType: address}
	t.settings = &nftables.Set{
		Table: t.Table, Name: "settings", Comment: "earlier values of sysctls",
		IsMap: true, KeyType: nftables.TypeMark, DataType: nftables.TypeMark,
	}
	return t
}

// read returns the entries; none if there are no tables.
func (t *tables) read() (map[lb.VIP]entry, error) {
	entries := map[lb.VIP]entry{}
	present, err := t.present()
	if err != nil {
		return nil, err
	}
	for _, family := range present {
		if err := t.readClosed(family); err != nil {
			return nil, err
		}
		for _, set := range []*nftables.Set{family.services, family.masquerade, family.silent, family.marks} {
			elements, err := t.conn.GetSetElements(set)
			if err != nil {
				return nil, fmt.Errorf("nftables set %s: %w", set.Name, err)
			}
			for _, e := range elements {
				vip := vipOf(e.Key)
				one := entries[vip]
				switch set {
				case family.masquerade:
					one.masquerade = true
				case family.silent:
					one.silent = true
				case family.marks:
					one.mark = binary.NativeEndian.Uint32(e.Val)
				}
				entries[vip] = one
			}
		}
	}
	return entries, nil
}

// present are the tables that exist.
func (t *tables) present() ([]*table, error) {
	all, err := t.conn.ListTables()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	var present []*table
	for _, family := range t.family {
		if slices.ContainsFunc(all, func(o *nftables.Table) bool { return o.Name == tableName && o.Family == family.Family }) {
			present = append(present, family)
		}
	}
	return present, nil
}

// change replaces entries: before is the present entry, after the wanted one; a VIP in
// neither has none. It is one transaction.
func (t *tables) change(vip lb.VIP, before, after *entry) error {
	family := t.family[familyOf(vip.Address)]
	had, wants := pointed(before), pointed(after)
	var errs []error
	put := func(set *nftables.Set, had, wants bool, e nftables.SetElement) {
		switch {
		case had && !wants:
			errs = append(errs, t.conn.SetDeleteElements(set, []nftables.SetElement{{Key: e.Key}}))
		case wants && !had:
			errs = append(errs, t.conn.SetAddElements(set, []nftables.SetElement{e}))
		}
	}
	key := nftables.SetElement{Key: keyOf(vip)}
	put(family.services, before != nil, after != nil, key)
	put(family.masquerade, had.masquerade, wants.masquerade, key)
	put(family.silent, had.silent, wants.silent, key)
	if had.mark != wants.mark {
		put(family.marks, had.mark != 0, false, key)
		put(family.marks, false, wants.mark != 0, nftables.SetElement{Key: key.Key, Val: binary.NativeEndian.AppendUint32(nil, wants.mark)})
	}
	if err := errors.Join(append(errs, t.conn.Flush())...); err != nil {
		return fmt.Errorf("nftables sets of %s: %w", vip, err)
	}
	return nil
}

func pointed(e *entry) entry {
	if e == nil {
		return entry{}
	}
	return *e
}

// ensure creates the tables unless they exist. It reports whether they did: another program may
// have flushed the ruleset.
func (t *tables) ensure() (existed bool, err error) {
	present, err := t.present()
	if err != nil {
		return false, err
	}
	for _, family := range t.family {
		if slices.Contains(present, family) {
			continue
		}
		if err := t.create(family); err != nil {
			return false, err
		}
	}
	return len(present) == len(t.family), nil
}

// create makes a table in one transaction.
func (t *tables) create(of *table) error {
	t.conn.AddTable(of.Table)
	sets := []*nftables.Set{of.services, of.masquerade, of.silent, of.marks, of.addresses}
	if of.Family == nftables.TableFamilyIPv4 {
		sets = append(sets, of.settings)
	}
	for _, set := range sets {
		if err := t.conn.AddSet(set, nil); err != nil {
			return fmt.Errorf("nftables set %s: %w", set.Name, err)
		}
	}
	mark := of.match(of.packet(), &expr.Lookup{SourceRegister: register, DestRegister: register, IsDestRegSet: true, SetName: of.marks.Name, SetID: of.marks.ID},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register})
	lookup := func(set *nftables.Set) *expr.Lookup {
		return &expr.Lookup{SourceRegister: register, SetName: set.Name, SetID: set.ID}
	}
	for _, chain := range []struct {
		nftables.Chain
		rule []expr.Any
	}{
		{nftables.Chain{Name: "prerouting", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle}, mark},
		{nftables.Chain{Name: "output", Type: nftables.ChainTypeRoute, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityMangle}, mark},
		{
			nftables.Chain{Name: "postrouting", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource},
			of.match(of.connection(), lookup(of.masquerade), &expr.Masq{}),
		},
		{
			nftables.Chain{Name: "errors", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter},
			of.match(of.unreachable(), lookup(of.silent), &expr.Verdict{Kind: expr.VerdictDrop}),
		},
	} {
		chain.Table = of.Table
		t.conn.AddChain(&chain.Chain)
		t.conn.AddRule(&nftables.Rule{Table: of.Table, Chain: &chain.Chain, Exprs: chain.rule})
	}
	t.closePorts(of)
	if err := t.conn.Flush(); errors.Is(err, os.ErrNotExist) {
		return &MissingError{Module: "nft_chain_nat, nft_ct or nft_masq", Err: err}
	} else if err != nil {
		return fmt.Errorf("nftables table %s: %w", tableName, err)
	}
	return nil
}

// delete deletes the tables, if they exist.
func (t *tables) delete() error {
	present, err := t.present()
	if err != nil {
		return err
	}
	for _, family := range present {
		t.conn.DelTable(family.Table)
	}
	return t.conn.Flush()
}

// keyOf is a set's key: each part begins at a multiple of four bytes.
func keyOf(vip lb.VIP) []byte {
	key := append(vip.Address.AsSlice(), byte(vip.Protocol), 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(key, vip.Port), 0, 0)
}

func vipOf(key []byte) lb.VIP {
	n := len(key) - 8
	address, _ := netip.AddrFromSlice(key[:n])
	return lb.VIP{Address: address, Protocol: lb.Protocol(key[n]), Port: binary.BigEndian.Uint16(key[n+4:])}
}
