// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"reflect"

	"github.com/goccy/go-yaml"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// mapping returns the fields, names and values in turn, without zero values; a pointer to
// a zero value isn't one.
func mapping(fields ...any) yaml.MapSlice {
	var m yaml.MapSlice
	for i := 0; i < len(fields); i += 2 {
		if v := reflect.ValueOf(fields[i+1]); v.IsValid() && !v.IsZero() {
			m = append(m, yaml.MapItem{Key: fields[i], Value: fields[i+1]})
		}
	}
	return m
}

func yamlText(m yaml.MapSlice) string {
	text, err := yaml.MarshalWithOptions(m, yaml.IndentSequence(true))
	if err != nil {
		panic(err) // never: all values have a form
	}
	return string(text)
}

// serviceSection is a service of the configuration file. Its health check, limits and
// segments have the names of the file in JSON.
func serviceSection(s lb.Service) yaml.MapSlice {
	backends := []yaml.MapSlice{}
	for i := range s.Backends {
		b := &s.Backends[i]
		backends = append(backends, mapping(
			"address", b.Address, "port", b.Port, "weight", &b.Weight, "node", b.Node, "tunnelEnd", b.TunnelEnd,
			"mac", b.MAC, "segment", b.Segment, "serverID", b.ServerID,
		))
	}
	return mapping(
		"name", s.Name, "address", s.Address, "port", s.Port, "protocol", s.Protocol, "segment", s.Segment,
		"forward", s.Forward, "affinity", s.Affinity, "quic", s.QUIC, "unavailable", s.Unavailable, "minHealthy", s.MinHealthy,
		"tracking", s.Tracking, "idleTimeout", s.IdleTimeout, "learn", s.Learn,
		"health", s.Health, "limits", s.Limits, "sources", mapping("allow", s.Sources.Allow, "deny", s.Sources.Deny),
		"backends", &backends,
	)
}

func bgpSection(c *bgp.Config) yaml.MapSlice {
	if c == nil {
		return nil
	}
	var peers, policies []yaml.MapSlice
	for i := range c.Peers {
		peers = append(peers, peerSection(&c.Peers[i]))
	}
	for i := range c.Policies {
		policies = append(policies, policySection(&c.Policies[i]))
	}
	return mapping("asn", c.ASN, "routerID", c.RouterID, "shutdownDelay", &c.ShutdownDelay, "peers", peers, "announce", policies)
}

func peerSection(p *bgp.Peer) yaml.MapSlice {
	return mapping(
		"address", p.Address, "asn", p.ASN, "ttlSecurity", p.TTLSecurity, "holdTime", &p.HoldTime, "restartTime", &p.RestartTime,
		"bfd", bfdSection(p.BFD), "passwordFile", p.Password.File, "passwordEnv", p.Password.Env,
	)
}

func bfdSection(b *bgp.BFD) yaml.MapSlice {
	if b == nil {
		return nil
	}
	return mapping("interval", b.Interval, "multiplier", b.Multiplier)
}

func policySection(p *bgp.Policy) yaml.MapSlice {
	return mapping(
		"prefixes", p.Prefixes, "vlan", p.VLAN, "aggregate", p.Aggregate, "nextHop4", p.NextHop4, "nextHop6", p.NextHop6, "med", p.MED,
	)
}
