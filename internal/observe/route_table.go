// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// WriteRoutes prints announcements and peers for people, who read it at the given
// time.
func WriteRoutes(w io.Writer, r Routes, now time.Time) error {
	if !r.Enabled {
		_, err := fmt.Fprintln(w, "no BGP: the configuration has no bgp section")
		return err
	}
	fmt.Fprintf(w, "%s, router id %s\n\n", r.counts(), r.RouterID)
	err := writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "PREFIX\tSERVICES\tTO\tSINCE\tNEXT HOP\tATTRIBUTES\tWITHDRAWALS\tSTATUS")
		for _, a := range r.Announcements {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", a.Prefix, a.cause(), few(a.Peers), since(a.Since, now),
				nextHop(a), orDash(strings.Join(a.Attributes, ", ")), a.Withdrawals, a.Condition())
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	return WritePeers(w, r.Peers, now)
}

// WritePeers prints peers for people, who read it at the given time.
func WritePeers(w io.Writer, peers []bgp.PeerState, now time.Time) error {
	return writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "PEER\tAS\tROUTER ID\tSINCE\tFLAPS\tBFD\tMESSAGES IN/OUT\tUPDATES IN/OUT\tROUTES IN/OUT\tSTATUS")
		for _, p := range peers {
			router := ""
			if p.RouterID.IsValid() {
				router = p.RouterID.String()
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t%s\t%d/%d\t%d/%d\t%d/%d\t%s\n", p.Address, p.ASN, orDash(router), since(p.Since, now), p.Flaps,
				watched(p), p.MessagesReceived, p.MessagesSent, p.UpdatesReceived, p.UpdatesSent,
				p.RoutesReceived, p.RoutesAnnounced, condition(p, now))
		}
	})
}

// condition says in a few words how a peer's session is.
func condition(p bgp.PeerState, now time.Time) string {
	text := string(p.State)
	if p.Reason != "" {
		text += ": " + oneLine(p.Reason)
	}
	if left := p.NextTry.Sub(now); left > 0 {
		text += fmt.Sprintf(", next try in %s", left.Round(100*time.Millisecond))
	}
	if p.OmittedRoutes > 0 {
		text += fmt.Sprintf(", not told of %s: %s", counted(p.OmittedRoutes, "route", "routes"), oneLine(p.OmittedReason))
	}
	return text
}

// watched says how a peer's BFD session is.
func watched(p bgp.PeerState) string {
	text := string(p.BFD)
	if p.BFDReason != "" {
		text += ": " + oneLine(p.BFDReason)
	}
	if p.BFDFlaps > 0 {
		text += fmt.Sprintf(" (flaps: %d)", p.BFDFlaps)
	}
	return orDash(text)
}

// nextHop is for people.
func nextHop(a Announcement) string {
	if !a.NextHop.IsValid() {
		return "self"
	}
	return a.NextHop.String()
}

// few names the first of a list, and says how many more there are.
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

// orDash is the text of a cell, which is never empty.
func orDash(text string) string { return cmp.Or(text, "-") }

// cause is what a prefix is announced for: services, or the clients of a
// reflector.
func (a Announcement) cause() string {
	if len(a.From) > 0 {
		return "from " + few(a.From)
	}
	return few(a.Services)
}
