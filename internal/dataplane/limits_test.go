// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

func TestLimitsCheck(t *testing.T) {
	some := dataplane.Limits{
		Forwards:    []lb.Forward{lb.L2DSR, lb.IPIP},
		Segments:    []lb.SegmentType{lb.SegmentVLAN},
		MaxBackends: 1,
	}
	backend := lb.Backend{Address: netip.MustParseAddr("10.0.0.21"), Port: 80, Weight: 1}
	vxlan := lb.Segment{Type: lb.SegmentVXLAN, ID: 7}
	inVXLAN, untagged := backend, backend
	inVXLAN.Segment, untagged.Segment.Type = vxlan, lb.SegmentNone

	all := lb.Service{
		VIP: lb.VIP{Address: netip.MustParseAddr("10.1.1.1")}, Forward: lb.L2DSR, Affinity: lb.AffinityClient, AffinityTimeout: time.Hour,
		Sources: lb.Sources{Deny: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, Limits: lb.FlowLimits{NewFlows: 7},
		Tracking: lb.TrackingFull, IdleTimeout: time.Minute, Unavailable: lb.Reject,
		Membership: lb.Membership{Self: netip.MustParseAddr("10.0.0.1")},
		Backends:   []lb.Backend{{Address: netip.MustParseAddr("fd00::21"), MAC: lb.MAC{2, 0, 0, 0, 0, 1}}},
	}
	joined := dataplane.Limits{Kind: "a", Forwards: []lb.Forward{lb.NAT, lb.DSR}, Or: []dataplane.Limits{
		{Kind: "b", Forwards: []lb.Forward{lb.NAT}, Schedulers: []lb.Scheduler{lb.SchedulerLC}},
	}}

	tests := map[string]struct {
		limits  dataplane.Limits
		service lb.Service
		want    []string
	}{
		"served": {some, lb.Service{Forward: lb.IPIP, Backends: []lb.Backend{backend}}, nil},
		"vlan": {some, lb.Service{
			Forward: lb.L2DSR, VIP: lb.VIP{Segment: lb.Segment{Type: lb.SegmentVLAN, ID: 7}}, Backends: []lb.Backend{untagged},
		}, nil},
		"mode": {some, lb.Service{Forward: lb.GUE}, []string{
			"forward: forwarding mode gue can't be served by this data plane (it serves l2dsr, ipip)"}},
		"no mode": {some, lb.Service{}, nil},
		"segments": {some, lb.Service{Forward: lb.L2DSR, VIP: lb.VIP{Segment: vxlan}, Backends: []lb.Backend{inVXLAN}}, []string{
			"segment.type: segment type vxlan can't be served by this data plane (it serves vlan)",
			"backends[0].segment.type: segment type vxlan can't be served by this data plane (it serves vlan)"}},
		"backends": {some, lb.Service{Forward: lb.L2DSR, Backends: []lb.Backend{backend, backend}}, []string{
			"backends: 2 backends are too many: this data plane serves at most 1"}},
		"schedulers": {some, lb.Service{Scheduler: lb.SchedulerLC, FirewallMark: 1, Backends: []lb.Backend{{MaxConnections: 9}}}, []string{
			"scheduler: scheduler lc can't be served by this data plane (it serves maglev)",
			"firewallMark: 1 can't be served by this data plane",
			"backends[0].maxConnections: 9 can't be served by this data plane"}},
		"scheduled": {dataplane.Limits{Schedulers: []lb.Scheduler{lb.SchedulerLC}, Properties: []string{"firewallMark"}, MaxConnections: true, MaxBackends: 1},
			lb.Service{Scheduler: lb.SchedulerLC, FirewallMark: 1, Backends: []lb.Backend{{MaxConnections: 9}}}, nil},
		"all": {some, all, []string{
			"affinity: affinity client can't be served by this data plane (it serves flow)",
			"affinityTimeout: 1h0m0s can't be served by this data plane",
			"sources: a list of 1 prefixes can't be served by this data plane",
			"limits: newFlows 7, newFlowsPerSource 0 can't be served by this data plane",
			"tracking: full can't be served by this data plane",
			"idleTimeout: 1m0s can't be served by this data plane",
			"unavailable: reject can't be served by this data plane",
			"membership: 10.0.0.1 can't be served by this data plane",
			"backends[0].mac: 02:00:00:00:00:01 can't be served by this data plane",
			"backends[0].address: fd00::21 of another family than the VIP with l2dsr can't be served by this data plane"}},
		"either": {joined, lb.Service{Scheduler: lb.SchedulerLC}, nil},
		"first":  {joined, lb.Service{Forward: lb.DSR}, nil},
		"neither": {joined, lb.Service{Forward: lb.DSR, Scheduler: lb.SchedulerLC}, []string{
			"scheduler: scheduler lc can't be served by data plane a (it serves maglev)",
			"forward: forwarding mode dsr can't be served by data plane b (it serves nat): use nat, or data plane xdp"}},
		"one of them": {joined.Of("b"), lb.Service{Forward: lb.DSR}, []string{
			"forward: forwarding mode dsr can't be served by data plane b (it serves nat): use nat, or data plane xdp"}},
		"all of them": {joined.Of("auto"), lb.Service{Forward: lb.DSR}, nil},
		"nothing": {dataplane.Limits{}, lb.Service{Forward: lb.NAT}, []string{
			"forward: forwarding mode nat can't be served by this data plane (it serves none)"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range test.limits.Check(&test.service) {
				got = append(got, e.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
