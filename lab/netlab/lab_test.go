// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/lb"
)

// Up returns only after every server has answered through the router's routes,
// for both services and both families.
func TestRouterSpreadsOverServers(t *testing.T) {
	labs := newLabs(t)
	lab := bringUp(t, labs, plain(3))

	states, err := labs.List()
	if err != nil || len(states) != 1 || !states[0].Ready {
		t.Fatalf("list: %+v, %v: want one lab that is ready", states, err)
	}
	for _, h := range lab.State().Hosts {
		if !namespace(h.Namespace).exists() {
			t.Errorf("host %s: no namespace %s", h.Name, h.Namespace)
		}
	}
	removeAll(t, labs, lab)
}

// removeAll takes a lab down, and reports its remains.
func removeAll(t *testing.T, labs Labs, lab *Lab) {
	t.Helper()
	state := lab.State()
	if err := lab.Down(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkGone(t, labs, state)
}

// checkGone reports the remains of a lab.
func checkGone(t *testing.T, labs Labs, state State) {
	t.Helper()
	for _, h := range state.Hosts {
		if namespace(h.Namespace).exists() {
			t.Errorf("namespace %s is left", h.Namespace)
		}
		for _, p := range h.Processes {
			if p.running() != nil {
				t.Errorf("host %s: process %s (%d) still runs", h.Name, p.Name, p.PID)
			}
		}
	}
	entries, err := os.ReadDir(labs.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 {
		t.Errorf("%s is left", entries)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for _, mine := range []string{labs.Dir, "/fl-" + state.Name + "-"} {
		if strings.Contains(string(mounts), mine) {
			t.Errorf("a mount of %s is left", mine)
		}
	}
}

func TestUpRefusesNamesInUse(t *testing.T) {
	labs := newLabs(t)
	lab := bringUp(t, labs, plain(1))
	name := lab.State().Name
	if _, err := labs.Up(t.Context(), name, plain(1)); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("same place: got %v, want that it already exists", err)
	}
	elsewhere := newLabs(t)
	if _, err := elsewhere.Up(t.Context(), name, plain(1)); err == nil || !strings.Contains(err.Error(), "exists and is not a lab's") {
		t.Errorf("another place: got %v, want that the namespace exists", err)
	}
	if got, err := lab.query(t.Context(), plain(1).Probes[0]); got != "server1" || err != nil {
		t.Errorf("the lab is disturbed: it answers %q, %v", got, err)
	}
	if _, err := labs.Up(t.Context(), "../x", plain(1)); err == nil {
		t.Error("bad name: no error")
	}
	if _, err := labs.Open(newLabName()); err == nil {
		t.Error("open of a lab that isn't there: no error")
	}
}

// The balancers' side of ecmp, without agents: links, addresses, features and
// the BPF file system.
func TestBalancerHosts(t *testing.T) {
	labs := newLabs(t)
	topology := drawn(t, ECMP, ECMPOptions{Forward: lb.L2DSR, Balancers: 2, Servers: 1})
	topology.Probes = nil
	for i := range topology.Hosts {
		topology.Hosts[i].Processes = nil
	}
	lab := bringUp(t, labs, topology)

	balancer := lab.State().Host("lb1")
	text, err := os.ReadFile(balancer.Directory + "/" + AgentFile)
	if err != nil || !strings.Contains(string(text), "name: lb1") {
		t.Errorf("configuration: %q, %v", text, err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || !strings.Contains(string(mounts), balancer.Directory+"/bpf bpf") {
		t.Errorf("no BPF file system in %s: %v", balancer.Directory, err)
	}
	checkWires(t, lab, topology)
	checkMultipath(t, lab)
}

func checkWires(t *testing.T, lab *Lab, topology Topology) {
	t.Helper()
	for _, h := range topology.Hosts {
		err := lab.Do(h.Name, func() error {
			tool, err := ethtool.NewEthtool()
			if err != nil {
				return err
			}
			defer tool.Close()
			for _, i := range h.Interfaces {
				features, err := tool.Features(i.Name)
				if err != nil {
					return err
				}
				if features["tx-checksum-ip-generic"] || features["tx-vlan-hw-insert"] || features["tx-tcp-segmentation"] {
					t.Errorf("host %s: interface %s: an offload is on", h.Name, i.Name)
				}
				link, err := netlink.LinkByName(i.Name)
				if err != nil {
					return err
				}
				// A program must receive frames that a balancer sends by XDP_TX.
				want := h.Role == Switch && strings.HasPrefix(i.Name, "lb")
				if got := link.Attrs().Xdp != nil && link.Attrs().Xdp.Attached; got != want {
					t.Errorf("host %s: interface %s: XDP is %v, want %v", h.Name, i.Name, got, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func checkMultipath(t *testing.T, lab *Lab) {
	t.Helper()
	want := [][]string{{"10.0.2.11", "10.0.2.12"}, {"fd00:2::11", "fd00:2::12"}}
	err := lab.Do("router", func() error {
		for family, vip := range vips() {
			routes, err := netlink.RouteGetWithOptions(vip.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
			if err != nil {
				return err
			}
			var got []string
			for _, hop := range routes[0].MultiPath {
				got = append(got, hop.Gw.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, want[family]) {
				t.Errorf("router: gateways of %s: %v, want %v", vip, got, want[family])
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
