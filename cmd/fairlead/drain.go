// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

const drainLong = `Take a backend, a service or the node out of service. New flows leave at once;
flows that are there already stay, until they end. It is remembered, also by the
next agent, until "fairlead undrain".

A drained backend gets no new flows; those that it has are recorded when they
send their next packet. Clients of a drained service meet what its "unavailable"
says. A drained node is not ready (/readyz); packets that come are balanced. What
is announced by BGP goes elsewhere first, and comes back with "fairlead undrain".`

func newDrainCommand(e env) *cobra.Command {
	d := drainer{env: e}
	return d.command("drain", "Take a backend, a service or the node out of service", drainLong,
		(*observe.Client).Drain, true)
}

func newUndrainCommand(e env) *cobra.Command {
	d := drainer{env: e}
	return d.command("undrain", "Take a backend, a service or the node into service again",
		"Take a backend, a service or the node into service again, at once.", (*observe.Client).Undrain, false)
}

// drainer is what "drain" and "undrain" have in common.
type drainer struct {
	env
	reader
	waiting drainWait
	change  func(*observe.Client, context.Context, observe.DrainTarget) error
}

// command makes the command with its three kinds of targets.
func (d *drainer) command(use, short, long string, change func(*observe.Client, context.Context, observe.DrainTarget) error, waits bool) *cobra.Command {
	d.change = change
	cmd := &cobra.Command{Use: use, Short: short, Long: long}
	for _, kind := range []struct {
		use, short string
		args       int
		target     func([]string) (observe.DrainTarget, error)
	}{
		{"backend SERVICE ADDRESS[:PORT]", "One backend of a service", 2, backendTarget},
		{"service NAME", "A whole service", 1, func(args []string) (observe.DrainTarget, error) {
			return observe.DrainTarget{Service: args[0]}, nil
		}},
		{"node", "This node", 0, func([]string) (observe.DrainTarget, error) {
			return observe.DrainTarget{}, nil
		}},
	} {
		sub := &cobra.Command{Use: kind.use, Short: kind.short, Long: kind.short + ". " + long, Args: cobra.ExactArgs(kind.args)}
		d.register(sub.Flags())
		if waits {
			d.waiting.register(sub.Flags())
		}
		sub.RunE = func(cmd *cobra.Command, args []string) error {
			target, err := kind.target(args)
			if err != nil {
				return err
			}
			return d.run(cmd.Context(), target, waits)
		}
		cmd.AddCommand(sub)
	}
	return cmd
}

// run changes the target, and shows how far its drain has come.
func (d *drainer) run(ctx context.Context, target observe.DrainTarget, drains bool) error {
	client := observe.Dial(d.socket)
	if err := d.change(client, ctx, target); err != nil {
		return err
	}
	if !drains {
		return nil
	}
	return d.waiting.follow(ctx, client, target, d.stdout, d.output)
}

// backendTarget reads a service's name and the address of one of its backends.
func backendTarget(args []string) (observe.DrainTarget, error) {
	target := observe.DrainTarget{Service: args[0]}
	if args[0] == "" {
		return target, errors.New("the service has no name")
	}
	if id, err := netip.ParseAddrPort(args[1]); err == nil {
		target.Backend = id
		return target, nil
	}
	address, err := netip.ParseAddr(args[1])
	if err != nil {
		return target, fmt.Errorf("backend %q: want an address, with or without port", args[1])
	}
	target.Backend = netip.AddrPortFrom(address, 0)
	return target, lb.CheckAddress(address)
}
