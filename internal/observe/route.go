// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
)

// RouteSummary summarises Routes.
type RouteSummary struct {
	// Enabled is set if the configuration has a BGP section, or a hook.
	Enabled bool   `json:"enabled"`
	ASN     uint32 `json:"asn,omitempty"`
	// Hook is nil with BGP.
	Hook *RouteHook `json:"hook,omitempty"`
	// Peers counts the peers that are configured or connected by themselves, also without a session.
	Peers int `json:"peers"`
	v1alpha1.RouteCounts
}

// Routes are the announcements of the node, and its peers.
type Routes struct {
	// Enabled is set if the configuration has a BGP section, or a hook; all else is zero or
	// empty without one.
	Enabled  bool       `json:"enabled"`
	ASN      uint32     `json:"asn,omitempty"`
	RouterID netip.Addr `json:"routerID,omitzero"`
	// Announcements are sorted by prefix, Peers by address.
	Announcements []Announcement  `json:"announcements"`
	Peers         []bgp.PeerState `json:"peers"`
	// Hook is nil with BGP; there are no peers otherwise.
	Hook *RouteHook `json:"hook,omitempty"`
}

// Announcement is a prefix that is announced, or would be.
type Announcement struct {
	Prefix netip.Prefix `json:"prefix"`
	// Services are the names of those that the prefix is announced for.
	Services []string `json:"services"`
	// From are the clients that announce it to a route reflector, of which each next
	// hop of a prefix is an announcement; an agent has none.
	From []netip.Addr `json:"from,omitempty"`
	// Announced is set if the prefix is announced, Since is when this last changed; Peers have
	// an established session and get the prefix.
	Announced bool         `json:"announced"`
	Since     time.Time    `json:"since,omitzero"`
	Peers     []netip.Addr `json:"peers"`
	// Reason is why it is not announced, or soon will not be: "web: not programmed
	// yet", "web: 0 of 3 backends healthy, 1 wanted", "node drained", "damped for
	// 4s".
	Reason string `json:"reason,omitempty"`
	// GracefulShutdown is set if the route carries GRACEFUL_SHUTDOWN (RFC 8326).
	GracefulShutdown bool `json:"gracefulShutdown,omitempty"`
	// NextHop is the given one; the zero Addr is the node's own.
	NextHop netip.Addr `json:"nextHop,omitzero"`
	// Attributes are in words: "65021:100", "local-pref 200", "med 10", "prepend 2".
	Attributes []string `json:"attributes"`
	// Withdrawals counts how often it was withdrawn.
	Withdrawals uint64 `json:"withdrawals"`
	// Hook is empty with BGP. "done" says that the hook has added or removed the route as it
	// is wanted, "pending" that it is about to; else it begins with "fails: ".
	Hook string `json:"hook,omitempty"`
}

// complete replaces nil lists by empty ones, for JSON.
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

// listed is the list, or an empty one instead of nil.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// summary summarises the routes.
func (r Routes) summary() RouteSummary {
	s := RouteSummary{Enabled: r.Enabled, ASN: r.ASN, Hook: r.Hook, Peers: len(r.Peers)}
	for i := range r.Peers {
		s.Sessions += one(r.Peers[i].State == bgp.Established)
	}
	for i := range r.Announcements {
		s.Announced += one(r.Announcements[i].Announced)
		s.Leaving += one(r.Announcements[i].Announced && r.Announcements[i].GracefulShutdown)
	}
	s.Withheld = int32(len(r.Announcements)) - s.Announced
	return s
}

// String is one line of text.
func (s RouteSummary) String() string {
	routes := fmt.Sprintf("%d of %d routes announced", s.Announced, s.Announced+s.Withheld)
	if s.Hook != nil {
		return fmt.Sprintf("%s, %s", routes, s.Hook)
	}
	return fmt.Sprintf("AS %d, %d of %d peers established, %s", s.ASN, s.Sessions, s.Peers, routes)
}

// label is the name of the summary in a status.
func (s RouteSummary) label() string {
	if s.Hook != nil {
		return "routes"
	}
	return "bgp"
}

// Condition is the state of the announcement in a few words.
func (a Announcement) Condition() string {
	switch {
	case a.Hook != "" && a.Hook != hookDone && a.Announced:
		return "hook " + a.Hook
	case a.Hook != "" && a.Hook != hookDone:
		return fmt.Sprintf("hook %s; not announced: %s", a.Hook, oneLine(a.Reason))
	case a.Announced && a.GracefulShutdown:
		return "leaving: " + oneLine(cmp.Or(a.Reason, "routers prefer other routes"))
	case a.Announced && a.Hook == "" && len(a.Peers) == 0:
		return "no peer: no session is established"
	case a.Announced:
		return "announced"
	default:
		return "not announced: " + oneLine(a.Reason)
	}
}

