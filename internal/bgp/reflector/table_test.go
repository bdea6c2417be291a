// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
)

// announced is an UPDATE with the first routes of 10.0.0.0/8, whose attributes are large.
func announced(first, number, size int) *session.Update {
	var u session.Update
	for n := range number {
		var address [4]byte
		binary.BigEndian.PutUint32(address[:], 10<<24|uint32(first+n))
		u.Announced = append(u.Announced, session.Announcement{
			Prefixes: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4(address), 32)},
			Learned:  session.Learned{NextHop: netip.MustParseAddr("198.51.100.1"), Size: size},
		})
	}
	return &u
}

// A client's routes are bounded by their number, and by the memory of their attributes. Routes that it has replaced or
// withdrawn don't count.
func TestBounds(t *testing.T) {
	routes := newTable(slog.New(slog.DiscardHandler), &bgp.Reflection{Local: bgp.Local{ASN: 65021}})
	in := routes.add(identity{}, 65021)
	const size = maxAttributes / 100
	withdrawn := &session.Update{}
	for _, a := range announced(0, 50, 0).Announced {
		withdrawn.Withdrawn = append(withdrawn.Withdrawn, a.Prefixes...)
	}
	for i, step := range []struct {
		update *session.Update
		want   session.Notification
	}{
		{announced(0, 100, size), session.Notification{}},
		{announced(0, 100, size), session.Notification{}},
		{announced(100, 1, size), session.OutOfResources},
		{withdrawn, session.Notification{}},
		{announced(200, 49, size), session.Notification{}},
		{announced(0, maxPrefixes, 0), session.Notification{}},
		{announced(maxPrefixes, 1, 0), session.TooManyPrefixes},
	} {
		if got := routes.update(in, step.update); got != step.want {
			t.Errorf("step %d: %q, want %q; %d routes of %d bytes", i, got, step.want, len(in.routes), in.size)
		}
	}
}
