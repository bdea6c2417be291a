// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/observe"
)

// sessionPause is between two looks at an agent's sessions.
const sessionPause = 20 * time.Millisecond

// AwaitSessions waits until every BGP session of the agents behind these control
// sockets is established, and if the peers have BFD watched by it: what happens
// before that is noticed later than it should be. All of them have peers; one that
// has none yet is starting. It says what it waits for if ctx ends.
func AwaitSessions(ctx context.Context, sockets []string, bfd bool) error {
	for _, socket := range sockets {
		for {
			waits, err := sessionsWaitFor(ctx, socket, bfd)
			if err == nil && waits == "" {
				break
			}
			select {
			case <-time.After(sessionPause):
			case <-ctx.Done():
				return errors.Join(fmt.Errorf("%s: waits for %s", socket, waits), err, ctx.Err())
			}
		}
	}
	return nil
}

// sessionsWaitFor names a peer that isn't as it should be, with its state; empty
// if there is none.
func sessionsWaitFor(ctx context.Context, socket string, bfd bool) (string, error) {
	text, err := observe.Dial(socket).Routes(ctx)
	if err != nil {
		return "the agent", err
	}
	var routes observe.Routes
	if err := json.Unmarshal(text, &routes); err != nil {
		return "the agent", err
	}
	if len(routes.Peers) == 0 {
		return "peers", nil
	}
	for _, p := range routes.Peers {
		if p.State != bgp.Established {
			return fmt.Sprintf("peer %s: %s: %s", p.Address, p.State, p.Reason), nil
		}
		if bfd && p.BFD != bgp.BFDUp {
			return fmt.Sprintf("peer %s: BFD %s: %s", p.Address, p.BFD, p.BFDReason), nil
		}
	}
	return "", nil
}
