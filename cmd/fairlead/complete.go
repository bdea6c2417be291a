// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
)

// completionTimeout bounds how long a shell waits for an agent.
const completionTimeout = 2 * time.Second

// completeFiles has a shell complete the names of files.
func completeFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completeInterfaces completes the names of this machine's interfaces.
func completeInterfaces(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		names = append(names, i.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// argumentNames returns the names that an argument may have, after those before it.
type argumentNames func(ctx context.Context, agent *control.Client, args []string) []cobra.Completion

// completeNames completes each argument, or the value of a flag; with nothing if no agent
// answers.
func completeNames(socket *string, names ...argumentNames) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found := names[len(args)](ctx, control.Dial(*socket), args)
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
	}
}

// read decodes an agent's answer; the zero value without one.
func read[T any](answer []byte, err error) (state T) {
	if err == nil {
		_ = json.Unmarshal(answer, &state) // a shell shows no error
	}
	return state
}

// serviceNames returns the names of all services.
func serviceNames(ctx context.Context, agent *control.Client, _ []string) []cobra.Completion {
	var names []cobra.Completion
	for _, s := range read[[]observe.Service](agent.Services(ctx)) {
		names = append(names, s.Name)
	}
	return names
}

// backendNames returns the backends of the service that is the first argument.
func backendNames(ctx context.Context, agent *control.Client, args []string) []cobra.Completion {
	var names []cobra.Completion
	for _, b := range read[[]observe.Backend](agent.Backends(ctx, args[0])) {
		names = append(names, netip.AddrPortFrom(b.Address, b.Port).String())
	}
	return names
}

// drainedServices are those that are drained as a whole.
func drainedServices(ctx context.Context, agent *control.Client, _ []string) []cobra.Completion {
	return drained(ctx, agent, func(t control.Target) string {
		if t.Backend.IsValid() {
			return ""
		}
		return t.Service
	})
}

// servicesWithDrains are those with a drained backend.
func servicesWithDrains(ctx context.Context, agent *control.Client, _ []string) []cobra.Completion {
	return drained(ctx, agent, func(t control.Target) string {
		if !t.Backend.IsValid() {
			return ""
		}
		return t.Service
	})
}

// drainedBackends returns the drained backends of the service that is the first
// argument.
func drainedBackends(ctx context.Context, agent *control.Client, args []string) []cobra.Completion {
	return drained(ctx, agent, func(t control.Target) string {
		if !t.Backend.IsValid() || t.Service != args[0] {
			return ""
		}
		return t.Backend.String()
	})
}

// drained returns a name of each drain that has one.
func drained(ctx context.Context, agent *control.Client, name func(control.Target) string) []cobra.Completion {
	var names []cobra.Completion
	for _, d := range read[[]observe.Drain](agent.Drains(ctx)) {
		if n := name(d.Target); n != "" {
			names = append(names, n)
		}
	}
	return names
}
