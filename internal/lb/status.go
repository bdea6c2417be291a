// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StatusRange is a range of HTTP status codes, both ends included.
type StatusRange struct{ Low, High int }

// StatusSet is a set of HTTP status codes: ranges in ascending order that don't
// touch each other.
type StatusSet []StatusRange

// DefaultStatus is the healthy set without another one: success and redirects, which aren't
// followed, as in Kubernetes.
func DefaultStatus() StatusSet { return StatusSet{{200, 399}} }

// Contains reports whether the set has a code.
func (s StatusSet) Contains(code int) bool {
	return slices.ContainsFunc(s, func(r StatusRange) bool { return r.Low <= code && code <= r.High })
}

// String returns for example "200-299,404".
func (s StatusSet) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		parts[i] = strconv.Itoa(r.Low)
		if r.High > r.Low {
			parts[i] += "-" + strconv.Itoa(r.High)
		}
	}
	return strings.Join(parts, ",")
}

// MarshalText writes the set as String does.
func (s StatusSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads codes and ranges, separated by commas, in any order.
func (s *StatusSet) UnmarshalText(text []byte) error {
	var set StatusSet
	for part := range strings.SplitSeq(string(text), ",") {
		r, err := parseStatusRange(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		set = append(set, r)
	}
	slices.SortFunc(set, func(a, b StatusRange) int { return a.Low - b.Low })
	*s = set.joined()
	return nil
}

func parseStatusRange(text string) (StatusRange, error) {
	from, to, isRange := strings.Cut(text, "-")
	low, err := strconv.Atoi(from)
	high := low
	if err == nil && isRange {
		high, err = strconv.Atoi(to)
	}
	if r := (StatusRange{low, high}); err == nil && r.check() == nil {
		return r, nil
	}
	return StatusRange{}, fmt.Errorf("bad status %q: want codes of 100 to 599 such as 200-299,404", text)
}

func (r StatusRange) check() error {
	if r.Low < 100 || r.High > 599 || r.Low > r.High {
		return fmt.Errorf("%d-%d is not a range of status codes: want 100 to 599", r.Low, r.High)
	}
	return nil
}

// joined merges ranges that overlap or touch; s is in ascending order.
func (s StatusSet) joined() StatusSet {
	var set StatusSet
	for _, r := range s {
		if last := len(set) - 1; last >= 0 && r.Low <= set[last].High+1 {
			set[last].High = max(set[last].High, r.High)
			continue
		}
		set = append(set, r)
	}
	return set
}

func (s StatusSet) check() error {
	for _, r := range s {
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}
