// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
)

// known are Fairlead's annotations of Services.
var known = []string{
	v1alpha1.AnnotationAddresses, v1alpha1.AnnotationAddressPool, v1alpha1.AnnotationSharingKey, v1alpha1.AnnotationForward,
	v1alpha1.AnnotationHealthCheck, v1alpha1.AnnotationHealthCheckMethod, v1alpha1.AnnotationHealthCheckPath,
	v1alpha1.AnnotationHealthCheckQuery, v1alpha1.AnnotationHealthCheckSend, v1alpha1.AnnotationHealthCheckExpect,
	v1alpha1.AnnotationHealthCheckPort, v1alpha1.AnnotationHealthCheckInterval, v1alpha1.AnnotationNewFlows,
	v1alpha1.AnnotationNewFlowsPerSource, v1alpha1.AnnotationScheduler, v1alpha1.AnnotationMaxConnections,
	v1alpha1.AnnotationFirewallMark,
}

// Settings are the annotations of a Service.
type Settings struct {
	// Addresses are requested: at most one of each family, IPv4 first.
	Addresses []netip.Addr
	// Pool is the requested AddressPool; empty for any.
	Pool string
	// SharingKey is equal for Services that may share an address; empty for none.
	SharingKey string
	// Forward is the forwarding mode; 0 for the group's.
	Forward lb.Forward
	Health  Health
	// Port has the fields of each port's service that have annotations; limits are 0 for the group's.
	Port lb.Service
	// MaxConnections (of each endpoint and port, 0 for no limit) needs a data plane that has it.
	MaxConnections int
}

// ParseAnnotations reads a Service's annotations, ForeignAnnotations among them, and, without an annotation
// of addresses, its deprecated spec.loadBalancerIP. The error joins an lb.FieldError for each invalid one,
// which is ignored: its Path is the annotation's name, or "spec.loadBalancerIP". ErrUnknown is among
// them if an annotation doesn't exist.
func ParseAnnotations(svc *corev1.Service) (Settings, error) {
	r := reader{}
	r.readForeign(svc)
	r.checkKnown(svc)
	s := Settings{
		Addresses:      r.addresses(svc.Spec.LoadBalancerIP),
		Pool:           r.name(v1alpha1.AnnotationAddressPool),
		SharingKey:     r.sharingKey(),
		Forward:        r.forward(),
		Health:         r.health(),
		MaxConnections: int(r.number(v1alpha1.AnnotationMaxConnections, lb.MaxConnections)),
		Port: lb.Service{
			Limits:       r.limits(),
			Scheduler:    r.scheduler(),
			FirewallMark: uint32(r.number(v1alpha1.AnnotationFirewallMark, math.MaxUint32)),
		},
	}
	return s, errors.Join(r.errs...)
}

// Service returns the service of each port of a Service, without its name, VIP, forwarding mode,
// sources, check and backends.
func (s *Settings) Service(svc *corev1.Service) lb.Service {
	port := s.Port
	port.MinHealthy, port.Ephemeral = 1, true
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		seconds := corev1.DefaultClientIPServiceAffinitySeconds
		// spec.sessionAffinityConfig may be missing in files.
		if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			seconds = *c.ClientIP.TimeoutSeconds
		}
		port.Affinity = lb.AffinityClient
		port.AffinityTimeout = min(max(time.Duration(seconds)*time.Second, lb.MinAffinityTimeout), lb.MaxAffinityTimeout)
	}
	return port
}

// SetBackends sets the properties that annotations give to endpoints.
func (s *Settings) SetBackends(endpoints []lb.Backend) {
	for i := range endpoints {
		endpoints[i].MaxConnections = s.MaxConnections
	}
}

// ipvs returns the annotation for which a Service needs IPVS; empty if there is none.
func (s *Settings) ipvs() string {
	switch {
	case s.Port.Scheduler != lb.SchedulerMaglev:
		return v1alpha1.AnnotationScheduler
	case s.MaxConnections != 0:
		return v1alpha1.AnnotationMaxConnections
	}
	return ""
}

// MaxPorts is the number of ports of a Service that are served: the work for a Service grows
// with the product of its ports and endpoints.
const MaxPorts = 1000

