// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"encoding/binary"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"fairlead.io/fairlead/internal/lb"
)

// Bounds of the services and backends that an import writes: the defaults of
// dataplane.services and dataplane.backends, and the backends of one service.
const (
	maxServices    = 1 << 13
	maxAllBackends = 1 << 17
	maxBackends    = 32767
)

// group is a virtual_server_group.
type group struct {
	*statement
	used bool
}

func (im *importer) addGroup(s *statement) {
	if name := s.word(1); im.groups[name] != nil {
		s.report("virtual_server_group %s: the group on line %d has this name already", name, im.groups[name].Line)
	} else {
		im.groups[name] = &group{statement: s}
	}
}

// target is where packets of a virtual server arrive.
type target struct {
	lb.VIP
	mark uint32
}

// targets returns the VIPs of a virtual server.
func (im *importer) targets(v *virtual) []target {
	switch v.word(1) {
	case "fwmark":
		return im.marked(v.statement, 2, v.ipFamily)
	case "group":
		return im.grouped(v)
	default:
		text, _, _ := strings.Cut(v.word(1), "-")
		text, _, _ = strings.Cut(text, "/")
		return v.addressed(text, 2, v.protocol)
	}
}

// grouped returns the VIPs of a virtual server's group.
func (im *importer) grouped(v *virtual) []target {
	g := im.groups[v.word(2)]
	if g == nil {
		v.report("group %s: there is no such virtual_server_group", v.word(2))
		return nil
	}
	g.used = true
	// Marks of group entries without a family have the virtual server's.
	families := map[family]bool{}
	var unknown []*statement
	var all []target
	for _, entry := range g.body {
		if len(all) > maxServices {
			break // reported when they are added
		}
		if entry.keyword() != "fwmark" {
			more := entry.addressed(entry.keyword(), 1, v.protocol)
			if all = append(all, more...); len(more) > 0 {
				families[familyOf(more[0].Address)] = true
			}
			continue
		}
		switch f := ipFamilies[entry.word(2)]; {
		case f != 0:
			families[f] = true
			all = append(all, im.marked(entry, 1, f)...)
		case entry.word(2) != "":
			entry.report("fwmark %s %s: left out: want inet or inet6", entry.word(1), entry.word(2))
		default:
			unknown = append(unknown, entry)
		}
	}
	f := v.ipFamily
	switch {
	case len(families) == 2 && (f != 0 || len(unknown) > 0), f != 0 && families[10-f]:
		v.report("group %s: left out, as by keepalived: its address families don't match each other, or real servers",
			g.word(1))
		return nil
	case f == 0 && families[6]:
		f = 6
	case f == 0:
		f = 4
	}
	for _, entry := range unknown {
		all = append(all, im.marked(entry, 1, f)...)
	}
	return all
}

// marked returns the VIPs with the firewall mark that is the n-th parameter, and of a family.
func (im *importer) marked(s *statement, n int, f family) []target {
	mark, ok := s.number(n, 1, math.MaxUint32, true)
	if !ok {
		return nil
	}
	im.used[uint32(mark)] = s
	var all []target
	for _, vip := range im.Marks[uint32(mark)] {
		if familyOf(vip.Address) == f {
			im.selected[vip] = true
			all = append(all, target{vip, uint32(mark)})
		}
	}
	if len(all) == 0 {
		s.report("fwmark %d: left out: its IPv%d addresses and ports are in the rules that set the mark: "+
			"repeat them as --mark %d=ADDRESS:PORT/PROTOCOL", mark, f, mark)
	}
	return all
}

// addressed returns the VIPs of an address, or of a range of addresses, and of the port that is
// the n-th parameter. Protocol 0 isn't balanced.
func (s *statement) addressed(address string, n int, protocol lb.Protocol) []target {
	first, last, valid := addressRange(address)
	if !valid {
		s.report("%q: left out: want an address or a range of addresses", address)
		return nil
	}
	port, ok := s.port(n)
	switch {
	case !ok:
		s.report("%s: left out, as by keepalived", address)
	case port == 0:
		s.report("%s: left out: no port stands for all ports, and a service has one", address)
	case protocol == 0:
		s.report("%s port %d: left out: only TCP and UDP are balanced", address, port)
	default:
		var all []target
		for a := first; len(all) <= maxServices; a = a.Next() {
			all = append(all, target{VIP: lb.VIP{Address: a, Port: port, Protocol: protocol}})
			if a == last {
				break
			}
		}
		return all
	}
	return nil
}

// addressRange reads an address, a prefix, or a range whose end is an address or the last part
// of one: "192.0.2.1-10", "192.0.2.1-192.0.3.4", "2001:db8::1-f".
func addressRange(text string) (first, last netip.Addr, valid bool) {
	if strings.Contains(text, "/") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() || prefix.Bits() == 0 {
			return first, last, false
		}
		end := prefix.Addr().AsSlice()
		for bit := prefix.Bits(); bit < len(end)*8; bit++ {
			end[bit/8] |= 0x80 >> (bit % 8)
		}
		last, _ = netip.AddrFromSlice(end)
		return prefix.Addr(), last, true
	}
	from, to, isRange := strings.Cut(text, "-")
	first, err := netip.ParseAddr(from)
	if err != nil || first.Zone() != "" {
		return first, last, false
	}
	switch {
	case !isRange:
		return first, first, true
	case strings.ContainsAny(to, ".:"):
		last, err = netip.ParseAddr(to)
	case first.Is4():
		var low uint64
		low, err = strconv.ParseUint(to, 10, 8)
		end := first.As4()
		valid, end[3] = byte(low) > end[3], byte(low)
		return first, netip.AddrFrom4(end), err == nil && valid
	default:
		var low uint64
		low, err = strconv.ParseUint(to, 16, 16)
		end := first.As16()
		valid = uint16(low) > binary.BigEndian.Uint16(end[14:])
		binary.BigEndian.PutUint16(end[14:], uint16(low))
		return first, netip.AddrFrom16(end), err == nil && valid
	}
	return first, last, err == nil && last.Zone() == "" && last.BitLen() == first.BitLen() && first.Compare(last) <= 0
}
