// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/routehook"
	"fairlead.io/fairlead/test/golden"
)

// Routes of a hook in every condition.
func TestHookTable(t *testing.T) {
	at := started.Add(50 * time.Minute)
	prefix := netip.MustParsePrefix
	r := observe.Routes{Enabled: true, Announcements: []observe.Announcement{
		{Prefix: prefix("10.1.1.1/32"), Services: []string{"web"}, Announced: true, Since: at},
		{Prefix: prefix("10.1.1.2/32"), Services: []string{"api"}, Announced: true, Since: at},
		{Prefix: prefix("10.1.1.3/32"), Services: []string{"new"}, Announced: true, Since: at},
		{Prefix: prefix("10.1.1.4/32"), Services: []string{"old"}, Since: at, Reason: "old: drained", Withdrawals: 1},
		{Prefix: prefix("10.1.1.5/32"), Services: []string{"dns"}, Since: at, Reason: "dns: drained", Withdrawals: 1},
	}}
	r.AddHook("/etc/fairlead/route-hook", routehook.State{Failures: 7, Pending: []routehook.Pending{
		{Prefix: prefix("10.1.1.2/32"), Reason: "add: exit status 1: no such table", NextTry: at},
		{Prefix: prefix("10.1.1.3/32")},
		{Prefix: prefix("10.1.1.4/32"), Reason: "remove: killed after 15s", NextTry: at},
		{Prefix: prefix("10.1.1.9/32")}, // of a service that was removed
	}})
	golden.File(t, "testdata/hook.txt", observe.FormatRoutes(r, started.Add(time.Hour)))
}
