// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"net/netip"
)

// FieldError is one thing that is wrong with a service.
type FieldError struct {
	// Path names the field as a configuration file does, seen from the service:
	// for example "backends[2].weight".
	Path string
	Err  error
}

// Error returns for example "backends[2].weight: 300 is out of range: want 0 to 256".
func (e FieldError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns what is wrong with the field.
func (e FieldError) Unwrap() error { return e.Err }

// Check returns everything that makes the service impossible to balance on any
// data plane; none means that it is sound. Every source asks it, so that a
// service means the same wherever it comes from; what one particular data plane
// can't do is said by dataplane.Limits.Check.
func (s *Service) Check() []FieldError {
	var f findings
	f.add("name", checkName(s.Name))
	f.add("address", CheckAddress(s.Address))
	f.add("port", checkPort(s.Port))
	f.add("protocol", protocolWords.check("protocol", uint8(s.Protocol)))
	f.add("forward", forwardWords.check("forwarding mode", uint8(s.Forward)))
	if s.Unannounced && s.Forward != 0 && s.Forward != DNAT && !s.Membership.Self.IsValid() {
		f.add("unannounced", fmt.Errorf("only with dnat: nobody relays packets of %s", s.Forward))
	}
	s.Membership.check(&f, s.Forward)
	f.add("affinity", affinityWords.check("affinity", uint8(s.Affinity)))
	f.add("affinityTimeout", s.checkAffinityTimeout())
	f.add("unavailable", unavailableWords.check("policy", uint8(s.Unavailable)))
	s.checkTracking(&f)
	s.Segment.check(&f, "segment")
	switch {
	case s.Segment.Type == SegmentNone:
		f.add("segment.type", errors.New("a service of the untagged network has no segment"))
	case s.Forward.Translates() && s.Segment.Overlay():
		f.add("segment.type", fmt.Errorf("%s serves no clients in %s segments: want vlan, or no segment", s.Forward, s.Segment.Type))
	}
	s.Sources.check(&f, "sources", s.Address)
	s.Limits.check(&f, "limits")
	f.add("minHealthy", s.checkMinHealthy())
	if s.Health != nil {
		s.Health.check(&f, "health", s.Forward)
	}
	s.checkBackends(&f)
	s.checkQUIC(&f)
	return f
}

// CheckAddress says why an address can't be a VIP or a backend; nil if it can.
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

// OutOfRange says that a number is not within its bounds, in the words that
// every source uses.
func OutOfRange(n, low, high any) error {
	return fmt.Errorf("%v is out of range: want %v to %v", n, low, high)
}

// findings gathers field errors in the order in which fields are looked at.
type findings []FieldError

// add takes note of err, which may be nil.
func (f *findings) add(path string, err error) {
	if err != nil {
		*f = append(*f, FieldError{Path: path, Err: err})
	}
}

// check returns an error if v is not a value that has a word.
func (w words) check(kind string, v uint8) error {
	if int(v) < len(w) && w[v] != "" {
		return nil
	}
	_, err := w.parse(kind, w.text(v))
	return err
}
