// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// What a live view shows of an agent with thousands of services: so many of
// them, so many of those with their backends, and so many backends of each.
const (
	maxSelected = 100
	maxOpen     = 16
	maxBackends = 256
	// maxFilter is the longest text to search for, in bytes.
	maxFilter = 200
)

// selection is what one live view shows.
type selection struct {
	filter string
	limit  int
	// open are the names of the services whose backends are shown.
	open []string
}

func readSelection(query url.Values) (selection, error) {
	s := selection{filter: query.Get("filter"), open: query["open"]}
	if len(s.filter) > maxFilter {
		return s, fmt.Errorf("filter: %d bytes are too many: want at most %d", len(s.filter), maxFilter)
	}
	if len(s.open) > maxOpen {
		return s, fmt.Errorf("open: %d services are too many: want at most %d", len(s.open), maxOpen)
	}
	var err error
	s.limit, err = number(query, "limit", maxSelected, 1, maxSelected)
	return s, err
}

// matching keeps the services of which every word of the filter is a part: of
// the name, the VIP, the forwarding mode or the condition.
func matching(services []observe.Service, filter string) []observe.Service {
	words := strings.Fields(strings.ToLower(filter))
	if len(words) == 0 {
		return slices.Clone(services)
	}
	var kept []observe.Service
	for _, s := range services {
		text := strings.ToLower(fmt.Sprintf("%s %s %s %s", s.Name, s.VIP, forwardText(s.Forward), s.Condition()))
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			kept = append(kept, s)
		}
	}
	return kept
}

// forwardText is empty for a service that is being deleted.
func forwardText(f lb.Forward) string {
	if f == 0 {
		return ""
	}
	return f.String()
}

// services returns the services that the view shows, and how many match. Those
// that are open come first, then those that are not well, then the busiest.
func (s selection) services(all []observe.Service) (shown []observe.Service, found int) {
	shown = matching(all, s.filter)
	found = len(shown)
	if found <= s.limit {
		return shown, found
	}
	rank := func(service observe.Service) int {
		switch {
		case slices.Contains(s.open, service.Name):
			return 0
		case service.Condition() != observe.ConditionOK:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(shown, func(a, b observe.Service) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.PacketsPerSecond, a.PacketsPerSecond))
	})
	return shown[:s.limit], found
}

// backends returns those of the services that are open: of each, those that are
// out of use first, then the busiest.
func (s selection) backends(m *observe.Moment, shown []observe.Service) []observe.Backend {
	list := []observe.Backend{}
	for _, service := range shown {
		if !slices.Contains(s.open, service.Name) {
			continue
		}
		some := m.Backends(func(vip lb.VIP) bool { return vip == service.VIP })
		if len(some) > maxBackends {
			slices.SortStableFunc(some, func(a, b observe.Backend) int {
				if a.InUse != b.InUse {
					return map[bool]int{false: -1, true: 1}[a.InUse]
				}
				return cmp.Compare(b.PacketsPerSecond, a.PacketsPerSecond)
			})
			some = some[:maxBackends]
		}
		list = append(list, some...)
	}
	return list
}
