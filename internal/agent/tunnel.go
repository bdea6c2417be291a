// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
)

// EndTunnels decapsulates packets of balancers for VIPs on a worker's interface
// until ctx ends, and then logs its counters.
func EndTunnels(ctx context.Context, device string, vips []netip.Addr, balancers []netip.Prefix, log *slog.Logger) (err error) {
	end, err := program.EndTunnels(program.TunnelConfig{Interface: device, VIPs: vips, Balancers: balancers, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end.Close()) }()
	log.Info("ready", slog.String("interface", device), slog.String("mode", string(end.Mode())),
		slog.Int("vips", len(vips)), slog.Int("balancers", len(balancers)))
	<-ctx.Done()
	counters, err := end.Counters()
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	log.Info("stopped, tunnels are no longer ended", slog.Any("packets", slog.GroupValue(countAttrs(counters)...)))
	return nil
}

// countAttrs has the counters that are not zero, by name.
func countAttrs(counters map[string]uint64) []slog.Attr {
	var attrs []slog.Attr
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if counters[name] > 0 {
			attrs = append(attrs, slog.Uint64(name, counters[name]))
		}
	}
	return attrs
}
