// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"unicode"
)

// FieldError is an error in a field of a service.
type FieldError struct {
	// Path is the field as in a configuration file, relative to the service: for example
	// "backends[2].weight".
	Path string
	Err  error
}

// Error returns for example "backends[2].weight: 300 is out of range: want 0 to 256".
func (e FieldError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns the error without the path.
func (e FieldError) Unwrap() error { return e.Err }

// Check returns all errors that make the service invalid on any data plane. All sources call
// it. dataplane.Limits.Check has the limits of one data plane.
func (s *Service) Check() []FieldError {
	var f findings
	f.add("name", checkName(s.Name))
	f.add("address", CheckAddress(s.Address))
	f.add("port", checkPort(s.Port))
	f.add("protocol", protocolWords.check("protocol", uint8(s.Protocol)))
	f.add("forward", forwardWords.check("forwarding mode", uint8(s.Forward)))
	if s.Unannounced && s.Forward != 0 && s.Forward != DSR && !s.Membership.Self.IsValid() {
		f.add("unannounced", fmt.Errorf("only with dsr: no node forwards packets of %s", s.Forward))
	}
	s.Membership.check(&f, s.Forward)
	if len(s.Balancers) > 0 && s.Forward != 0 && s.Forward != DSR {
		f.add("balancers", fmt.Errorf("only with dsr: want none with %s", s.Forward))
	}
	for i, a := range s.Balancers {
		f.add(fmt.Sprintf("balancers[%d]", i), CheckAddress(a))
	}
	s.checkChoice(&f)
	s.checkTracking(&f)
	s.Segment.check(f.add, "segment")
	switch {
	case s.Segment.Type == SegmentNone:
		f.add("segment.type", errors.New("a service of the untagged network has no segment"))
	case s.Forward.Translates() && s.Segment.Overlay():
		f.add("segment.type", fmt.Errorf("%s serves no clients in %s segments: want vlan, or no segment", s.Forward, s.Segment.Type))
	}
	s.Sources.check(&f, "sources", s.Address)
	s.Limits.check(&f, "limits")
	f.add("minHealthy", checkCount(s.MinHealthy))
	if s.Health != nil {
		s.Health.check(&f, "health", s.Forward)
	}
	s.checkBackends(&f)
	s.checkQUIC(&f)
	return f
}

// CheckAddress returns an error if an address can't be a VIP's or a backend's.
func CheckAddress(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return errors.New("no address")
	case a.Is4In6():
		return fmt.Errorf("%s is an IPv4-mapped IPv6 address: write %s", a, a.Unmap())
	case a.Zone() != "":
		return fmt.Errorf("%s has a zone: want an address without one", a)
	case a.IsUnspecified():
		return fmt.Errorf("%s is the unspecified address: want a unicast address", a)
	case a.IsLoopback():
		return fmt.Errorf("%s is a loopback address: want one that others can reach", a)
	case a.IsMulticast():
		return fmt.Errorf("%s is a multicast address: want a unicast address", a)
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is the broadcast address: want a unicast address", a)
	}
	return nil
}

// OutOfRange returns an error with a number and its bounds.
func OutOfRange(n, low, high any) error {
	return fmt.Errorf("%v is out of range: want %v to %v", n, low, high)
}

// checkRange checks a number against its bounds.
func checkRange[T cmp.Ordered](n, low, high T) error {
	if n < low || n > high {
		return OutOfRange(n, low, high)
	}
	return nil
}

// findings collects field errors.
type findings []FieldError

// add adds err unless it is nil.
func (f *findings) add(path string, err error) {
	if err != nil {
		*f = append(*f, FieldError{Path: path, Err: err})
	}
}

// check returns an error if v has no text.
func (w words) check(kind string, v uint8) error {
	if int(v) < len(w) && w[v] != "" {
		return nil
	}
	return w.read(kind, w.text(v), &v)
}

// maxNameLength leaves room for a Kubernetes namespace, name and port.
const maxNameLength = 400

func checkName(name string) error {
	notPlain := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	switch {
	case name == "":
		return errors.New("no name")
	case len(name) > maxNameLength:
		return fmt.Errorf("%d bytes are too long: want at most %d", len(name), maxNameLength)
	case strings.ContainsFunc(name, notPlain):
		return fmt.Errorf("bad name %q: want printable characters without spaces", name)
	}
	return nil
}

func checkPort(port uint16) error { return checkRange(port, 1, math.MaxUint16) }

// Bounds of segment IDs: IEEE 802.1Q reserves 0 and 4095, RFC 7348 and RFC 8926 have 24
// bits.
const (
	MaxVLAN = 4094
	maxVNI  = 1<<24 - 1
)

func (s Segment) check(add func(path string, err error), path string) {
	switch s.Type {
	case SegmentUnset, SegmentNone:
		if s.ID != 0 {
			add(path+".id", fmt.Errorf("%d names no segment: want none without type vlan, vxlan or geneve", s.ID))
		}
	case SegmentVLAN:
		add(path+".id", checkRange(s.ID, 1, MaxVLAN))
	case SegmentVXLAN, SegmentGeneve:
		add(path+".id", checkRange(s.ID, 1, maxVNI))
	default:
		add(path+".type", segmentWords.check("segment type", uint8(s.Type)))
	}
}