// FormatRoutes is a table of announcements and one of peers, as they are at a time.
func FormatRoutes(r Routes, now time.Time) string {
	if !r.Enabled {
		return "no routes: the configuration has neither bgp nor routes.hook\n"
	}
	announcements := table(func(t io.Writer) {
		fmt.Fprintln(t, "PREFIX\tSERVICES\tTO\tSINCE\tNEXT HOP\tATTRIBUTES\tWITHDRAWALS\tSTATUS")
		for _, a := range r.Announcements {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", a.Prefix, a.cause(), few(a.Peers), since(a.Since, now),
				nextHop(a), orDash(strings.Join(a.Attributes, ", ")), a.Withdrawals, a.Condition())
		}
	})
	if r.Hook != nil {
		return fmt.Sprintf("%s\n\n%s", r.summary(), announcements)
	}
	peers := table(func(t io.Writer) {
		fmt.Fprintln(t, "PEER\tAS\tROUTER ID\tSINCE\tFLAPS\tBFD\tMESSAGES IN/OUT\tUPDATES IN/OUT\tROUTES IN/OUT\tSTATUS")
		for _, p := range r.Peers {
			router := ""
			if p.RouterID.IsValid() {
				router = p.RouterID.String()
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t%s\t%d/%d\t%d/%d\t%d/%d\t%s\n", p.Address, p.ASN, orDash(router), since(p.Since, now), p.Flaps,
				bfdCondition(p), p.MessagesReceived, p.MessagesSent, p.UpdatesReceived, p.UpdatesSent,
				p.RoutesReceived, p.RoutesAnnounced, condition(p, now))
		}
	})
	return fmt.Sprintf("%s, router id %s\n\n%s\n%s", r.summary(), r.RouterID, announcements, peers)
}

// condition is the state of a peer's session in a few words.
func condition(p bgp.PeerState, now time.Time) string {
	text := string(p.State)
	if p.Reason != "" {
		text += ": " + oneLine(p.Reason)
	}
	if left := p.NextTry.Sub(now); left > 0 {
		text += fmt.Sprintf(", next try in %s", left.Round(100*time.Millisecond))
	}
	if p.OmittedRoutes > 0 {
		text += fmt.Sprintf(", %s not announced: %s", counted(p.OmittedRoutes, "route", "routes"), oneLine(p.OmittedReason))
	}
	return text
}

// bfdCondition is the state of a peer's BFD session.
func bfdCondition(p bgp.PeerState) string {
	text := string(p.BFD)
	if p.BFDReason != "" {
		text += ": " + oneLine(p.BFDReason)
	}
	if p.BFDFlaps > 0 {
		text += fmt.Sprintf(" (flaps: %d)", p.BFDFlaps)
	}
	return orDash(text)
}

// nextHop is "self" where none is configured.
func nextHop(a Announcement) string {
	if !a.NextHop.IsValid() {
		return "self"
	}
	return a.NextHop.String()
}

// few lists the first elements, and counts the rest.
func few[T any](list []T) string {
	const most = 3
	var words []string
	for _, element := range list[:min(len(list), most)] {
		words = append(words, fmt.Sprint(element))
	}
	if more := len(list) - most; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return orDash(strings.Join(words, ", "))
}

// since writes how long something has been so, in full seconds.
func since(then, now time.Time) string {
	if then.IsZero() {
		return orDash("")
	}
	return age(then, now).String()
}

// orDash is the text of a cell.
func orDash(text string) string { return cmp.Or(text, "-") }

// cause is the reason for an announcement: services, or clients of a reflector.
func (a Announcement) cause() string {
	if len(a.From) > 0 {
		return "from " + few(a.From)
	}
	return few(a.Services)
}

// Established returns the addresses of the peers with a session, without the clients of a reflector.
func Established(peers []bgp.PeerState) (addresses []netip.Addr) {
	for _, p := range peers {
		if !p.Dynamic && p.State == bgp.Established {
			addresses = append(addresses, p.Address)
		}
	}
	return addresses
}

// Attributes describes a route's attributes in words.
func Attributes(a *bgp.Attributes) (texts []string) {
	for _, c := range a.Communities {
		texts = append(texts, c.String())
	}
	for _, c := range a.LargeCommunities {
		texts = append(texts, c.String())
	}
	if a.LocalPreference != nil {
		texts = append(texts, fmt.Sprintf("local-pref %d", *a.LocalPreference))
	}
	if a.MED != nil {
		texts = append(texts, fmt.Sprintf("med %d", *a.MED))
	}
	if a.Prepend > 0 {
		texts = append(texts, fmt.Sprintf("prepend %d", a.Prepend))
	}
	if a.LinkBandwidth > 0 {
		texts = append(texts, fmt.Sprintf("bandwidth %s", bitsPerSecond(float64(a.LinkBandwidth)*8)))
	}
	return texts
}

// bitsPerSecond is a bandwidth as the configuration has it: "10G".
func bitsPerSecond(bits float64) string {
	prefixes := []string{"", "k", "M", "G", "T"}
	for len(prefixes) > 1 && bits >= 1000 {
		bits, prefixes = bits/1000, prefixes[1:]
	}
	return fmt.Sprintf("%.4g%s", bits, prefixes[0])
}
