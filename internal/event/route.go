// SPDX-License-Identifier: Apache-2.0

package event

import (
	"log/slog"
	"net/netip"
)

// RouteAnnounced tells that peers are told of a prefix, or again what they were
// told before it was to go.
func (t *Teller) RouteAnnounced(prefix netip.Prefix, reason string) {
	t.log.Info("route announced", slog.String("prefix", prefix.String()), slog.String("reason", reason))
	t.remember("route", prefix.String(), "announced: "+reason)
}

// RouteLeaving tells that peers are asked to prefer other routes to a prefix.
func (t *Teller) RouteLeaving(prefix netip.Prefix, reason string) {
	t.log.Info("route leaving", slog.String("prefix", prefix.String()), slog.String("reason", reason))
	t.remember("route", prefix.String(), "leaving: "+reason)
}

// RouteWithdrawn tells that peers are told to forget a prefix.
func (t *Teller) RouteWithdrawn(prefix netip.Prefix, reason string) {
	t.log.Warn("route withdrawn", slog.String("prefix", prefix.String()), slog.String("reason", reason))
	t.remember("route", prefix.String(), "withdrawn: "+reason)
}
