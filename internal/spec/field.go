// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"net/netip"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// fields translates the fields of one declaration and collects their errors.
type fields struct {
	// path is before the name of each field.
	path string
	errs *[]lb.FieldError
}

// in returns the fields of a part of the declaration, whose path ends with a dot.
func (f fields) in(path string) fields { return fields{f.path + path, f.errs} }

func (f fields) add(name string, err error) {
	if err != nil {
		*f.errs = append(*f.errs, lb.FieldError{Path: f.path + name, Err: err})
	}
}

// word reads a word of lb; an empty one is the default.
func (f fields) word(name, text string, to encoding.TextUnmarshaler) {
	if text != "" {
		f.add(name, to.UnmarshalText([]byte(text)))
	}
}

// address returns an invalid address for an empty one.
func (f fields) address(name string, text v1alpha1.IPAddress) (a netip.Addr) {
	if text == "" {
		return a
	}
	a, err := netip.ParseAddr(string(text))
	if err != nil {
		f.add(name, fmt.Errorf("bad address %q: want an IPv4 or IPv6 address", text))
	}
	return a
}

// port returns 0 for 0, which lb checks where a port is required.
func (f fields) port(name string, n int32) uint16 {
	if n < 0 || n > math.MaxUint16 {
		f.add(name, lb.OutOfRange(n, 1, math.MaxUint16))
	}
	return uint16(n)
}

func (f fields) segment(name string, s *v1alpha1.Segment) (segment lb.Segment) {
	if s == nil {
		return segment
	}
	f.add(name+".type", segment.Type.UnmarshalText([]byte(s.Type)))
	if s.ID < 0 || s.ID > math.MaxUint32 {
		f.add(name+".id", lb.OutOfRange(s.ID, 0, math.MaxUint32))
	}
	segment.ID = uint32(s.ID)
	return segment
}

// prefixes returns the prefixes as they are written, and an empty list for one.
func (f fields) prefixes(name string, texts []string) []netip.Prefix {
	if texts == nil {
		return nil
	}
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			f.add(fmt.Sprintf("%s[%d]", name, i), fmt.Errorf("bad prefix %q: want for example 10.0.0.0/8 or fd00::/8", text))
		}
		list[i] = p
	}
	return list
}

// listener sets the options of a listener in its service.
func (f fields) listener(o *v1alpha1.ListenerOptions, s *lb.Service) {
	if q := o.QUIC; q != nil {
		s.QUIC = &lb.QUIC{ConfigID: int(q.ConfigID), ServerIDLength: int(q.ServerIDLength), NonceLength: int(q.NonceLength)}
	}
	s.Limits, s.IdleTimeout = Limits(o.Limits), durationOf(o.IdleTimeout)
	f.word("unavailable", o.Unavailable, &s.Unavailable)
}

// pool sets the options of a pool in its service.
func (f fields) pool(o *v1alpha1.PoolOptions, s *lb.Service) {
	s.MinHealthy = cmp.Or(int(o.MinHealthy), 1)
	f.word("scheduler", o.Scheduler, &s.Scheduler)
}

// member translates a member.
func (f fields) member(address v1alpha1.IPAddress, port int32, o *v1alpha1.MemberOptions) lb.Backend {
	b := lb.Backend{
		Address: f.address("address", address), Port: f.port("port", port),
		MonitorAddress: f.address("monitorAddress", o.MonitorAddress), MonitorPort: f.port("monitorPort", o.MonitorPort),
		Weight: 1, Backup: o.Backup, MaxConnections: int(o.MaxConnections),
		Segment: f.segment("segment", o.Segment), TunnelEnd: f.address("tunnelEnd", o.TunnelEnd),
	}
	if o.Weight != nil {
		b.Weight = int(*o.Weight)
	}
	f.word("serverID", o.ServerID, &b.ServerID)
	f.word("mac", o.MAC, &b.MAC)
	return b
}
