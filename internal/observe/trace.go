// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"fairlead.io/fairlead/internal/dataplane"
)

// Trace is what the data plane would do with one packet, and why.
type Trace struct {
	// Reason says in words what becomes of the packet.
	Reason string `json:"reason"`
	// Service is the name of the VIP's service, empty if there is none.
	Service string `json:"service,omitempty"`
	dataplane.Trace
	// Error says why the packet could not be traced; then there is nothing else.
	Error string `json:"error,omitempty"`
}

// Bounds of one request for traces.
const (
	MaxTracePackets = 64
	maxTraceBytes   = 8 << 20
)

// traceRequest is the body of a request for traces.
type traceRequest struct {
	Packets []dataplane.Packet `json:"packets"`
}

// traces answers a request with a list of Trace, one for each packet.
func (s *Server) traces(w http.ResponseWriter, r *http.Request) {
	var request traceRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxTraceBytes)).Decode(&request); err != nil {
		http.Error(w, fmt.Sprintf("packets: %v", err), http.StatusBadRequest)
		return
	}
	if len(request.Packets) > MaxTracePackets {
		http.Error(w, fmt.Sprintf("%d packets are too many: want at most %d", len(request.Packets), MaxTracePackets), http.StatusBadRequest)
		return
	}
	traces := make([]Trace, len(request.Packets))
	for i, packet := range request.Packets {
		traces[i] = s.agent.trace(r.Context(), packet)
	}
	s.answer(w, traces)
}

func (a *Agent) trace(ctx context.Context, packet dataplane.Packet) Trace {
	traced, err := a.Trace(ctx, packet)
	if err != nil {
		return Trace{Error: err.Error()}
	}
	service := ""
	if traced.Found {
		service = a.serviceName(traced.VIP)
	}
	return Explain(traced, service)
}

// Explain puts what the data plane says of a service's packet into words.
func Explain(traced dataplane.Trace, service string) Trace {
	return Trace{Reason: reason(traced), Service: service, Trace: traced}
}

func reason(t dataplane.Trace) string {
	why := exitWords(t.Exit)
	switch {
	case t.Exit == exitNotVIP && t.VIP.Address.IsValid():
		why = fmt.Sprintf("no service at %s %s port %d", t.VIP.Address, t.VIP.Protocol, t.VIP.Port)
		if t.VIP.Segment.Tagged() {
			why += " in " + t.VIP.Segment.String()
		}
	case t.Backend != nil && t.Exit == exitTooBig:
		why += fmt.Sprintf(": the packet has %d bytes, the way takes %d, tunnel header included", t.Length, t.Backend.MTU)
	}
	return verdictWords(t.Verdict) + ": " + why
}

// verdictWords says what happens to the frame.
func verdictWords(verdict string) string {
	switch verdict {
	case "pass":
		return "passed to the kernel"
	case "drop":
		return "dropped"
	case "transmit":
		return "sent out of the interface that it came in by"
	case "redirect":
		return "sent out of another interface"
	default:
		return verdict
	}
}

// Exits of which there is more to say than what a packet has.
const (
	exitNotVIP = "pass_not_vip"
	exitTooBig = "drop_too_big"
)

// exitWords says why packets leave the data plane by an exit (enum counter in
// bpf/stats.h). Of an exit that isn't known here its name has to do.
func exitWords(exit string) string {
	switch exit {
	case "pass_not_ip":
		return "neither IPv4 nor IPv6"
	case "pass_vlan_stacked":
		return "more than one VLAN tag, a service tag, or a tag inside a segment"
	case "pass_truncated":
		return "the packet ends within a header"
	case "pass_malformed":
		return "its headers contradict each other"
	case "pass_fragment":
		return "a later IP fragment, to an address that no service has"
	case "pass_extension_header":
		return "too many IPv6 extension headers stand before the transport"
	case "pass_not_tcp_udp":
		return "neither TCP nor UDP, nor ICMP that concerns a flow"
	case "pass_overlay":
		return "VXLAN or Geneve that is not for this node to open"
	case exitNotVIP:
		return "no service at its destination"
	case "pass_balanced":
		return "another balancer sent it here, to this node's own kernel"
	case "pass_other_host":
		return "the frame is for another station"
	case "drop_no_backend":
		return "the service has no usable backend"
	case "drop_fragment":
		return "a later IP fragment whose first one has not been seen"
	case "drop_loop":
		return "the backend is the station that the packet came from"
	case "drop_answer_limited":
		return "not answered, because many others just were"
	case exitTooBig:
		return "too big for the way to the backend"
	case "drop_source_denied":
		return "the client may not use the service"
	case "drop_source_limit":
		return "the client has begun too many flows"
	case "drop_service_limit":
		return "the service's clients have begun too many flows"
	case "drop_headroom":
		return "no room in front of the frame for another header"
	case "drop_no_session":
		return "of a connection that is unknown here, so nobody can be told what became of it"
	case "drop_nat_ports":
		return "no port of this node is free for another session with the backend"
	case "drop_ttl":
		return "it may make no further hop"
	case "drop_state":
		return "the tables contradict each other, which is a defect of Fairlead"
	case "forward_l2dsr":
		return "to the backend, with nothing but the link layer rewritten"
	case "forward_ipip":
		return "to the backend, in an IP tunnel"
	case "forward_gue":
		return "to the backend, in generic UDP encapsulation"
	case "forward_vxlan":
		return "to the backend's tunnel end point, in VXLAN"
	case "forward_geneve":
		return "to the backend's tunnel end point, in Geneve"
	case "forward_nat":
		return "to the backend, with the addresses and ports of its session"
	case "forward_nat_handover":
		return "to the backend, with the addresses and ports of its session, by the kernel's side"
	case "forward_relay":
		return "to the node that has the backend, as it came, with one hop less"
	case "forward_self":
		return "the backend is this node itself, whose kernel gets it as it came"
	case "forward_ask":
		return "to the next node of the service, which may know the connection"
	case "forward_nat_reply":
		return "from a backend to its client, as if from the VIP"
	case "answer_echo":
		return "an echo reply: something is served at the address"
	case "answer_too_big":
		return "an answer that says which size would fit on the way to the backend"
	case "answer_unreachable":
		return "an answer that says that nobody serves it"
	case "answer_reset":
		return "a TCP reset, because the service has no usable backend, or the connection is unknown here"
	default:
		return strings.ReplaceAll(exit, "_", " ")
	}
}

// HasWords reports whether there is more to say of an exit than its name.
func HasWords(exit string) bool { return exitWords(exit) != strings.ReplaceAll(exit, "_", " ") }
