// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net"
	"net/netip"
	"testing"
)

// The node of the lab "snat", without agents: a connection to the reflector from one
// of its pods calls from the node's address, and gets an answer.
func TestPodsShareTheirNodesAddress(t *testing.T) {
	labs := newLabs(t)
	topology := snat(t, FRR, 2)
	topology.Probes, topology.Learned = nil, nil
	for i := range topology.Hosts {
		topology.Hosts[i].Processes = nil
	}
	lab := bringUp(t, labs, topology)
	var listener net.Listener
	to := netip.AddrPortFrom(addresses(serviceNetwork, reflectorNumber)[0], 179).String()
	err := lab.Do(reflectorName, func() (err error) {
		listener, err = net.Listen("tcp4", to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	node := addresses(serviceNetwork, nodeNumber)[0]
	seen := map[netip.AddrPort]bool{}
	for _, pod := range []string{"lb1", "lb2"} {
		conn, err := lab.Dial(t.Context(), pod, "tcp4", to)
		if err != nil {
			t.Fatalf("%s: %v", pod, err)
		}
		defer conn.Close()
		taken, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		from := netip.MustParseAddrPort(taken.RemoteAddr().String())
		if from.Addr() != node || seen[from] {
			t.Errorf("%s calls from %s, want another port of %s", pod, from, node)
		}
		seen[from] = true
	}
}

func TestSNATRefusesWhatItCannotDraw(t *testing.T) {
	for _, o := range []SNATOptions{
		{Balancers: 0, Servers: 1},
		{Balancers: 1, Servers: MaxServers + 1},
		{Balancers: 1, Servers: 1, Router: GoBGP},
	} {
		if _, err := SNAT(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// Rules that nft doesn't take are an error, and nothing is left.
func TestBadRulesAreRefused(t *testing.T) {
	labs := newLabs(t)
	topology := plain(1)
	topology.Host("router").Rules = "nonsense"
	if _, err := labs.Up(t.Context(), newLabName(), topology); err == nil {
		t.Error("no error")
	}
	if states, err := labs.List(); err != nil || len(states) > 0 {
		t.Errorf("labs are left: %v, %v", states, err)
	}
}
