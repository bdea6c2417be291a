// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"

	"fairlead.io/fairlead/internal/routehook"
)

// RouteHook is the program that makes the routes of VIPs where there is no BGP.
type RouteHook struct {
	Program string `json:"program"`
	// Pending counts the prefixes whose route isn't yet as it is wanted: the program has to be
	// called, is running, or has failed.
	Pending int `json:"pending"`
	// Reason is why the program fails, for the first prefix for which it does, as "add: exit
	// status 1: no such table"; empty if it doesn't.
	Reason string `json:"reason,omitempty"`
	// Failures counts the calls that failed since the agent started.
	Failures uint64 `json:"failures"`
}

// hookDone is the Announcement.Hook of a route that is as it is wanted.
const hookDone = "done"

// AddHook adds a hook to routes, and to their announcements.
func (r *Routes) AddHook(program string, state routehook.State) {
	h := &RouteHook{Program: program, Pending: len(state.Pending), Failures: state.Failures}
	conditions := map[string]string{}
	for _, p := range state.Pending {
		h.Reason = cmp.Or(h.Reason, p.Reason)
		conditions[p.Prefix.String()] = "pending"
		if p.Reason != "" {
			conditions[p.Prefix.String()] = "fails: " + oneLine(p.Reason)
		}
	}
	r.Hook = h
	for i := range r.Announcements {
		a := &r.Announcements[i]
		a.Hook = cmp.Or(conditions[a.Prefix.String()], hookDone)
	}
}

// String is the program's state in a few words.
func (h *RouteHook) String() string {
	text := "hook " + h.Program
	if h.Pending > 0 {
		text += fmt.Sprintf(", %d pending", h.Pending)
	}
	if h.Reason != "" {
		text += ", fails: " + oneLine(h.Reason)
	}
	return text
}
