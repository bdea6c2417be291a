// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"reflect"
	"time"
)

// Forward is how a packet is brought to its backend (DESIGN.md §5.3).
type Forward uint8

// The forwarding modes. The zero value is none of them.
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
	// DNAT rewrites the destination only, on the node that has the backend: other
	// nodes send it the packet as it came. The backend sees the client's address,
	// and its node answers the client directly.
	DNAT
)

var forwardWords = words{L2DSR: "l2dsr", IPIP: "ipip", GUE: "gue", VXLAN: "vxlan", Geneve: "geneve", NAT: "nat", DNAT: "dnat"}

// String returns the word that stands for the mode in a configuration file.
func (f Forward) String() string { return forwardWords.text(uint8(f)) }

// MarshalText writes the mode as String does.
func (f Forward) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what MarshalText writes; any other text is an error.
func (f *Forward) UnmarshalText(text []byte) error {
	v, err := forwardWords.parse("forwarding mode", string(text))
	*f = Forward(v)
	return err
}

// DSR reports whether backends answer the client directly, which needs the VIP
// on the backend and leaves the destination port as it is.
func (f Forward) DSR() bool { return !f.Translates() }

// Translates reports whether packets are made ones for the backend's own address
// and port.
func (f Forward) Translates() bool { return f == NAT || f == DNAT }

// Overlay returns the type of the segments in which the mode delivers: VXLAN's
// or Geneve's, and SegmentUnset for a mode that needs none.
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

// Affinity says which packets belong together.
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

// UnmarshalText reads what MarshalText writes; any other text is an error.
func (a *Affinity) UnmarshalText(text []byte) error {
	v, err := affinityWords.parse("affinity", string(text))
	*a = Affinity(v)
	return err
}

// Service is one VIP with its backends and the way they are reached. Services
// are immutable once they are handed to the store: whoever needs another one
// makes a copy.
type Service struct {
	// Name is unique within a source and only for people; the VIP is the identity.
	Name string `json:"name"`
	VIP
	Forward  Forward  `json:"forward"`
	Affinity Affinity `json:"affinity"`
	// AffinityTimeout, only with AffinityClient, is how long a client that begins
	// no flow is remembered: until then its new flows go to the backend of its
	// earlier ones, if that takes new flows, whatever became of the others. At 0
	// clients aren't remembered, and the backend follows from the address.
	AffinityTimeout time.Duration `json:"affinityTimeout,omitzero"`
	// Unannounced says that routes to the VIP lead to other nodes, which send packets
	// on to this one; only with DNAT, or a Membership.
	Unannounced bool `json:"unannounced,omitempty"`
	// Membership says whether this node is one of the servers.
	Membership Membership `json:"membership,omitzero"`
	// QUIC is the form of connection ids; only, and always, with AffinityQUIC.
	QUIC     *QUIC    `json:"quic,omitempty"`
	Tracking Tracking `json:"tracking"`
	// IdleTimeout is how long a flow may be silent and still be there: a change
	// of backends is remembered until then. At least MinIdleTimeout; 0 is the
	// protocol's default (see Idle).
	IdleTimeout time.Duration `json:"idleTimeout,omitzero"`
	// Learn is how long before a planned change of backends UDP flows are taken
	// note of, so that those seen in that time stay where they are; 0 changes at
	// once. Other protocols need no such time.
	Learn time.Duration `json:"learn,omitzero"`
	// Sources says which clients may use the service.
	Sources Sources `json:"sources,omitzero"`
	// Limits bounds how fast new flows may come.
	Limits FlowLimits `json:"limits,omitzero"`
	// Unavailable is what clients meet while no backend is usable.
	Unavailable Unavailable `json:"unavailable"`
	// MinHealthy is the number of usable backends below which the VIP's route is
	// withdrawn; at least 1.
	MinHealthy int `json:"minHealthy"`
	// Health says how backends are probed; nil means that they are taken as
	// healthy.
	Health *HealthCheck `json:"health,omitempty"`
	// Backends have distinct IDs. Their order has no meaning.
	Backends []Backend `json:"backends"`
}

// SegmentOf returns the VXLAN or Geneve segment in which a backend of the
// service is: its own, else the service's. It is the zero Segment in a mode that
// delivers in none.
func (s *Service) SegmentOf(b Backend) Segment {
	for _, segment := range []Segment{b.Segment, s.Segment} {
		if segment.Tagged() && segment.Type == s.Forward.Overlay() {
			return segment
		}
	}
	return Segment{}
}

// Idle returns the time-out that holds for the service's flows.
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
	return s == o || (s != nil && o != nil && reflect.DeepEqual(*s, *o))
}
