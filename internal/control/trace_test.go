// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// Trace returns a result by the name of a packet's interface, and an error for "broken".
func (*testAgent) Trace(_ context.Context, packet dataplane.Packet) (dataplane.Trace, error) {
	switch packet.Interface {
	case "broken":
		return dataplane.Trace{}, errors.New("broken")
	case "web":
		return dataplane.Trace{Exit: "forward_l2dsr", Verdict: "transmit", VIP: web, Found: true, Frame: packet.Frame}, nil
	}
	return dataplane.Trace{Exit: "pass_not_ip", Verdict: "pass"}, nil
}

// Flows has one flow of each service and one of a service that is gone.
func (*testAgent) Flows(_ context.Context, query dataplane.FlowQuery) (dataplane.Flows, error) {
	gone := web
	gone.Port = 81
	flows := dataplane.Flows{Records: 7, Capacity: 8}
	for i, vip := range []lb.VIP{web, dns, gone} {
		if query.VIP == (lb.VIP{}) || query.VIP == vip {
			client := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(i))
			flows.Flows = append(flows.Flows, dataplane.Flow{VIP: vip, Client: client, Backend: netip.MustParseAddrPort("10.0.0.21:80"), Age: time.Second})
		}
	}
	flows.Matching = len(flows.Flows)
	if query.Client.IsValid() {
		flows.Flows = nil
	}
	flows.Flows = flows.Flows[:min(len(flows.Flows), query.Limit)]
	return flows, nil
}

func TestTraces(t *testing.T) {
	a := startAgent(t)
	body, err := a.client().Traces(t.Context(), []dataplane.Packet{
		{Interface: "web", Frame: []byte{1, 2}}, {Interface: "broken"}, {},
	})
	var got []string
	for _, trace := range decode[[]observe.Trace](body, err)(t) {
		got = append(got, fmt.Sprintf("%s|%s|%s|%s|%x", trace.Service, trace.Exit, trace.Reason, trace.Error, trace.Frame))
	}
	want := []string{
		"web|forward_l2dsr|sent out of the interface that it came in by: to the backend, with new link-layer addresses||0102",
		"|||broken|",
		"|pass_not_ip|passed to the kernel: neither IPv4 nor IPv6||",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	if _, err := a.client().Traces(t.Context(), make([]dataplane.Packet, control.MaxTracePackets+1)); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("too many packets: error %v", err)
	}
	if _, err := a.client().Traces(t.Context(), []dataplane.Packet{{Frame: make([]byte, 16<<20)}}); err == nil {
		t.Error("a packet of 16 MB was taken")
	}
}

func TestFlows(t *testing.T) {
	a := startAgent(t)
	ask := func(query control.FlowQuery) observe.Flows {
		t.Helper()
		return decode[observe.Flows](a.client().Flows(t.Context(), query))(t)
	}
	all := ask(control.FlowQuery{})
	if len(all.Flows) != 3 || all.Flows[0].Service != "web" || all.Flows[2].Service != "" || all.Records != 7 || all.Capacity != 8 {
		t.Errorf("all flows: %+v", all)
	}
	if got := ask(control.FlowQuery{Service: "dns", Limit: 5}); len(got.Flows) != 1 || got.Flows[0].VIP != dns || got.Matching != 1 {
		t.Errorf("flows of dns: %+v", got)
	}
	if got := ask(control.FlowQuery{Limit: 1, Client: netip.MustParsePrefix("10.0.0.0/8")}); len(got.Flows) != 0 || got.Matching != 3 {
		t.Errorf("flows of no client: %+v", got)
	}
	for want, query := range map[string]control.FlowQuery{
		`"nosuch"`:     {Service: "nosuch"},
		`limit "10000`: {Limit: 1 << 30},
	} {
		if _, err := a.client().Flows(t.Context(), query); err == nil {
			t.Errorf("%+v: no error, want %s", query, want)
		}
	}
}

func TestTop(t *testing.T) {
	a := startAgent(t)
	top := decode[observe.Top](a.client().Top(t.Context(), 3))(t)
	if top.Node != "lb1" || len(top.Services) != 2 || len(top.Backends) != 3 || top.Time.IsZero() {
		t.Errorf("%+v", top)
	}
	if _, err := a.client().Top(t.Context(), 0); err == nil {
		t.Error("a limit of 0 was taken")
	}
}
