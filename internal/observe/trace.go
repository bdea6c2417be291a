// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Trace is the treatment of one packet by the data plane, and its reason.
type Trace struct {
	// Reason describes the treatment in words.
	Reason string `json:"reason"`
	// Service is the name of the VIP's service, empty if there is none.
	Service string `json:"service,omitempty"`
	dataplane.Trace
	// Error is why the packet could not be traced; the other fields are empty then.
	Error string `json:"error,omitempty"`
}

// Explain describes a trace, and names its service.
func (o *Observer) Explain(traced dataplane.Trace) Trace {
	service := ""
	if e, found := o.agent.Snapshot().Find(traced.VIP); traced.Found && found {
		service = e.Service.Name
	}
	return Explain(traced, service)
}

// Explain describes a data plane's trace of a service's packet in words.
func Explain(traced dataplane.Trace, service string) Trace {
	return Trace{Reason: reason(traced), Service: service, Trace: traced}
}

func reason(t dataplane.Trace) string {
	why := dataplane.ExitText(t.Exit)
	switch {
	case t.Exit == exitNotVIP && t.VIP.Address.IsValid():
		why = fmt.Sprintf("no service at %s %s port %d", t.VIP.Address, t.VIP.Protocol, t.VIP.Port)
		if t.VIP.Segment.Tagged() {
			why += " in " + t.VIP.Segment.String()
		}
	case t.Backend != nil && t.Exit == exitTooBig:
		why += fmt.Sprintf(": the packet has %d bytes, the MTU is %d", t.Length, t.Backend.MTU)
	}
	return cmp.Or(verdictWords[t.Verdict], t.Verdict) + ": " + why
}

// verdictWords describe the treatment of the frame.
var verdictWords = map[string]string{
	"pass":     "passed to the kernel",
	"drop":     "dropped",
	"transmit": "sent out of the interface that it came in by",
	"redirect": "sent out of another interface",
}

// Exits whose text is completed with details of the packet.
const (
	exitNotVIP = "pass_not_vip"
	exitTooBig = "drop_too_big"
)

// FormatTrace is the trace of a packet, which title names. Steps that the packet didn't
// reach are omitted.
func FormatTrace(title string, t Trace) string {
	return table(func(w io.Writer) {
		fmt.Fprintf(w, "packet\t%s\n", title)
		if t.Error != "" {
			fmt.Fprintf(w, "error\t%s\n", t.Error)
			return
		}
		if t.Found {
			fmt.Fprintf(w, "service\t%s (%s)\n", t.Service, t.VIP)
		}
		if t.Ring != nil {
			fmt.Fprintf(w, "ring\t%s\n", ringWords(t.Ring))
		}
		if t.Flow != nil {
			fmt.Fprintf(w, "flow\t%s\n", flowWords(t))
		}
		if t.Backend != nil {
			writeTraceBackend(w, t)
		}
		fmt.Fprintf(w, "verdict\t%s\n", t.Reason)
		fmt.Fprintf(w, "counter\t%s\n", t.Exit)
	})
}

func writeTraceBackend(w io.Writer, t Trace) {
	b := t.Backend
	fmt.Fprintf(w, "backend\t%s\n", b.ID)
	fmt.Fprintf(w, "next hop\t%s\n", b.NextHop)
	encapsulation := b.Forward.String()
	if b.Segment.Tagged() {
		encapsulation = b.Segment.String()
	}
	switch {
	case !b.Remote.IsValid():
		encapsulation += ": none"
	case !b.Local.IsValid(): // the client's
		encapsulation += " to " + b.Remote.String()
	default:
		encapsulation += fmt.Sprintf(" from %s to %s", b.Local, b.Remote)
	}
	fmt.Fprintf(w, "encapsulation\t%s\n", encapsulation)
	fmt.Fprintf(w, "mtu\t%d bytes, the packet has %d\n", b.MTU, t.Length)
}

// name is a backend in words.
func name(id lb.BackendID) string {
	if !id.IsValid() {
		return "no backend"
	}
	return id.String()
}

func ringWords(r *dataplane.TraceRing) string {
	text := fmt.Sprintf("entry %d of %d, stable: %s", r.Place, r.Size, name(r.Backend))
	if r.Unstable {
		text = fmt.Sprintf("entry %d of %d, unstable: %s", r.Place, r.Size, name(r.Backend))
		if r.Previous.IsValid() {
			text += ", before the change " + name(r.Previous)
		}
	}
	return text
}

// flowWords describes the state of the packet's flow, and the record that it would get.
func flowWords(t Trace) string {
	phase := map[dataplane.Phase]string{
		dataplane.PhaseOpen:     "of an open connection",
		dataplane.PhaseOpening:  "opens a connection",
		dataplane.PhaseDatagram: "datagram",
	}[t.Flow.Phase]
	return phase + ", " + recordWords(t)
}

func recordWords(t Trace) string {
	f := t.Flow
	switch {
	case f.Named:
		return "its QUIC connection id names the backend"
	case !f.Tracked && f.Client:
		return "not tracked: its client is remembered"
	case !f.Tracked:
		return "not tracked: the ring says where it belongs"
	case f.Hit:
		return fmt.Sprintf("recorded with %s, last packet %s ago", name(f.Recorded), f.Age.Round(time.Millisecond))
	case t.Backend == nil:
		return "not recorded"
	}
	record := "not recorded"
	switch {
	case f.Client:
		record = "not recorded, but its client is remembered"
	case f.Recorded.IsValid():
		record = "an earlier one is recorded with " + name(f.Recorded)
	case f.Age > 0:
		record = "recorded with a backend that left"
	}
	return fmt.Sprintf("%s: would be recorded with %s", record, name(t.Backend.ID))
}

// FormatTraceSummary counts the traced packets by exit; packets under the empty name could
// not be traced.
func FormatTraceSummary(packets int, exits map[string]int) string {
	return table(func(w io.Writer) {
		fmt.Fprintf(w, "PACKETS\tEXIT\n%d\tall\n", packets)
		for _, exit := range slices.Sorted(maps.Keys(exits)) {
			fmt.Fprintf(w, "%d\t%s\n", exits[exit], cmp.Or(exit, "error"))
		}
	})
}
