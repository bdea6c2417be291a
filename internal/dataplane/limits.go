// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/lb"
)

// Check returns everything in a service that the data plane can't serve; none
// means that it can. What is wrong on any data plane is said by
// lb.Service.Check.
func (l Limits) Check(s *lb.Service) []lb.FieldError {
	var found []lb.FieldError
	add := func(path string, err error) {
		if err != nil {
			found = append(found, lb.FieldError{Path: path, Err: err})
		}
	}
	add("forward", served("forwarding mode", s.Forward, l.Forwards))
	add("segment.type", l.checkSegment(s.Segment))
	if s.Scheduler != lb.SchedulerMaglev {
		add("scheduler", served("scheduler", s.Scheduler, append([]lb.Scheduler{lb.SchedulerMaglev}, l.Schedulers...)))
	}
	if s.FirewallMark != 0 && !l.FirewallMarks {
		add("firewallMark", errors.New("this data plane has no services by firewall mark"))
	}
	if n := len(s.Backends); n > l.MaxBackends {
		add("backends", fmt.Errorf("%d backends are too many: this data plane serves at most %d", n, l.MaxBackends))
	}
	for i, b := range s.Backends {
		if b.MaxConnections != 0 && !l.MaxConnections {
			add(fmt.Sprintf("backends[%d].maxConnections", i), errors.New("this data plane doesn't count the connections of backends"))
		}
		if err := l.checkSegment(b.Segment); err != nil {
			add(fmt.Sprintf("backends[%d].segment.type", i), err)
		}
	}
	return found
}

func (l Limits) checkSegment(s lb.Segment) error {
	if !s.Tagged() {
		return nil
	}
	return served("segment type", s.Type, l.Segments)
}

// served returns an error if value is not among those that are served. The zero
// value is not given at all, which is lb.Service.Check's to say.
func served[T interface {
	comparable
	fmt.Stringer
}](kind string, value T, known []T) error {
	var unset T
	if value == unset || slices.Contains(known, value) {
		return nil
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = k.String()
	}
	return fmt.Errorf("%s %s can't be served by this data plane (it serves %s)", kind, value, cmp.Or(strings.Join(names, ", "), "none"))
}
