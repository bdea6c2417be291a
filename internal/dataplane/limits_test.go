// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"net/netip"
	"testing"

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
			"firewallMark: this data plane has no services by firewall mark",
			"backends[0].maxConnections: this data plane doesn't count the connections of backends"}},
		"scheduled": {dataplane.Limits{Schedulers: []lb.Scheduler{lb.SchedulerLC}, FirewallMarks: true, MaxConnections: true, MaxBackends: 1},
			lb.Service{Scheduler: lb.SchedulerLC, FirewallMark: 1, Backends: []lb.Backend{{MaxConnections: 9}}}, nil},
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
