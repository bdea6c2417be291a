// SPDX-License-Identifier: Apache-2.0

// Package fake has inputs of the control plane's parts for tests, and receivers of their output:
// services, connections, logs, records of calls, and parts that run until the test ends. The data plane in
// memory is dataplanetest.Fake, an agent on it agenttest.Agent.
package fake

import (
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// VIP is TCP port 80 at an address.
func VIP(address string) lb.VIP {
	return lb.VIP{Address: netip.MustParseAddr(address), Port: 80, Protocol: lb.TCP}
}

// Numbered is TCP port 80 at the nth address of 10.1.0.0/16.
func Numbered(n int) lb.VIP {
	return lb.VIP{Address: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), Port: 80, Protocol: lb.TCP}
}

// Service is a service in the mode l2dsr whose backends have these addresses, the VIP's port and weight 1.
func Service(name string, vip lb.VIP, backends ...string) lb.Service {
	svc := lb.Service{Name: name, VIP: vip, Forward: lb.L2DSR, MinHealthy: 1}
	for _, b := range backends {
		svc.Backends = append(svc.Backends, lb.Backend{Address: netip.MustParseAddr(b), Port: vip.Port, Weight: 1})
	}
	return svc
}

// Checked is a service that has a TCP check with the interval and time-out of a second, by which one result decides.
func Checked(name string, vip lb.VIP, backends ...string) lb.Service {
	svc := Service(name, vip, backends...)
	svc.Health = &lb.HealthCheck{Type: lb.HealthTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}
	return svc
}
