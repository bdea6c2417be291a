// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"strings"
)

// RestartError says that a file changes what a running agent can't change.
type RestartError struct {
	// Changes names each such setting with what it was and what it would be.
	Changes []string
}

// Error names the settings.
func (e *RestartError) Error() string {
	return "the agent has to be restarted for this: " + strings.Join(e.Changes, "; ")
}

// checkReload returns a RestartError if a running agent can't go from c to
// next.
func (c *Config) checkReload(next *Config) error {
	var changes []string
	compare := func(name string, was, now any) {
		if a, b := fmt.Sprint(was), fmt.Sprint(now); a != b {
			changes = append(changes, fmt.Sprintf("%s was %s and would be %s", name, a, b))
		}
	}
	compare("node.name", c.Node.Name, next.Node.Name)
	compare("node.interfaces", c.Node.Interfaces, next.Node.Interfaces)
	compare("node.tunnelEnds", c.Node.TunnelEnds, next.Node.TunnelEnds)
	compare("node.nat.addresses", c.Node.NAT.Addresses, next.Node.NAT.Addresses)
	compare("node.nat.ports", c.Node.NAT.Ports, next.Node.NAT.Ports)
	compare("dataplane.kind", c.Dataplane.Kind, next.Dataplane.Kind)
	compare("dataplane.xdpMode", c.Dataplane.XDPMode, next.Dataplane.XDPMode)
	compare("dataplane.hashSeed", c.Dataplane.HashSeed, next.Dataplane.HashSeed)
	compare("dataplane.flows", c.Dataplane.Flows, next.Dataplane.Flows)
	compare("dataplane.natSessions", c.Dataplane.NATSessions, next.Dataplane.NATSessions)
	compare("observe.listen", c.Observe, next.Observe)
	compare("bgp", c.speaker(), next.speaker())
	if changes == nil {
		return nil
	}
	return &RestartError{Changes: changes}
}

// speaker names the BGP speaker that an agent is, whatever it announces to whom.
func (c *Config) speaker() string {
	if c.BGP == nil {
		return "absent"
	}
	return fmt.Sprintf("asn %d with routerID %s", c.BGP.ASN, c.BGP.RouterID)
}
