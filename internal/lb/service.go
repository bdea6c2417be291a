// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"
)

// Forward is a forwarding mode: how packets are sent to backends.
type Forward uint8

// The forwarding modes. The zero value is invalid.
const (
	// L2DSR rewrites the destination MAC address and the VLAN; the backend has
	// the VIP on a loopback and answers the client directly.
	L2DSR Forward = iota + 1
	// IPIP encapsulates in IPv4 or IPv6 (RFC 2003, RFC 2473, RFC 4213).
	IPIP
	// GUE encapsulates in UDP with the header of draft-ietf-intarea-gue.
	GUE
	// VXLAN sends segment traffic to the backend's tunnel end point (RFC 7348).
	VXLAN
	// Geneve sends segment traffic to the backend's tunnel end point (RFC 8926).
	Geneve
	// NAT rewrites addresses and ports in both directions.
	NAT
	// DSR rewrites the destination only, on the backend's node, to which other nodes forward
	// the unchanged packet. The backend sees the client's address, and its node answers the
	// client directly.
	DSR
)

var forwardWords = words{L2DSR: "l2dsr", IPIP: "ipip", GUE: "gue", VXLAN: "vxlan", Geneve: "geneve", NAT: "nat", DSR: "dsr"}

// String returns the mode as in a configuration file.
func (f Forward) String() string { return forwardWords.text(uint8(f)) }

// MarshalText writes the mode as String does.
func (f Forward) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (f *Forward) UnmarshalText(text []byte) error {
	return forwardWords.read("forwarding mode", string(text), (*uint8)(f))
}

// Translates reports whether the mode rewrites the destination to the backend's address and
// port.
func (f Forward) Translates() bool { return f == NAT || f == DSR }

// Overlay returns the type of segment in which the mode delivers, SegmentUnset for none.
func (f Forward) Overlay() SegmentType {
	switch f {
	case VXLAN:
		return SegmentVXLAN
	case Geneve:
		return SegmentGeneve
	default:
		return SegmentUnset
	}
}

// Affinity defines which packets go to the same backend.
type Affinity uint8

// The affinities. The zero value is the default.
const (
	// AffinityFlow keeps the packets of one five-tuple together.
	AffinityFlow Affinity = iota
	// AffinityClient keeps all packets of one source address together.
	AffinityClient
	// AffinityQUIC keeps the packets of one QUIC connection together, also when
	// the client's address changes; all others as AffinityFlow does.
	AffinityQUIC
)

var affinityWords = words{AffinityFlow: "flow", AffinityClient: "client", AffinityQUIC: "quic"}

// String returns "flow", "client" or "quic".
func (a Affinity) String() string { return affinityWords.text(uint8(a)) }

// MarshalText writes the affinity as String does.
func (a Affinity) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (a *Affinity) UnmarshalText(text []byte) error {
	return affinityWords.read("affinity", string(text), (*uint8)(a))
}

// Scheduler is how a data plane chooses the backend of a new flow.
type Scheduler uint8

// The schedulers. The zero value is the default, and the only one with which all nodes choose
// alike; the others are IPVS's schedulers of the same names.
const (
	// SchedulerMaglev chooses by a hash of the flow, or of the client with AffinityClient, and
	// moves few flows when backends change (Eisenbud et al., NSDI 2016).
	SchedulerMaglev Scheduler = iota
	// SchedulerRR takes turns, SchedulerWRR in proportion to weights.
	SchedulerRR
	SchedulerWRR
	// SchedulerLC chooses the backend with the fewest connections, SchedulerWLC in proportion to
	// weights.
	SchedulerLC
	SchedulerWLC
	// SchedulerSH chooses by a hash of the client's address.
	SchedulerSH
)

var schedulerWords = words{
	SchedulerMaglev: "maglev", SchedulerRR: "rr", SchedulerWRR: "wrr", SchedulerLC: "lc", SchedulerWLC: "wlc", SchedulerSH: "sh",
}

// String returns the scheduler as in a configuration file.
func (s Scheduler) String() string { return schedulerWords.text(uint8(s)) }

// MarshalText writes the scheduler as String does.
func (s Scheduler) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (s *Scheduler) UnmarshalText(text []byte) error {
	return schedulerWords.read("scheduler", string(text), (*uint8)(s))
}

