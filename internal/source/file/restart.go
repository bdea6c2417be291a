// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"strings"
)

// RestartError says that a file changes what a running process can't change.
type RestartError struct {
	// Process is what runs: "agent", "reflector".
	Process string
	// Changes names each such setting with what it was and what it would be.
	Changes []string
}

// Error names the settings.
func (e *RestartError) Error() string {
	return "the " + e.Process + " has to be restarted for this: " + strings.Join(e.Changes, "; ")
}

// changes gathers settings that can't change while a process runs.
type changes []string

func (c *changes) compare(name string, was, now any) {
	if a, b := fmt.Sprint(was), fmt.Sprint(now); a != b {
		*c = append(*c, fmt.Sprintf("%s was %s and would be %s", name, a, b))
	}
}

// err is a RestartError; nil if nothing has changed.
func (c changes) err(process string) error {
	if c == nil {
		return nil
	}
	return &RestartError{Process: process, Changes: c}
}

// checkReload returns a RestartError if a running agent can't go from c to
// next.
func (c *Config) checkReload(next *Config) error {
	var changes changes
	changes.compare("node.name", c.Node.Name, next.Node.Name)
	changes.compare("node.interfaces", c.Node.Interfaces, next.Node.Interfaces)
	changes.compare("node.tunnelEnds", c.Node.TunnelEnds, next.Node.TunnelEnds)
	changes.compare("node.nat.addresses", c.Node.NAT.Addresses, next.Node.NAT.Addresses)
	changes.compare("node.nat.ports", c.Node.NAT.Ports, next.Node.NAT.Ports)
	changes.compare("dataplane.kind", c.Dataplane.Kind, next.Dataplane.Kind)
	changes.compare("dataplane.xdpMode", c.Dataplane.XDPMode, next.Dataplane.XDPMode)
	changes.compare("dataplane.hashSeed", c.Dataplane.HashSeed, next.Dataplane.HashSeed)
	changes.compare("dataplane.flows", c.Dataplane.Flows, next.Dataplane.Flows)
	changes.compare("dataplane.natSessions", c.Dataplane.NATSessions, next.Dataplane.NATSessions)
	changes.compare("observe.listen", c.Observe, next.Observe)
	changes.compare("bgp", c.speaker(), next.speaker())
	return changes.err("agent")
}

// speaker names the BGP speaker that an agent is, whatever it announces to whom.
func (c *Config) speaker() string {
	if c.BGP == nil {
		return "absent"
	}
	return fmt.Sprintf("asn %d with routerID %s", c.BGP.ASN, c.BGP.RouterID)
}
