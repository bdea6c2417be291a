// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/ipvs"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/wire"
)

// Names of devices that ratios are made of. A Fairlead device has the name of
// its forwarding mode.
const (
	noDevice        = "none"
	reflectorDevice = "reflector"
	l2dsrDevice     = "l2dsr"
	natDevice       = "nat"
	iptablesDevice  = "iptables"
	nftablesDevice  = "nftables"
	// The scenarios of the Kakao paper, section VI.A, and its comparison with 128 rules.
	scenarioA   = "l2dsr-a"
	scenarioB   = "l2dsr-b"
	iptables128 = "iptables-128"
	// The devices with pods: past netfilter, as by default, and through it.
	podsDevice     = "pods"
	filteredDevice = "filtered"
	// The devices with the kernel's IPVS.
	ipvsL2DSRDevice = "ipvs-l2dsr"
	ipvsNATDevice   = "ipvs-nat"
)

// device balances a VIP.
type device struct {
	name string
	role netlab.Role
	// stateful is set if the device keeps a record of every flow.
	stateful bool
	// pods says that the servers are pods of the device, behind an interface of their own, and
	// filtered that packets for them pass its netfilter.
	pods, filtered bool
	// vips is the number of VIPs of each protocol; 0: one.
	vips int
	// hosts is the number of servers that all VIPs share out in a scenario of the Kakao paper, each
	// with a MAC address and a VLAN of its own; 0: each VIP has the same 16 servers.
	hosts int
	// onRequest is set if the device is measured only if it is named: many kernels lack it.
	onRequest bool
	// rules are the device's nftables rules.
	rules string
	// programs are those that start runs.
	programs []string
	// start starts the device on a thread in its namespace, with the index of its interface; it
	// ends with the namespace. A Fairlead device returns its data plane. Without a start the
	// sink takes the device's place.
	start func(ctx context.Context, t *testbed, ifindex int) (dataplane.DataPlane, error)
}

// devices are all that can be measured. The first is sender and sink alone.
func devices() []device {
	list := []device{
		{name: noDevice, role: netlab.Client},
		{name: reflectorDevice, role: netlab.Client, start: func(_ context.Context, _ *testbed, ifindex int) (dataplane.DataPlane, error) {
			return nil, wire.AttachBouncer(ifindex)
		}},
	}
	for _, mode := range xdp.Limits().Forwards {
		if mode == lb.DSR {
			continue // the servers' nodes translate, which are the devices with pods
		}
		list = append(list, fairlead(device{name: mode.String(), stateful: mode == lb.NAT}, mode))
	}
	return append(list,
		fairlead(device{name: podsDevice, stateful: true, pods: true, rules: podRules}, lb.DSR),
		fairlead(device{name: filteredDevice, stateful: true, pods: true, filtered: true, rules: podRules}, lb.DSR),
		inKernel(device{name: iptablesDevice, programs: []string{bench.IPTables()}}, addIPTables),
		inKernel(device{name: nftablesDevice, rules: natRules}, nil),
		inKernel(device{name: ipvsL2DSRDevice, onRequest: true}, openIPVS(lb.L2DSR)),
		inKernel(device{name: ipvsNATDevice, onRequest: true}, openIPVS(lb.NAT)),
		fairlead(device{name: scenarioA, hosts: 255}, lb.L2DSR),
		fairlead(device{name: scenarioB, vips: 128, hosts: 4000}, lb.L2DSR),
		inKernel(device{name: iptables128, vips: 128, programs: []string{bench.IPTables()}}, addIPTables),
	)
}

// in reports whether the device is measured under these conditions.
func (d device) in(c conditions) bool {
	switch {
	case c.two:
		return runtime.NumCPU() > 1 && slices.Contains(onTwo, d.name)
	case d.role == netlab.Client:
		return true
	}
	return c.tagged == (d.hosts > 0 || d.name == iptables128)
}

// vip is VIP i of a protocol.
func (d device) vip(protocol lb.Protocol, i int) lb.VIP {
	address := vipAddress.As4()
	address[3] += byte(i)
	vip := lb.VIP{Address: netip.AddrFrom4(address), Port: 80, Protocol: protocol}
	if d.hosts > 0 {
		vip.Segment = lb.Segment{Type: lb.SegmentVLAN, ID: clientVLAN}
	}
	return vip
}

