// SPDX-License-Identifier: Apache-2.0

package announce

import "strings"

// tellChanges tells what distinguishes two lists of decisions, sorted by prefix.
func tellChanges(tell Teller, before, after []Decision) {
	for i := range after {
		d, was := &after[i], &Decision{}
		for len(before) > 0 && before[0].Prefix.Compare(d.Prefix) < 0 {
			tellGone(tell, &before[0])
			before = before[1:]
		}
		if len(before) > 0 && before[0].Prefix == d.Prefix {
			was, before = &before[0], before[1:]
		}
		switch {
		case was.Announced && !d.Announced:
			tell.RouteWithdrawn(d.Prefix, d.Reason)
		case d.Route.GracefulShutdown && !was.Route.GracefulShutdown:
			tell.RouteLeaving(d.Prefix, d.Reason)
		case d.Announced && (!was.Announced || was.Route.GracefulShutdown && !d.Route.GracefulShutdown):
			tell.RouteAnnounced(d.Prefix, "served for "+some(d.Services))
		}
	}
	for i := range before {
		tellGone(tell, &before[i])
	}
}

// tellGone tells of a prefix that no service has any more.
func tellGone(tell Teller, d *Decision) {
	if d.Announced {
		tell.RouteWithdrawn(d.Prefix, "no service has it any more")
	}
}

// some names the first few services.
func some(names []string) string {
	const most = 3
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
