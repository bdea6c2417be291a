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
	var packets []slog.Attr
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if counters[name] > 0 {
			packets = append(packets, slog.Uint64(name, counters[name]))
		}
	}
	log.Info("stopped, tunnels are no longer ended", slog.Any("packets", slog.GroupValue(packets...)))
	return nil
}
