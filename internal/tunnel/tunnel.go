// SPDX-License-Identifier: Apache-2.0

// Package tunnel ends balancers' tunnels on a worker. The command "node" calls it.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
)

// End decapsulates packets of balancers for VIPs on a worker's interface
// until ctx ends, and then logs its counters. With loopback the VIPs are on the
// worker's loopback meanwhile. HTTP requests to the address ready are answered, unless it is empty.
func End(ctx context.Context, device string, vips []lb.VIP, balancers []netip.Prefix, loopback bool, ready string, log *slog.Logger) (err error) {
	remove := func() error { return nil }
	if loopback {
		if remove, err = addToLoopback(vips); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, remove()) }()
	end, err := program.EndTunnels(program.TunnelConfig{Interface: device, VIPs: vips, Balancers: balancers, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end.Close()) }()
	if ready != "" {
		listener, err := net.Listen("tcp", ready)
		if err != nil {
			return err
		}
		defer listener.Close()
		go func() { _ = http.Serve(listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) }()
	}
	log.Info("ready", slog.String("interface", device), slog.String("mode", string(end.Mode())),
		slog.Int("vips", len(vips)), slog.Int("balancers", len(balancers)))
	<-ctx.Done()
	counters, err := end.Counters()
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	var packets []slog.Attr
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if counters[name] > 0 {
			packets = append(packets, slog.Uint64(name, counters[name]))
		}
	}
	log.Info("stopped, tunnels are no longer ended", slog.Any("packets", slog.GroupValue(packets...)))
	return nil
}

// addToLoopback puts the VIPs' addresses on the loopback, but for those that are there, and
// returns how they are removed.
func addToLoopback(vips []lb.VIP) (remove func() error, err error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("interface lo: %w", err)
	}
	var added []*netlink.Addr
	remove = func() (err error) {
		for _, a := range added {
			err = errors.Join(err, netlink.AddrDel(lo, a))
		}
		return err
	}
	for _, vip := range vips {
		bits := vip.Address.BitLen()
		a := &netlink.Addr{IPNet: &net.IPNet{IP: vip.Address.AsSlice(), Mask: net.CIDRMask(bits, bits)}}
		if vip.Address.Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		switch err := netlink.AddrAdd(lo, a); {
		case err == nil:
			added = append(added, a)
		case !errors.Is(err, unix.EEXIST):
			return nil, errors.Join(fmt.Errorf("vip %s: loopback: %w", vip, err), remove())
		}
	}
	return remove, nil
}
