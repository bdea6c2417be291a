// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// Drawn is a lab as it was drawn, whatever has become of it.
type Drawn struct{ Topology netlab.Topology }

// Service returns the service of the lab with that name.
func (d *Drawn) Service(name string) *lb.Service {
	i := slices.IndexFunc(d.Topology.Services, func(s lb.Service) bool { return s.Name == name })
	return &d.Topology.Services[i]
}

// Changed returns the services of the lab after change was applied to each.
func (d *Drawn) Changed(change func(s *lb.Service)) []lb.Service {
	all := slices.Clone(d.Topology.Services)
	for i := range all {
		all[i].Backends = slices.Clone(all[i].Backends)
		change(&all[i])
	}
	return all
}

// Checked returns the lab's services; web services have a health check and reject
// clients while no backend is in use.
func (d *Drawn) Checked(check lb.HealthCheck) []lb.Service {
	services := slices.Clone(d.Topology.Services)
	for i := range services {
		if s := &services[i]; s.Protocol == lb.TCP {
			s.Health, s.Unavailable = &check, lb.Reject
		}
	}
	return services
}

// Config returns the configuration file of a balancer with other services.
func (d *Drawn) Config(host string, services []lb.Service) string {
	return d.Topology.Host(host).Agent.With(services).YAML()
}

// Process returns the process of the topology with that name in a host.
func (d *Drawn) Process(t *testing.T, host, name string) netlab.Process {
	t.Helper()
	processes := d.Topology.Host(host).Processes
	i := slices.IndexFunc(processes, func(p netlab.Process) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("%s runs no %s", host, name)
	}
	return processes[i]
}

// Address returns the address of a host in the network of router and balancers.
func (d *Drawn) Address(host string) netip.Addr {
	interfaces := d.Topology.Host(host).Interfaces
	return interfaces[len(interfaces)-1].Addresses[0].Addr()
}
