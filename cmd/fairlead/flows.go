// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
)

// defaultFlows is how many flows are listed unless more are asked for.
const defaultFlows = 100

func newFlowsCommand(e env) *cobra.Command {
	var r reader
	var o flowOptions
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "Show recorded flows: those that a change of backends might move",
		Long: `Show recorded flows, the latest first. Only flows that a change of backends might
move are recorded, and all flows of services with "tracking: full"; other
flows follow the ring ("fairlead trace" shows where).`,
		Example: "  fairlead flows --service web --client 192.0.2.0/24",
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
	}
	cmd.Flags().AddFlagSet(o.flags())
	cli.Complete(cmd, "service", completeNames(&r.socket, serviceNames))
	return showCommand(e, &r, cmd, func(agent *control.Client, ctx context.Context) ([]byte, error) { return agent.Flows(ctx, o.query) },
		observe.FormatFlows)
}

// flowOptions are the flags of "flows".
type flowOptions struct {
	query  control.FlowQuery
	client string
}

func (o *flowOptions) flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("flows", pflag.ContinueOnError)
	flags.StringVar(&o.query.Service, "service", "", "only flows of this service")
	flags.StringVar(&o.client, "client", "", "only flows of clients with this address or prefix")
	flags.IntVar(&o.query.Limit, "limit", defaultFlows, "maximum number of flows")
	return flags
}

// check parses the flags.
func (o *flowOptions) check() (err error) {
	if o.query.Client, err = prefix(o.client); err != nil {
		return fmt.Errorf("--client: %w", err)
	}
	if o.query.Limit < 1 {
		return fmt.Errorf("--limit %d: want at least 1", o.query.Limit)
	}
	return nil
}

// prefix reads a prefix, or an address as one of its full length; the empty text
// is the zero prefix.
func prefix(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	if address, err := netip.ParseAddr(text); err == nil {
		return address.Prefix(address.BitLen())
	}
	return netip.ParsePrefix(text)
}