// Service is one VIP with its backends. Services are immutable once they are in the store.
type Service struct {
	// Name is unique within a source and for display only; the VIP is the identity.
	Name string `json:"name"`
	// Namespace of the Kubernetes object. Its authors may be another tenant than other
	// namespaces' authors: tenants share the probes in flight. Empty for services of a file.
	Namespace string `json:"namespace,omitempty"`
	// Created is when the Kubernetes object was created, in seconds of Unix time; 0 for services
	// of a file. Where room is short, older services come first.
	Created int64 `json:"created,omitzero"`
	VIP
	Forward  Forward  `json:"forward"`
	Affinity Affinity `json:"affinity"`
	// Scheduler chooses the backends of new flows.
	Scheduler Scheduler `json:"scheduler,omitzero"`
	// FirewallMark joins services on one node: those with the same mark, which is not 0, are
	// scheduled as one (an IPVS service by firewall mark).
	FirewallMark uint32 `json:"firewallMark,omitzero"`
	// AffinityTimeout, only with AffinityClient, is how long a client without new flows is
	// remembered: its new flows go to the backend of its earlier ones, if that accepts new
	// flows, whatever other backends change. At 0 clients aren't remembered, and the backend
	// is chosen by the client's address.
	AffinityTimeout time.Duration `json:"affinityTimeout,omitzero"`
	// Unannounced is set if this node doesn't announce the VIP and receives its packets from
	// other nodes; only with DSR, or a Membership.
	Unannounced bool `json:"unannounced,omitempty"`
	// Membership is set if nodes are backends.
	Membership Membership `json:"membership,omitzero"`
	// Balancers are, with DSR, the addresses of the nodes that balance the service, this one
	// too; empty if they aren't known. A flow whose backend was removed is sent to the
	// backend's node only while that is one of them, or has another backend.
	Balancers []netip.Addr `json:"balancers,omitempty"`
	// QUIC is the format of connection IDs; required with AffinityQUIC, invalid without.
	QUIC     *QUIC    `json:"quic,omitempty"`
	Tracking Tracking `json:"tracking"`
	// IdleTimeout is the time without packets after which a flow has ended: a change of
	// backends is tracked for that long. At least MinIdleTimeout; 0 is the protocol's default
	// (see Idle).
	IdleTimeout time.Duration `json:"idleTimeout,omitzero"`
	// Learn is how long UDP flows are recorded before a planned change of backends takes
	// effect, so that active flows keep their backend; 0 changes at once. Other protocols
	// don't need it.
	Learn time.Duration `json:"learn,omitzero"`
	// Ephemeral is set if backends exist as long as they are listed, as pods do. UDP flows
	// have no end, so a removed backend's flows go to others at once; otherwise they stay
	// while they are active.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Sources are the source prefixes that are allowed and denied.
	Sources Sources `json:"sources,omitzero"`
	// Limits are the rate limits of new flows.
	Limits FlowLimits `json:"limits,omitzero"`
	// Unavailable selects the handling of packets while no backend is usable.
	Unavailable Unavailable `json:"unavailable"`
	// MinHealthy is the number of usable backends below which the VIP's route is
	// withdrawn; at least 1.
	MinHealthy int `json:"minHealthy"`
	// Health is the health check; without one all backends count as healthy.
	Health *HealthCheck `json:"health,omitempty"`
	// Backends have distinct IDs. Their order has no meaning.
	Backends []Backend `json:"backends"`
}

// Property is an optional property of services that data planes have or not.
type Property struct {
	// Field is the field's name in a configuration file.
	Field string
	// Value is the service's value there; empty without one.
	Value func(*Service) string
}

// Properties lists them in the order of the fields.
func Properties() []Property {
	return []Property{
		{"affinityTimeout", func(s *Service) string { return Given(s.AffinityTimeout) }},
		{"firewallMark", func(s *Service) string { return Given(s.FirewallMark) }},
		{"sources", func(s *Service) string {
			if s.Sources.Verdicts(s.Address) == nil {
				return ""
			}
			return fmt.Sprintf("a list of %d prefixes", len(s.Sources.Allow)+len(s.Sources.Deny))
		}},
		{"limits", func(s *Service) string {
			if s.Limits == (FlowLimits{}) {
				return ""
			}
			return fmt.Sprintf("newFlows %d, newFlowsPerSource %d", s.Limits.NewFlows, s.Limits.NewFlowsPerSource)
		}},
		{"tracking", func(s *Service) string { return Given(s.Tracking) }},
		{"idleTimeout", func(s *Service) string { return Given(s.IdleTimeout) }},
		{"unavailable", func(s *Service) string { return Given(s.Unavailable) }},
		{"membership", func(s *Service) string { return Given(s.Membership.Self) }},
	}
}

