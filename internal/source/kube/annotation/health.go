// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// Health is how endpoints are probed beside what their readiness says.
type Health struct {
	// Given says that the Service says it; otherwise it is as the group has it.
	Given bool
	// Check is nil for no probes.
	Check *lb.HealthCheck
}

// healthNone is the word for no probes.
const healthNone = "none"

// Health checks in Kubernetes have these where nothing else is said, from
// annotations as from LoadBalancerGroups.
const (
	DefaultInterval = 2 * time.Second
	DefaultTimeout  = time.Second
	DefaultRise     = 2
	DefaultFall     = 3
	DefaultPath     = "/"
)

// health reads how endpoints are probed; as a whole, so that no check is half of
// what was meant.
func (r *reader) health() Health {
	text, given := r.annotations[v1alpha1.AnnotationHealthCheck]
	before := len(r.errs)
	h := lb.HealthCheck{Interval: DefaultInterval, Rise: DefaultRise, Fall: DefaultFall}
	if err := h.Type.UnmarshalText([]byte(text)); given && text != healthNone &&
		(err != nil || h.Type == lb.HealthDNS || h.Type == lb.HealthUDP) {
		r.fail(v1alpha1.AnnotationHealthCheck, "unknown health check %q: want one of none, tcp, http, https, grpc, icmp", text)
		return Health{}
	}
	web := h.Type == lb.HealthHTTP || h.Type == lb.HealthHTTPS
	if web {
		h.Path = DefaultPath
	}
	r.refinement(v1alpha1.AnnotationHealthCheckPath, web, func(text string) (err error) {
		h.Path, err = path(text)
		return err
	})
	r.refinement(v1alpha1.AnnotationHealthCheckPort, h.Type != 0 && h.Type != lb.HealthICMP, func(text string) (err error) {
		h.Port, err = port(text)
		return err
	})
	r.refinement(v1alpha1.AnnotationHealthCheckInterval, h.Type != 0, func(text string) (err error) {
		h.Interval, err = interval(text)
		return err
	})
	h.Timeout = min(DefaultTimeout, h.Interval)
	switch {
	case !given || len(r.errs) > before:
		return Health{}
	case text == healthNone:
		return Health{Given: true}
	}
	return Health{Given: true, Check: &h}
}

// refinement reads an annotation that says more of a check, where that makes
// sense.
func (r *reader) refinement(field string, fits bool, read func(string) error) {
	text, given := r.annotations[field]
	if !given {
		return
	}
	if !fits {
		kind := r.annotations[v1alpha1.AnnotationHealthCheck]
		if kind == "" {
			r.fail(field, "only with %s", v1alpha1.AnnotationHealthCheck)
			return
		}
		r.fail(field, "has no meaning with %s %q", v1alpha1.AnnotationHealthCheck, kind)
		return
	}
	if err := read(text); err != nil {
		r.fail(field, "%w", err)
	}
}

// maxPath is what the kinds of fairlead.io have too.
const maxPath = 1024

func path(text string) (string, error) {
	unfit := func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }
	if !strings.HasPrefix(text, "/") || len(text) > maxPath || strings.ContainsFunc(text, unfit) {
		return "", fmt.Errorf("bad path %q: want one that begins with / and has no spaces", text)
	}
	return text, nil
}

func port(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("bad port %q: want 1 to 65535", text)
	}
	return uint16(n), nil
}

func interval(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("bad duration %q: want for example 500ms", text)
	}
	if d < lb.MinHealthInterval || d > lb.MaxHealthInterval {
		return 0, lb.OutOfRange(d, lb.MinHealthInterval, lb.MaxHealthInterval)
	}
	return d, nil
}