// Ports returns the ports of a Service that are served, and an error if there are more.
func Ports(svc *corev1.Service) ([]corev1.ServicePort, error) {
	if n := len(svc.Spec.Ports); n > MaxPorts {
		return svc.Spec.Ports[:MaxPorts], lb.FieldError{Path: "spec.ports", Err: fmt.Errorf("%d are too many: want at most %d", n, MaxPorts)}
	}
	return svc.Spec.Ports, nil
}

// Protocol translates a port's protocol, TCP by default; false if it is not served.
func Protocol(name corev1.Protocol) (p lb.Protocol, served bool) {
	switch name {
	case corev1.ProtocolTCP, "":
		return lb.TCP, true
	case corev1.ProtocolUDP:
		return lb.UDP, true
	default:
		return 0, false
	}
}

// reader reads annotations and collects errors.
type reader struct {
	annotations map[string]string
	// origin has the foreign annotations from which others were read.
	origin map[string]string
	errs   []error
}

func (r *reader) fail(field, format string, args ...any) {
	if from := r.origin[field]; from != "" {
		format, args = "%s: "+format, append([]any{from}, args...)
	}
	r.errs = append(r.errs, lb.FieldError{Path: field, Err: fmt.Errorf(format, args...)})
}

func (r *reader) addresses(deprecated string) []netip.Addr {
	field := v1alpha1.AnnotationAddresses
	text, given := r.annotations[field]
	if !given && deprecated != "" {
		field, text, given = "spec.loadBalancerIP", deprecated, true
	}
	if !given {
		return nil
	}
	var found []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			r.fail(field, "bad address %q: want IPv4 or IPv6, separated by commas", strings.TrimSpace(part))
			return nil
		}
		if err := lb.CheckAddress(a); err != nil {
			r.fail(field, "%w", err)
			return nil
		}
		found = append(found, a)
	}
	slices.SortFunc(found, netip.Addr.Compare) // IPv4 first
	if n := len(found); n > 2 || n == 2 && found[0].Is4() == found[1].Is4() {
		r.fail(field, "two addresses of one family: want at most one of each")
		return nil
	}
	return found
}

// name reads the name of a cluster-scoped object.
func (r *reader) name(field string) string {
	text := r.annotations[field]
	if text == "" {
		return ""
	}
	if wrong := validation.IsDNS1123Subdomain(text); len(wrong) > 0 {
		r.fail(field, "bad name %q: want lower-case letters, digits, dots and hyphens", text)
		return ""
	}
	return text
}

// maxSharingKey is the maximum length of most names in Kubernetes.
const maxSharingKey = 253

func (r *reader) sharingKey() string {
	key := r.annotations[v1alpha1.AnnotationSharingKey]
	unfit := func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }
	if len(key) > maxSharingKey || strings.ContainsFunc(key, unfit) {
		r.fail(v1alpha1.AnnotationSharingKey, "bad key: want at most %d printable characters without spaces", maxSharingKey)
		return ""
	}
	return key
}

func (r *reader) forward() lb.Forward {
	text, given := r.annotations[v1alpha1.AnnotationForward]
	if !given {
		return 0
	}
	var f lb.Forward
	if err := f.UnmarshalText([]byte(text)); err != nil || f.Overlay() != lb.SegmentUnset {
		r.fail(v1alpha1.AnnotationForward, "unknown forwarding mode %q: want one of nat, dsr, l2dsr, ipip, gue", text)
		return 0
	}
	return f
}

func (r *reader) limits() lb.FlowLimits {
	return lb.FlowLimits{
		NewFlows:          int(r.number(v1alpha1.AnnotationNewFlows, lb.MaxNewFlows)),
		NewFlowsPerSource: int(r.number(v1alpha1.AnnotationNewFlowsPerSource, lb.MaxNewFlows)),
	}
}

func (r *reader) scheduler() (s lb.Scheduler) {
	if text, given := r.annotations[v1alpha1.AnnotationScheduler]; given {
		if err := s.UnmarshalText([]byte(text)); err != nil {
			r.fail(v1alpha1.AnnotationScheduler, "%w", err)
			return 0
		}
	}
	return s
}

// number reads a number from 1 to most; 0 without annotation.
func (r *reader) number(field string, most int64) int64 {
	text, given := r.annotations[field]
	if !given {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		r.fail(field, "bad number %q: want 1 to %d", text, most)
		return 0
	}
	return n
}
