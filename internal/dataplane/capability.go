// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// Capability is something in which data planes differ, in the words of a configuration file:
// "forward nat", "scheduler rr", "sources".
type Capability string

// Ring is the capability of a data plane with Limits.Rings.
const Ring Capability = "ring"

// Capabilities lists the data plane's capabilities, in the order of a service's fields,
// without capabilities joined by Or. Numbers aren't capabilities.
func (l Limits) Capabilities() []Capability {
	var all []Capability
	for _, f := range l.Forwards {
		all = append(all, capability("forward", f))
	}
	for _, f := range l.OtherFamily {
		all = append(all, capability("other family", f))
	}
	for _, s := range l.Segments {
		all = append(all, capability("segment", s))
	}
	for _, a := range l.affinities() {
		all = append(all, capability("affinity", a))
	}
	for _, s := range l.schedulers() {
		all = append(all, capability("scheduler", s))
	}
	if l.Rings {
		all = append(all, Ring)
	}
	for _, p := range lb.Properties() {
		if slices.Contains(l.Properties, p.Field) {
			all = append(all, Capability(p.Field))
		}
	}
	for _, o := range l.backendOptions() {
		if o.has {
			all = append(all, Capability(o.field))
		}
	}
	return all
}

func capability(field string, value fmt.Stringer) Capability {
	return Capability(field + " " + value.String())
}
