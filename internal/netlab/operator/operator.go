// SPDX-License-Identifier: Apache-2.0

// Package operator does to the agents of a lab what their operators do: by their
// files and over their control sockets.
//
// In the story of DESIGN.md §1 it stands outside, as labs do; demonstrations and
// measurements share it.
package operator

import (
	"context"
	"fmt"

	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// Configure gives a balancer other settings and returns when they are programmed,
// or have failed.
func Configure(ctx context.Context, host *netlab.HostState, settings netlab.AgentSettings) error {
	if err := host.ReplaceFile(netlab.AgentFile, settings.YAML()); err != nil {
		return err
	}
	if err := observe.Dial(host.Socket).Reload(ctx); err != nil {
		return fmt.Errorf("%s: reload: %w", host.Name, err)
	}
	return nil
}
