// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
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
	// onRequest is set if the device is measured only if it is named: many kernels lack it.
	onRequest bool
	// programs are those that start runs.
	programs []string
	// start starts the device in its host, which it ends with; a Fairlead device
	// returns its data plane. Without a start the sink takes the device's place.
	start func(ctx context.Context, lab *netlab.Lab) (dataplane.DataPlane, error)
}

func (d device) host() string { return "device-" + d.name }

// devices are all that can be measured. The first is sender and sink alone.
func devices() []device {
	list := []device{
		{name: noDevice, role: netlab.Client},
		{name: reflectorDevice, role: netlab.Client, start: startReflector},
	}
	for _, mode := range xdp.Limits().Forwards {
		if mode == lb.DSR {
			continue // the servers' nodes translate, which are the devices with pods
		}
		list = append(list, fairlead(device{name: mode.String(), stateful: mode == lb.NAT}, mode))
	}
	return append(list,
		fairlead(device{name: podsDevice, stateful: true, pods: true}, lb.DSR),
		fairlead(device{name: filteredDevice, stateful: true, pods: true, filtered: true}, lb.DSR),
		device{name: iptablesDevice, role: netlab.Router, stateful: true, programs: []string{iptables()}, start: startIptables},
		device{name: nftablesDevice, role: netlab.Router, stateful: true, programs: []string{"nft"}, start: startNftables},
		throughIPVS(ipvsL2DSRDevice, lb.L2DSR),
		throughIPVS(ipvsNATDevice, lb.NAT),
	)
}

func deviceNames(list []device) []string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.name
	}
	return names
}

func startReflector(_ context.Context, lab *netlab.Lab) (dataplane.DataPlane, error) {
	return nil, onDevice(lab, reflectorDevice, wire.AttachBouncer)
}

// onDevice calls fn in the device's namespace with the index of its interface.
func onDevice(lab *netlab.Lab, name string, fn func(ifindex int) error) error {
	return lab.Do(device{name: name}.host(), func() error {
		dev, err := net.InterfaceByName(deviceInterface)
		if err != nil {
			return err
		}
		return fn(dev.Index)
	})
}

// fairlead returns a device with the XDP data plane in a forwarding mode, without an agent.
func fairlead(d device, mode lb.Forward) device {
	d.role = netlab.Balancer
	d.start = func(ctx context.Context, lab *netlab.Lab) (plane dataplane.DataPlane, err error) {
		// The directory in which netlab mounts a balancer's BPF file system.
		pins := filepath.Join(lab.State().Host(d.host()).Directory, "bpf", "bench")
		err = lab.Do(d.host(), func() error {
			plane, err = openXDP(ctx, pins, d, mode)
			return err
		})
		return plane, err
	}
	return d
}

// openXDP opens an XDP data plane that balances the VIP in both protocols.
func openXDP(ctx context.Context, pins string, d device, mode lb.Forward) (dataplane.DataPlane, error) {
	plane, err := xdp.Open(xdp.Config{
		PinDir: pins, Interfaces: []string{deviceInterface}, Mode: program.Native, Seed: 1, Log: slog.New(slog.DiscardHandler),
		NAT: natSource(), FilterPods: d.filtered,
	})
	if err != nil {
		return nil, err
	}
	if err = d.balance(ctx, plane, mode); err == nil {
		err = plane.Attach(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, plane.Close())
	}
	return plane, nil
}

// throughIPVS returns a device with the IPVS data plane in a forwarding mode, without an agent.
func throughIPVS(name string, mode lb.Forward) device {
	d := device{name: name, role: netlab.Router, stateful: true, onRequest: true}
	d.start = func(ctx context.Context, lab *netlab.Lab) (plane dataplane.DataPlane, err error) {
		err = startNAT(lab, name, func() error {
			opened, err := ipvs.Open(ipvs.Config{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			plane = opened
			return d.balance(ctx, plane, mode)
		})
		return plane, err
	}
	return d
}

// balance programs the VIP in both protocols, with all servers.
func (d device) balance(ctx context.Context, plane dataplane.DataPlane, mode lb.Forward) error {
	for _, protocol := range []lb.Protocol{lb.UDP, lb.TCP} {
		svc := &lb.Service{VIP: vip(protocol), Forward: mode, MinHealthy: 1}
		for _, address := range d.servers() {
			svc.Backends = append(svc.Backends, bench.Backend(mode, address))
		}
		programmed, err := plane.Update(ctx, svc)
		if err == nil && programmed.InUse() != len(svc.Backends) {
			err = errors.New("a backend is not in use: " + programmed.Backends[0].Reason)
		}
		if err != nil {
			return err
		}
	}
	return nil
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

// startIptables and startNftables start the kernel's NAT with one rule for each
// protocol, its best case: new flows get slower with every rule; established ones
// only use the connection table.
func startIptables(ctx context.Context, lab *netlab.Lab) (dataplane.DataPlane, error) {
	var rules []string
	for _, protocol := range []string{"udp", "tcp"} {
		rules = append(rules, fmt.Sprintf("-t nat -A PREROUTING -d %s -p %s --dport 80 -j DNAT --to-destination %s-%s",
			vipAddress, protocol, firstBackend, lastBackend))
	}
	return nil, startNAT(lab, iptablesDevice, func() error {
		for _, rule := range rules {
			if err := command(ctx, "", iptables(), append([]string{"-w"}, strings.Fields(rule)...)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// iptables is the native one if it is installed; the other one translates to nftables.
func iptables() string {
	if _, err := exec.LookPath("iptables-legacy"); err == nil {
		return "iptables-legacy"
	}
	return "iptables"
}

func startNftables(ctx context.Context, lab *netlab.Lab) (dataplane.DataPlane, error) {
	rules := fmt.Sprintf(`table ip bench {
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr %[1]s udp dport 80 dnat to %[2]s-%[3]s
		ip daddr %[1]s tcp dport 80 dnat to %[2]s-%[3]s
	}
}
`, vipAddress, firstBackend, lastBackend)
	return nil, startNAT(lab, nftablesDevice, func() error { return command(ctx, rules, "nft", "-f", "-") })
}

// startNAT calls rules in a host that forwards.
func startNAT(lab *netlab.Lab, name string, rules func() error) error {
	return onDevice(lab, name, func(ifindex int) error {
		// The interface takes frames from the sender by a program, which costs less
		// than receive offload.
		if err := wire.AttachSwitch(ifindex); err != nil {
			return err
		}
		if err := rules(); err != nil {
			return err
		}
		// A network card has verified checksums already.
		return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_checksum", []byte("0"), 0o644)
	})
}

// command runs a program in the calling thread's namespace.
func command(ctx context.Context, input, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w %s", strings.Join(append([]string{name}, args...), " "), err, bytes.TrimSpace(out))
	}
	return nil
}
