// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/bgp"
)

// routes is what the agent tells of its routes.
func (a *Agent) routes() Routes { return a.Routes().complete() }

// complete has no list missing: in JSON there is [] where there is nothing.
func (r Routes) complete() Routes {
	r.Peers = listed(r.Peers)
	r.Announcements = listed(slices.Clone(r.Announcements))
	for i := range r.Announcements {
		announced := &r.Announcements[i]
		announced.Services = listed(announced.Services)
		announced.Peers = listed(announced.Peers)
		announced.Attributes = listed(announced.Attributes)
	}
	return r
}

// listed is the list, and empty instead of nil.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// counts sums up the routes.
func (r Routes) counts() RouteCounts {
	c := RouteCounts{Enabled: r.Enabled, ASN: r.ASN, Peers: len(r.Peers), Routes: len(r.Announcements)}
	for _, p := range r.Peers {
		c.Established += one(p.State == bgp.Established)
	}
	for _, a := range r.Announcements {
		c.Announced += one(a.Announced)
	}
	return c
}

// String is one line for people.
func (c RouteCounts) String() string {
	return fmt.Sprintf("AS %d, %d of %d peers established, %d of %d routes announced",
		c.ASN, c.Established, c.Peers, c.Announced, c.Routes)
}

// Condition says in a few words how the announcement is.
func (a Announcement) Condition() string {
	switch {
	case a.Announced && a.GracefulShutdown:
		return "leaving: " + oneLine(cmp.Or(a.Reason, "peers are asked to prefer other routes"))
	case a.Announced && len(a.Peers) == 0:
		return "no peer: no session is established"
	case a.Announced:
		return "announced"
	default:
		return "not announced: " + oneLine(a.Reason)
	}
}
