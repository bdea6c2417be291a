// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"testing"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/openstack"
	"fairlead.io/fairlead/test/e2e/harness"
)

// A load balancer that the driver creates answers: LB API, balancer, router and servers are real. Neutron and
// Octavia's database are the unit tests'; test/e2e/openstack has the real ones.
func TestAnswer(t *testing.T) {
	t.Parallel()
	harness.NeedRoot(t)
	python := filepath.Join(venv(t, "openstack"), "python")
	folder, err := filepath.Abs("../../octavia")
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, folder)
	cloud, err := openstack.UpAPIServer(t.Context(), openstack.Options{
		Labs: netlab.Labs{Dir: t.TempDir()}, Name: harness.LabName("answer"), Balancers: 1, Servers: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := harness.Adopt(t, cloud.Lab, cloud.Topology)
	vip := netip.MustParseAddr("10.1.1.10")
	macs := map[string]string{}
	for _, h := range l.Hosts(netlab.Server) {
		macs[h.Addresses[0].String()] = cloud.Topology.Host(h.Name).Interfaces[0].MAC.String()
		if err := cloud.AddVIPs(t.Context(), h.Name, netip.PrefixFrom(vip, vip.BitLen())); err != nil {
			t.Fatal(err)
		}
	}
	type network struct {
		VLAN int    `json:"vlan"`
		CIDR string `json:"cidr"`
	}
	lab, err := json.Marshal(map[string]any{
		"url": "https://" + openstack.APIAddress, "token": filepath.Join(cloud.Dir, "octavia.token"), "ca": filepath.Join(cloud.Dir, "server.crt"),
		"vip": vip, "vips": network{openstack.VIPVLAN, "10.1.1.0/24"}, "members": network{openstack.MemberVLAN, "10.0.4.0/24"}, "macs": macs,
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Run(t, openstack.Controller, "env", "-C", folder, "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=src", python, "-m", "tests.answer", string(lab))
	harness.Until(t, "the VIP answers", func() bool {
		_, err := l.Get(t.Context(), "client", harness.Origin(vip.String()))
		return err == nil
	})
	if answers := l.Gets(t, "client", harness.Origin(vip.String()), 40); answers["server1"] == 0 || answers["server2"] == 0 || len(answers) != 2 {
		t.Errorf("answers are %v", answers)
	}
	balancer := l.State().Host("lb1")
	if exits := harness.ExitsOf(t, balancer); exits["forward_l2dsr"] < 40*4 {
		t.Errorf("packets leave by %v", exits)
	}
}
