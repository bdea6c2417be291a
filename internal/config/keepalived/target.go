// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
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
		im.report(s, "virtual_server_group %s: the name is already that of the group on line %d", name, im.groups[name].Line)
	} else {
		im.groups[name] = &group{statement: s}
	}
}

// target is where packets of a virtual server arrive.
type target struct {
	lb.VIP
	mark uint32
}

// targets returns the VIPs of a virtual server. Protocol 0 is one that isn't balanced.
func (im *importer) targets(s *statement, protocol lb.Protocol) []target {
	switch s.word(1) {
	case "fwmark":
		return im.marked(s, s.word(2))
	case "group":
	default:
		if strings.ContainsAny(s.word(1), "-/") {
			im.report(s, "%q: left out: a range of addresses has to be in a virtual_server_group", s.word(1))
			return nil
		}
		return im.addressed(s, s.word(1), s.word(2), protocol)
	}
	g := im.groups[s.word(2)]
	if g == nil {
		im.report(s, "group %s: there is no such virtual_server_group", s.word(2))
		return nil
	}
	g.used = true
	var all []target
	for _, entry := range g.body {
		if entry.keyword() == "fwmark" {
			all = append(all, im.marked(entry, entry.word(1))...)
		} else {
			all = append(all, im.addressed(entry, entry.keyword(), entry.word(1), protocol)...)
		}
		if len(all) > maxServices {
			break // reported when they are added
		}
	}
	return all
}

// marked returns the VIPs of a firewall mark.
func (im *importer) marked(s *statement, text string) []target {
	mark, err := strconv.ParseUint(text, 10, 32)
	if err != nil || mark == 0 {
		im.report(s, "fwmark %q: want a number from 1 to 4294967295", text)
		return nil
	}
	im.used[uint32(mark)] = true
	vips := im.Marks[uint32(mark)]
	if len(vips) == 0 {
		im.report(s, "fwmark %d: left out: its addresses and ports are in the rules that set the mark: "+
			"repeat them as --mark %d=ADDRESS:PORT/PROTOCOL", mark, mark)
	}
	all := make([]target, len(vips))
	for i, vip := range vips {
		all[i] = target{vip, uint32(mark)}
	}
	return all
}

// addressed returns the VIPs of an address, or of a range of addresses, and a port.
func (im *importer) addressed(s *statement, address, port string, protocol lb.Protocol) []target {
	first, last, valid := addressRange(address)
	number, err := strconv.ParseUint(port, 10, 16)
	switch {
	case !valid:
		im.report(s, "%q: left out: want an address or a range of addresses", address)
	case port == "" || strings.Trim(port, "0") == "":
		im.report(s, "%s: left out: no port stands for all ports, and a service has one", address)
	case err != nil:
		im.report(s, "%q: left out: want a port from 1 to 65535", port)
	case protocol == 0:
		im.report(s, "%s port %s: left out: only TCP and UDP are balanced", address, port)
	default:
		var all []target
		for a := first; len(all) <= maxServices; a = a.Next() {
			all = append(all, target{VIP: lb.VIP{Address: a, Port: uint16(number), Protocol: protocol}})
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
		if err != nil || prefix != prefix.Masked() {
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
		last, err = netip.ParseAddr(from[:strings.LastIndex(from, ".")+1] + to)
	default:
		var low uint64
		low, err = strconv.ParseUint(to, 16, 16)
		end := first.As16()
		end[14], end[15] = byte(low>>8), byte(low)
		last = netip.AddrFrom16(end)
	}
	return first, last, err == nil && last.Zone() == "" && last.BitLen() == first.BitLen() && first.Compare(last) <= 0
}
