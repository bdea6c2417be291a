// SPDX-License-Identifier: Apache-2.0

package file

import (
	"errors"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// sources says which clients may use a service. This version enforces nothing
// of that, so that only what lets everybody in is accepted.
type sources struct {
	allow, deny []netip.Prefix // nil if not given
}

func (s *sources) read(v value) {
	v.readFields(
		optional("allow", list(&s.allow, prefix)),
		optional("deny", list(&s.deny, prefix)),
	)
}

// check fails closed: whoever writes a restriction relies on it.
func (s *sources) check(vip netip.Addr) []lb.FieldError {
	refused := errors.New("not enforced by this version: refused rather than letting everybody in")
	var found []lb.FieldError
	everybody := netip.PrefixFrom(vip, 0).Masked()
	if s.allow != nil && vip.IsValid() && !slices.Contains(s.allow, everybody) {
		found = append(found, lb.FieldError{Path: "sources.allow", Err: refused})
	}
	if len(s.deny) > 0 {
		found = append(found, lb.FieldError{Path: "sources.deny", Err: refused})
	}
	return found
}
