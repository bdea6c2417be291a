// SPDX-License-Identifier: Apache-2.0

// Package tunnel is the other end of the data plane's tunnels, on a worker: it
// takes off the outer headers, of IP in IP and of GUE, of packets that balancers sent and hands the
// client's packet to the kernel, which has the VIP on a loopback.
//
// It serves kernels without tunnel devices, and any other: its program,
// bpf/node.bpf.c, runs as XDP. `fairlead node` wires it.
package tunnel

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"fairlead.io/fairlead/internal/dataplane/xdp/counter"
	"fairlead.io/fairlead/internal/dataplane/xdp/hook"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" node ../../../../bpf/node.bpf.c

// Config says which packets are opened. Everything else passes untouched.
type Config struct {
	// Interface is where the balancers' packets arrive; its addresses are the
	// tunnel's ends. Addresses that it gets later are not.
	Interface string
	// VIPs are the inner destinations; at least one.
	VIPs []netip.Addr
	// Balancers are the outer sources; at least one.
	Balancers []netip.Prefix
	Log       *slog.Logger
}

// End is a running tunnel end.
type End struct {
	objects  nodeObjects
	hook     hook.Hook
	counters counter.Set
}

// Attach ends tunnels on the interface until Close. Native XDP is used where
// the driver has it.
func Attach(cfg Config) (*End, error) {
	if len(cfg.VIPs) == 0 || len(cfg.Balancers) == 0 {
		return nil, errors.New("a tunnel end needs at least one VIP and one balancer")
	}
	dev, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", cfg.Interface, err)
	}
	local, err := addressesOf(dev)
	if err != nil {
		return nil, err
	}
	spec, err := loadNode()
	if err != nil {
		return nil, err
	}
	e := &End{}
	if err := spec.LoadAndAssign(&e.objects, nil); err != nil {
		return nil, fmt.Errorf("tunnel program: %w", err)
	}
	if e.counters, err = counter.New(spec.Types, "node_counter", "NODE_COUNTER_", e.objects.NodeCounters); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if err := e.fill(local, cfg); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if e.hook, err = hook.Attach(e.objects.EndTunnel, dev, hook.Auto); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	cfg.Log.Info("tunnel end attached", "interface", dev.Name, "mode", e.hook.Mode, "reason", e.hook.Reason)
	return e, nil
}

// addressesOf returns the addresses of an interface.
func addressesOf(dev *net.Interface) ([]netip.Addr, error) {
	prefixes, err := dev.Addrs()
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", dev.Name, err)
	}
	addresses := make([]netip.Addr, 0, len(prefixes))
	for _, p := range prefixes {
		prefix, err := netip.ParsePrefix(p.String())
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", dev.Name, err)
		}
		addresses = append(addresses, prefix.Addr())
	}
	return addresses, nil
}

// fill writes what the program compares packets with.
func (e *End) fill(local []netip.Addr, cfg Config) error {
	for _, a := range local {
		if err := e.objects.NodeAddresses.Put(a.As16(), uint8(1)); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	for _, vip := range cfg.VIPs {
		if err := e.objects.NodeVips.Put(vip.As16(), uint8(1)); err != nil {
			return fmt.Errorf("vip %s: %w", vip, err)
		}
	}
	for _, b := range cfg.Balancers {
		if err := e.objects.NodeBalancers.Put(prefixKey(b), uint8(1)); err != nil {
			return fmt.Errorf("balancer %s: %w", b, err)
		}
	}
	return nil
}

// prefixKey is a prefix with its address mapped into IPv6.
func prefixKey(p netip.Prefix) nodePrefix {
	length := p.Bits()
	if p.Addr().Is4() {
		length += 96
	}
	key := nodePrefix{Length: uint32(length)}
	key.Address.Bytes = p.Masked().Addr().As16()
	return key
}

// Mode says where in the kernel the program runs.
func (e *End) Mode() hook.Mode { return e.hook.Mode }

// Counters returns how many packets left the program by each exit.
func (e *End) Counters() (map[string]uint64, error) { return e.counters.Read() }

// Close detaches the program: packets are no longer opened.
func (e *End) Close() error {
	var err error
	if e.hook.Link != nil {
		err = e.hook.Link.Close()
	}
	return errors.Join(err, e.objects.Close())
}
