// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

//go:generate go tool bpf2go -target bpfel node ../../../../bpf/node.bpf.c

// TunnelConfig selects the packets that are decapsulated. Everything else passes
// untouched.
type TunnelConfig struct {
	// Interface is where the balancers' packets arrive; its addresses are the
	// tunnel's ends. Addresses that it gets later are not.
	Interface string
	// VIPs are the destinations of inner packets; at least one, in no segment.
	VIPs []lb.VIP
	// Balancers are the outer sources; at least one.
	Balancers []netip.Prefix
	Log       *slog.Logger
}

// TunnelEnd is the other end of the data plane's tunnels, on a worker: it takes off the
// outer headers, of IP in IP and of GUE, of packets that balancers sent and hands the
// client's packet to the kernel, which has the VIP on a loopback. It serves kernels
// without tunnel devices, and any other: its program, bpf/node.bpf.c, runs as XDP.
type TunnelEnd struct {
	objects  nodeObjects
	hook     Attachment
	counters Counters
}

// EndTunnels ends tunnels on the interface until Close. Native XDP is used where
// the driver has it.
func EndTunnels(cfg TunnelConfig) (*TunnelEnd, error) {
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
	e := &TunnelEnd{}
	if err := spec.LoadAndAssign(&e.objects, nil); err != nil {
		return nil, fmt.Errorf("tunnel program: %w", err)
	}
	if e.counters, err = NewCounters(spec.Types, "node_counter", "NODE_COUNTER_", e.objects.NodeCounters); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if err := e.fill(local, cfg); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if e.hook, err = Attach(e.objects.EndTunnel, dev, Auto); err != nil {
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

// fill writes the addresses that the program compares packets with.
func (e *TunnelEnd) fill(local []netip.Addr, cfg TunnelConfig) error {
	for _, a := range local {
		if err := e.objects.NodeAddresses.Put(a.As16(), uint8(1)); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	for _, vip := range cfg.VIPs {
		fragment := lb.VIP{Address: vip.Address}
		for _, key := range []lb.VIP{vip, fragment} {
			if err := e.objects.NodeVips.Put(table.VIPKey(key), uint8(1)); err != nil {
				return fmt.Errorf("vip %s: %w", vip, err)
			}
		}
	}
	for _, b := range cfg.Balancers {
		if err := e.objects.NodeBalancers.Put(table.PrefixKey(b), uint8(1)); err != nil {
			return fmt.Errorf("balancer %s: %w", b, err)
		}
	}
	return nil
}

// Mode is where in the kernel the program runs.
func (e *TunnelEnd) Mode() Mode { return e.hook.Mode }

// Counters returns how many packets left the program by each exit.
func (e *TunnelEnd) Counters() (map[string]uint64, error) { return e.counters.Read() }

// Close detaches the program: packets are no longer opened.
func (e *TunnelEnd) Close() error {
	return errors.Join(e.hook.Close(), e.objects.Close())
}