// Given is the text of a value; empty for the zero value.
func Given[T comparable](value T) string {
	var unset T
	if value == unset {
		return ""
	}
	return fmt.Sprint(value)
}

// ByAge orders services, the oldest first, then by VIP.
func ByAge(a, b *Service) int { return cmp.Or(cmp.Compare(a.Created, b.Created), a.VIP.Compare(b.VIP)) }

// SegmentOf returns the VXLAN or Geneve segment of a backend: its own, else the service's,
// or the zero Segment in a mode without.
func (s *Service) SegmentOf(b Backend) Segment {
	for _, segment := range []Segment{b.Segment, s.Segment} {
		if segment.Tagged() && segment.Type == s.Forward.Overlay() {
			return segment
		}
	}
	return Segment{}
}

// Idle returns the effective idle timeout.
func (s *Service) Idle() time.Duration {
	switch {
	case s.IdleTimeout != 0:
		return s.IdleTimeout
	case s.Protocol == UDP:
		return 2 * time.Minute // RFC 4787, REQ-5
	}
	return 10 * time.Minute
}

// Equal reports whether two services are the same in every field.
func (s *Service) Equal(o *Service) bool {
	if s == o || s == nil || o == nil {
		return s == o
	}
	if !sameElements(s.Backends, o.Backends) && !slices.Equal(s.Backends, o.Backends) {
		return false
	}
	a, b := *s, *o
	a.Backends, b.Backends = nil, nil // compared without reflection: there may be thousands
	return reflect.DeepEqual(&a, &b)
}

// sameElements reports whether two slices are the same elements in memory.
func sameElements(a, b []Backend) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Unavailable is the handling of a client's packet while its service has no usable backend.
type Unavailable uint8

// The policies. The zero value is the default.
const (
	// Drop drops packets: retransmissions succeed once a backend is usable.
	Drop Unavailable = iota
	// Reject answers TCP by a reset (RFC 9293 §3.10.7.1), UDP by ICMP "port unreachable", and
	// an echo request to an address without other usable services by "host unreachable".
	Reject
)

var unavailableWords = words{Drop: "drop", Reject: "reject"}

// String returns "drop" or "reject".
func (u Unavailable) String() string { return unavailableWords.text(uint8(u)) }

// MarshalText writes the policy as String does.
func (u Unavailable) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (u *Unavailable) UnmarshalText(text []byte) error {
	return unavailableWords.read("policy", string(text), (*uint8)(u))
}

// Tracking defines which flows a data plane records (docs/design/tracking.md).
type Tracking uint8

// The kinds of tracking. The zero value is the default.
const (
	// TrackingMinimal records only flows that a change of backends might move.
	TrackingMinimal Tracking = iota
	// TrackingFull records every flow, as connection-tracking balancers do.
	TrackingFull
)

var trackingWords = words{TrackingMinimal: "minimal", TrackingFull: "full"}

// String returns "minimal" or "full".
func (t Tracking) String() string { return trackingWords.text(uint8(t)) }

// MarshalText writes the kind as String does.
func (t Tracking) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (t *Tracking) UnmarshalText(text []byte) error {
	return trackingWords.read("tracking", string(text), (*uint8)(t))
}

// checkChoice checks the fields about the choice of backends.
func (s *Service) checkChoice(f *findings) {
	f.add("affinity", affinityWords.check("affinity", uint8(s.Affinity)))
	f.add("affinityTimeout", s.checkAffinityTimeout())
	f.add("scheduler", s.checkScheduler())
	f.add("unavailable", unavailableWords.check("policy", uint8(s.Unavailable)))
}

// Bounds of Service.AffinityTimeout. Kubernetes' own are 1s and 24h.
const (
	MinAffinityTimeout = time.Second
	MaxAffinityTimeout = 7 * 24 * time.Hour
)

