// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// sentAt are datagrams of two flows in turn, of IPv4 and of IPv6, one sent each
// millisecond.
func sentAt(began time.Time, count int) *datagrams {
	flows := []*datagramFlow{
		{target: netip.MustParseAddrPort("10.1.1.1:7")}, {target: netip.MustParseAddrPort("[fd00:10:1:1::1]:7")},
	}
	d := &datagrams{flows: flows}
	for n := range count {
		d.sent = append(d.sent, datagram{at: began.Add(milli(n)), flow: flows[n%2]})
	}
	return d
}

// Datagrams sent in the time are counted, each family for itself: unanswered ones
// are lost, and a flow that another server answers has moved.
func TestCount(t *testing.T) {
	began := time.Now()
	d := sentAt(began, 12)
	for n, server := range []string{0: "a", 1: "a", 2: "a", 3: "b", 4: "", 5: "b", 6: "b", 7: "", 8: "b", 9: "b", 10: "", 11: ""} {
		if server != "" {
			d.take(d.flows[n%2], fmt.Sprintf("%s %d", server, n))
		}
	}
	for _, test := range []struct {
		from, until int
		family      family
		want        counts
	}{
		{0, 11, ipv4, counts{sent: 6, lost: 2, moved: 1}},
		{0, 11, ipv6, counts{sent: 6, lost: 2, moved: 1}},
		{1, 5, ipv4, counts{sent: 2, lost: 1}},
		{4, 9, ipv6, counts{sent: 3, lost: 1}},
		{20, 30, ipv4, counts{}},
	} {
		if got := d.count(began.Add(milli(test.from)), began.Add(milli(test.until)), test.family); got != test.want {
			t.Errorf("%s from %d to %d: %+v, want %+v", test.family, test.from, test.until, got, test.want)
		}
	}
}

// An answer counts once, also one that another has overtaken; answers to no request
// are ignored.
func TestTake(t *testing.T) {
	began := time.Now()
	d := sentAt(began, 6)
	for _, answer := range []string{"a 0", "b 4", "a 2", "a 2", "b 4", "a 99", "a -1", "a", "", "a x"} {
		d.take(d.flows[0], answer)
	}
	got := d.count(began, began.Add(time.Second), ipv4)
	if want := (counts{sent: 3, moved: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
