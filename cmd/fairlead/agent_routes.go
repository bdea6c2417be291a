// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/announce"
	"fairlead.io/fairlead/internal/bgp/speaker"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source/file"
)

// routeSpeaker announces the node's VIPs to its peers.
type routeSpeaker interface {
	announce.Speaker
	// Peers are sorted by address.
	Peers() []bgp.PeerState
	// Close ends all sessions so that peers forget the routes, Abandon so that those
	// with graceful restart keep them for the next agent. After the one the other does
	// nothing.
	Close(ctx context.Context) error
	Abandon()
}

// openSpeaker makes the speaker that a configuration asks for, if any.
func openSpeaker(config *bgp.Config, log *slog.Logger) routeSpeaker {
	if config == nil {
		return nil
	}
	return speaker.Open(config.Local, log)
}

// newAnnouncer makes what the speaker says follow what the agent serves; nil
// without a speaker.
func (a *agent) newAnnouncer() *announce.Announcer {
	if a.speaker == nil {
		return nil
	}
	return announce.New(announce.Config{
		BGP: a.source.Config().BGP, Desired: a.store, Programmed: a.reconciler.Watch,
		Speaker: a.speaker, Tell: a.tell, Log: a.log,
	})
}

// announce lets the announcer work until ctx ends. Routes that were not withdrawn
// by then are the next agent's.
func (a *agent) announce(ctx context.Context) {
	if a.announcer != nil {
		a.announcer.Run(ctx)
		a.speaker.Abandon()
	}
}

// configureRoutes takes over peers and policies.
func (a *agent) configureRoutes(config *file.Config) {
	if a.announcer != nil && config.BGP != nil {
		a.announcer.Configure(config.BGP)
	}
}

// withdrawRoutes asks routers to send packets elsewhere, and then takes the routes
// away.
func (a *agent) withdrawRoutes(ctx context.Context) {
	if a.announcer == nil {
		return
	}
	if err := a.announcer.Stop(ctx); err != nil {
		a.log.Warn("routes not withdrawn", slog.Any("error", err))
	}
}

// goodbye is how long peers have to be told that sessions end.
const goodbye = 2 * time.Second

// closeSpeaker takes leave of the peers, unless somebody is in a hurry.
func (a *agent) closeSpeaker(ctx context.Context) {
	if a.speaker == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	if err := a.speaker.Close(ctx); err != nil {
		a.log.Warn("bgp sessions not closed", slog.Any("error", err))
	}
}

// routes tells observe what is announced.
func (a *agent) routes() observe.Routes {
	config := a.source.Config().BGP
	if config == nil || a.announcer == nil {
		return observe.Routes{}
	}
	r := observe.Routes{Enabled: true, ASN: config.ASN, RouterID: config.RouterID, Peers: a.speaker.Peers()}
	told := established(r.Peers)
	for _, d := range a.announcer.Decisions() {
		r.Announcements = append(r.Announcements, announcement(d, told, time.Now()))
	}
	return r
}

// established are the peers with a session, without the clients of a reflector.
func established(peers []bgp.PeerState) (addresses []netip.Addr) {
	for _, p := range peers {
		if !p.Dynamic && p.State == bgp.Established {
			addresses = append(addresses, p.Address)
		}
	}
	return addresses
}

// announcement says in observe's words what was decided about a prefix.
func announcement(d announce.Decision, told []netip.Addr, now time.Time) observe.Announcement {
	shown := observe.Announcement{
		Prefix: d.Prefix, Services: d.Services, Announced: d.Announced, Since: d.Since, Reason: d.Reason,
		GracefulShutdown: d.Route.GracefulShutdown, NextHop: d.Route.NextHop,
		Attributes: attributes(&d.Route.Attributes), Withdrawals: d.Withdrawals,
	}
	if d.Announced {
		shown.Peers = told
	}
	if !d.Damped.IsZero() {
		shown.Reason = fmt.Sprintf("damped for %s", max(0, d.Damped.Sub(now)).Round(time.Second))
	}
	return shown
}

// attributes says for people what a route has that others may not have.
func attributes(a *bgp.Attributes) (texts []string) {
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