func (s *Service) checkAffinityTimeout() error {
	switch t := s.AffinityTimeout; {
	case t == 0:
		return nil
	case s.Affinity != AffinityClient:
		return fmt.Errorf("only with affinity client, this service has %s", s.Affinity)
	default:
		return checkRange(t, MinAffinityTimeout, MaxAffinityTimeout)
	}
}

func (s *Service) checkScheduler() error {
	if s.Affinity == AffinityQUIC && s.Scheduler != SchedulerMaglev {
		return fmt.Errorf("%s can't read connection IDs: want maglev with affinity quic", s.Scheduler)
	}
	hashes := s.Scheduler == SchedulerMaglev || s.Scheduler == SchedulerSH
	if s.Affinity == AffinityClient && s.AffinityTimeout == 0 && !hashes {
		return fmt.Errorf("%s keeps a client's flows together only with an affinityTimeout; maglev and sh also without", s.Scheduler)
	}
	return schedulerWords.check("scheduler", uint8(s.Scheduler))
}

// Bounds of a service's times.
const (
	MinIdleTimeout = time.Second
	MaxIdleTimeout = 7 * 24 * time.Hour
	MaxLearn       = time.Minute
	// DefaultLearn is the default of sources for UDP services.
	DefaultLearn = time.Second
)

// checkTracking checks the fields about tracking.
func (s *Service) checkTracking(f *findings) {
	f.add("tracking", trackingWords.check("tracking", uint8(s.Tracking)))
	if s.IdleTimeout != 0 {
		f.add("idleTimeout", checkRange(s.IdleTimeout, MinIdleTimeout, MaxIdleTimeout))
	}
	learn := checkRange(s.Learn, 0, MaxLearn)
	if learn == nil && s.Learn > 0 && s.Protocol != UDP {
		learn = fmt.Errorf("only udp flows are learned, this service is %s", s.Protocol)
	}
	f.add("learn", learn)
}

// MaxNewFlows is the largest limit of new flows in a second.
const MaxNewFlows = 10_000_000

// FlowLimits are limits of the rate of new flows of a service on one node, with a burst of one
// second's worth. Existing flows are never limited.
type FlowLimits struct {
	// NewFlows is the number per second for the service, NewFlowsPerSource that for each
	// client: an IPv4 address or an IPv6 /64. 0 is unlimited.
	NewFlows          int `json:"newFlows,omitzero"`
	NewFlowsPerSource int `json:"newFlowsPerSource,omitzero"`
}

// Or returns the limits, with o's values for the unlimited ones.
func (l FlowLimits) Or(o FlowLimits) FlowLimits {
	return FlowLimits{NewFlows: cmp.Or(l.NewFlows, o.NewFlows), NewFlowsPerSource: cmp.Or(l.NewFlowsPerSource, o.NewFlowsPerSource)}
}

func (l FlowLimits) check(f *findings, path string) {
	f.add(path+".newFlows", checkRange(l.NewFlows, 0, MaxNewFlows))
	f.add(path+".newFlowsPerSource", checkRange(l.NewFlowsPerSource, 0, MaxNewFlows))
}

// Membership describes nodes that are balancers and backends of a service at once, in the
// modes L2DSR, IPIP and GUE. The zero Membership stands for separate backends.
type Membership struct {
	// Self is this node's own address: packets for a backend of this address go to its kernel.
	Self netip.Addr `json:"self,omitzero"`
	// Balancers are the addresses of the other nodes that may balance the service. Packets from
	// them have been balanced and go to the kernel; their tunnels end here.
	Balancers []netip.Addr `json:"balancers,omitempty"`
}

// Is reports whether a backend is this node itself.
func (m *Membership) Is(b Backend) bool { return m.Self.IsValid() && m.Self == b.Address }

// check checks the membership of a service in a mode.
func (m *Membership) check(f *findings, forward Forward) {
	if !m.Self.IsValid() && len(m.Balancers) == 0 {
		return
	}
	if forward != 0 && !slices.Contains([]Forward{L2DSR, IPIP, GUE}, forward) {
		f.add("membership", fmt.Errorf("only with l2dsr, ipip and gue: want none with %s", forward))
	}
	f.add("membership.self", CheckAddress(m.Self))
	for i, a := range m.Balancers {
		f.add(fmt.Sprintf("membership.balancers[%d]", i), CheckAddress(a))
	}
}