// fairlead returns a device with the XDP data plane in a forwarding mode, without an agent.
func fairlead(d device, mode lb.Forward) device {
	d.role = netlab.Balancer
	d.start = func(ctx context.Context, t *testbed, _ int) (dataplane.DataPlane, error) {
		plane, err := xdp.Open(xdp.Config{
			// The directory in which netlab mounts a balancer's BPF file system.
			PinDir:     filepath.Join(t.lab.State().Host(deviceHost).Directory, "bpf", "bench"),
			Interfaces: []string{deviceInterface}, Mode: program.Native, Seed: 1, Log: slog.New(slog.DiscardHandler),
			NAT: natSource(), FilterPods: d.filtered,
		})
		if err != nil {
			return nil, err
		}
		if err = t.device.balance(ctx, plane, mode); err == nil {
			err = plane.Attach(ctx)
		}
		return plane, err
	}
	return d
}

// balance programs the VIPs in both protocols, with all servers.
func (d device) balance(ctx context.Context, plane dataplane.DataPlane, mode lb.Forward) error {
	for i := range max(1, d.vips) {
		for _, protocol := range []lb.Protocol{lb.UDP, lb.TCP} {
			svc := &lb.Service{VIP: d.vip(protocol, i), Forward: mode, MinHealthy: 1, Backends: d.backends(mode, i)}
			programmed, err := plane.Update(ctx, svc)
			if err == nil && programmed.InUse() != len(svc.Backends) {
				err = errors.New("a backend is not in use: " + programmed.Backends[0].Reason)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// backends are the servers of VIP i. In a scenario the VIPs get the servers in turn, so that each
// server has one VIP.
func (d device) backends(mode lb.Forward, i int) (list []lb.Backend) {
	if d.hosts == 0 {
		for _, address := range d.servers() {
			list = append(list, bench.Backend(mode, address))
		}
		return list
	}
	for n := i; n < d.hosts; n += max(1, d.vips) {
		high, low := byte(n>>8), byte(n)
		b := bench.Backend(mode, netip.AddrFrom4([4]byte{10, 0, 16 + high, low}))
		b.MAC, b.Segment = lb.MAC{2, 0, 0, 5, high, low}, lb.Segment{Type: lb.SegmentVLAN, ID: uint32(n + 1)}
		list = append(list, b)
	}
	return list
}

// natSource has more ports than all sessions need at one backend, so that a new flow
// finds a free one at once.
func natSource() xdp.NAT {
	source := xdp.NAT{FirstPort: 1024, LastPort: 65535}
	for a := netip.MustParseAddr("10.0.2.128"); len(source.Addresses) < 8; a = a.Next() {
		source.Addresses = append(source.Addresses, a)
	}
	return source
}

// inKernel returns a device whose kernel forwards, by rules or after a start.
func inKernel(d device, start func(context.Context, *testbed) (dataplane.DataPlane, error)) device {
	d.role, d.stateful = netlab.Router, true
	d.start = func(ctx context.Context, t *testbed, ifindex int) (plane dataplane.DataPlane, err error) {
		// The interface takes frames from the sender by a program, which costs less than
		// receive offload.
		if err := wire.AttachSwitch(ifindex); err != nil {
			return nil, err
		}
		if start != nil {
			if plane, err = start(ctx, t); err != nil {
				return plane, err
			}
		}
		// A network card has verified checksums already.
		return plane, os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_checksum", []byte("0"), 0o644)
	}
	return d
}

// openIPVS opens the IPVS data plane in a forwarding mode, without an agent.
func openIPVS(mode lb.Forward) func(context.Context, *testbed) (dataplane.DataPlane, error) {
	return func(ctx context.Context, t *testbed) (dataplane.DataPlane, error) {
		plane, err := ipvs.Open(ipvs.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		return plane, t.device.balance(ctx, plane, mode)
	}
}

// addIPTables and natRules are one rule for each VIP and protocol. One VIP is the kernel's best
// case: new flows get slower with every rule; established ones only use the connection table.
func addIPTables(ctx context.Context, t *testbed) (dataplane.DataPlane, error) {
	var vips []string
	for i := range max(1, t.device.vips) {
		vips = append(vips, t.device.vip(lb.UDP, i).Address.String())
	}
	for _, protocol := range []string{"udp", "tcp"} {
		_, err := t.lab.Run(ctx, deviceHost, bench.IPTables(), "-w", "-t", "nat", "-A", "PREROUTING", "-d", strings.Join(vips, ","), "-p", protocol,
			"--dport", "80", "-j", "DNAT", "--to-destination", fmt.Sprintf("%s-%s", firstBackend, lastBackend))
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

const natRules = `table ip bench {
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr 10.1.1.1 udp dport 80 dnat to 10.0.2.21-10.0.2.36
		ip daddr 10.1.1.1 tcp dport 80 dnat to 10.0.2.21-10.0.2.36
	}
}
`

// podRules let in packets that a network policy would permit.
const podRules = `table ip policy_bench {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state invalid drop
		ct state established,related accept
		ip daddr 10.244.0.0/24 udp dport 80 accept
		ip daddr 10.244.0.0/24 tcp dport 80 accept
	}
}
`
