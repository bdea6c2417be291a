// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/dataplane/xdp/tunnel"
)

// nodeOptions are the flags of "node".
type nodeOptions struct {
	device          string
	vips, balancers []string
	format          logFormat
}

func newNodeCommand(e env) *cobra.Command {
	o := nodeOptions{format: logText}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "End the balancers' tunnels on a worker",
		Long: `End the balancers' tunnels on a worker that has no tunnel device: packets that
balancers sent by ipip or gue are unpacked and handed to the kernel, until
SIGTERM. The VIPs have to be on a loopback of the worker.`,
		Example: "  fairlead node --interface eth0 --vip 10.1.1.1 --balancer 10.0.2.0/24",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.device, "interface", "", "where the balancers' packets arrive (required)")
	flags.StringSliceVar(&o.vips, "vip", nil, "address that is served here (required; may be repeated)")
	flags.StringSliceVar(&o.balancers, "balancer", nil, "prefix of the balancers' addresses; tunnels from elsewhere are not ended (required; may be repeated)")
	flags.Var(&o.format, "log-format", "text or json")
	for _, name := range []string{"interface", "vip", "balancer"} {
		_ = cmd.MarkFlagRequired(name) // fails only for a flag that isn't there
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.Context(), o.format.logger(e.stderr))
	}
	return cmd
}

// run ends tunnels until ctx ends. What was counted is logged then.
func (o nodeOptions) run(ctx context.Context, log *slog.Logger) (err error) {
	cfg := tunnel.Config{Interface: o.device, Log: log}
	if cfg.VIPs, err = parseEach("vip", o.vips, netip.ParseAddr); err != nil {
		return err
	}
	if cfg.Balancers, err = parseEach("balancer", o.balancers, netip.ParsePrefix); err != nil {
		return err
	}
	end, err := tunnel.Attach(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end.Close()) }()
	log.Info("ready", slog.String("interface", o.device), slog.String("mode", string(end.Mode())),
		slog.Int("vips", len(cfg.VIPs)), slog.Int("balancers", len(cfg.Balancers)))
	<-ctx.Done()
	counters, err := end.Counters()
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	log.Info("stopped, tunnels are no longer ended", slog.Any("packets", slog.GroupValue(countAttrs(counters)...)))
	return nil
}

// parseEach reads the values of a flag.
func parseEach[T any](flag string, texts []string, parse func(string) (T, error)) ([]T, error) {
	values := make([]T, len(texts))
	for i, text := range texts {
		value, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		values[i] = value
	}
	return values, nil
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
