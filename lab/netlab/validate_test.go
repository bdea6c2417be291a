// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/lb"
)

// maxInterfaceName fits IFNAMSIZ with its final zero.
const (
	maxInterfaceName = 15
	maxVLAN          = 4094
	maxVNI           = 1<<24 - 1
)

var interfaceSyntax = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)

// Validate returns all problems of the topology, nil if it can be built. Up leaves
// them to the kernel.
func (t *Topology) Validate() error {
	var errs []error
	names := map[string]bool{}
	macs := map[lb.MAC]End{}
	for i := range t.Hosts {
		h := &t.Hosts[i]
		if names[h.Name] {
			errs = append(errs, fmt.Errorf("host %s: name used twice", h.Name))
		}
		names[h.Name] = true
		for _, err := range h.problems(macs) {
			errs = append(errs, fmt.Errorf("host %s: %w", h.Name, err))
		}
	}
	errs = append(errs, t.linkProblems()...)
	for _, r := range t.Learned {
		if !names[r.Host] || !r.Prefix.IsValid() {
			errs = append(errs, fmt.Errorf("learned route %s: no host %s, or no prefix", r.Prefix, r.Host))
		}
	}
	for _, p := range t.Probes {
		if !names[p.From] {
			errs = append(errs, fmt.Errorf("probe of %s: no host %s", p.Address, p.From))
		}
		if p.Protocol != lb.TCP && p.Protocol != lb.UDP {
			errs = append(errs, fmt.Errorf("probe of %s: no such protocol", p.Address))
		}
	}
	return errors.Join(errs...)
}

// problems checks one host; macs collects the addresses of all hosts.
func (h *Host) problems(macs map[lb.MAC]End) []error {
	errs := []error{CheckName(h.Name)}
	if !slices.Contains([]Role{Client, Router, Switch, Balancer, Server, Reflector}, h.Role) {
		errs = append(errs, fmt.Errorf("unknown role %q", h.Role))
	}
	seen := map[string]bool{"lo": true, bridgeName: h.Role == Switch}
	for _, i := range h.Interfaces {
		if seen[i.Name] {
			errs = append(errs, fmt.Errorf("interface %s: name used twice", i.Name))
		}
		seen[i.Name] = true
		if other, taken := macs[i.MAC]; taken {
			errs = append(errs, fmt.Errorf("interface %s: %s has the same MAC address", i.Name, other))
		}
		if !i.MAC.IsZero() {
			macs[i.MAC] = End{h.Name, i.Name}
		}
		errs = append(errs, i.check(h.Role))
	}
	for _, o := range h.Overlays {
		if seen[o.Name] {
			errs = append(errs, fmt.Errorf("overlay %s: name used twice", o.Name))
		}
		seen[o.Name] = true
		errs = append(errs, o.check(h.Role))
	}
	for _, o := range h.Bridges {
		if seen[o.Name] {
			errs = append(errs, fmt.Errorf("bridge %s: name used twice", o.Name))
		}
		seen[o.Name] = true
		errs = append(errs, o.check(h))
	}
	for _, n := range h.Neighbours {
		if !h.device(n.Interface) {
			errs = append(errs, fmt.Errorf("neighbour %s: no interface %s", n.Address, n.Interface))
		}
		if !n.Address.IsValid() || n.MAC.IsZero() {
			errs = append(errs, fmt.Errorf("neighbour %s: an address or a MAC address is missing", n.Address))
		}
	}
	for _, r := range h.Routes {
		if r.Device != "" && !h.device(r.Device) {
			errs = append(errs, fmt.Errorf("route %s: no interface %s", r.Destination, r.Device))
		}
		errs = append(errs, r.check())
	}
	errs = append(errs, h.contentProblems()...)
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// contentProblems checks what is put into the host: sysctls, files, processes.
func (h *Host) contentProblems() []error {
	var errs []error
	for name := range h.Sysctls {
		// The other sysctls are not the namespace's but the whole machine's.
		if !strings.HasPrefix(name, "net.") || strings.ContainsAny(name, "/ ") {
			errs = append(errs, fmt.Errorf("sysctl %q: want a dotted name below net", name))
		}
	}
	for name := range h.Files {
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			errs = append(errs, fmt.Errorf("file %q: want a plain file name", name))
		}
	}
	names := map[string]bool{}
	for _, p := range h.Processes {
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("process %s: name used twice", p.Name))
		}
		names[p.Name] = true
		errs = append(errs, p.check())
	}
	return errs
}

func (p *Process) check() error {
	if err := CheckName(p.Name); err != nil {
		return fmt.Errorf("process: %w", err)
	}
	if len(p.Args) == 0 || p.Args[0] == "" {
		return fmt.Errorf("process %s: no program", p.Name)
	}
	return nil
}

func (i *Interface) check(role Role) error {
	switch {
	case len(i.Name) > maxInterfaceName || !interfaceSyntax.MatchString(i.Name):
		return fmt.Errorf("interface %q: want a letter and up to %d letters, digits, dots and hyphens", i.Name, maxInterfaceName-1)
	case i.VLAN > maxVLAN:
		return fmt.Errorf("interface %s: vlan %d is above %d", i.Name, i.VLAN, maxVLAN)
	case i.Geneve > maxVNI:
		return fmt.Errorf("interface %s: geneve segment %d is above %d", i.Name, i.Geneve, maxVNI)
	case i.Geneve != 0 && (i.VLAN != 0 || len(i.Addresses) == 0):
		return fmt.Errorf("interface %s: the end of a geneve segment has an address and no vlan", i.Name)
	case role == Switch && (len(i.Addresses) > 0 || i.VLAN != 0):
		return fmt.Errorf("interface %s: the port of a switch has neither address nor vlan", i.Name)
	case slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return !p.IsValid() }):
		return fmt.Errorf("interface %s: invalid address", i.Name)
	}
	return nil
}

func (r *Route) check() error {
	if !r.Destination.IsValid() || r.Destination != r.Destination.Masked() {
		return fmt.Errorf("route %s: not a network", r.Destination)
	}
	if len(r.Gateways) == 0 && r.Device == "" {
		return fmt.Errorf("route %s: no gateway", r.Destination)
	}
	if r.Device != "" && len(r.Gateways) > 1 {
		return fmt.Errorf("route %s: %d gateways on one interface, want 1", r.Destination, len(r.Gateways))
	}
	for _, g := range r.Gateways {
		if !g.IsValid() || g.Is4() != r.Destination.Addr().Is4() {
			return fmt.Errorf("route %s: gateway %s is not of its address family", r.Destination, g)
		}
	}
	return nil
}

// linkProblems checks that the links join every interface exactly once.
func (t *Topology) linkProblems() []error {
	var errs []error
	used := map[End]int{}
	for _, l := range t.Links {
		for _, e := range []End{l.A, l.B} {
			used[e]++
			if h := t.Host(e.Host); h == nil || h.iface(e.Interface) == nil {
				errs = append(errs, fmt.Errorf("link %s to %s: no interface %s", l.A, l.B, e))
			}
		}
		if l.MTU != 0 && (l.MTU < minMTU || l.MTU > maxMTU) {
			errs = append(errs, fmt.Errorf("link %s to %s: mtu %d is not in %d to %d", l.A, l.B, l.MTU, minMTU, maxMTU))
		}
	}
	for _, h := range t.Hosts {
		for _, i := range h.Interfaces {
			if n := used[End{h.Name, i.Name}]; n != 1 {
				errs = append(errs, fmt.Errorf("host %s: interface %s: %d links, want 1", h.Name, i.Name, n))
			}
		}
	}
	return errs
}

// device reports whether the host has an interface or an overlay of that name.
func (h *Host) device(name string) bool {
	return h.iface(name) != nil || slices.ContainsFunc(h.Overlays, func(o Overlay) bool { return o.Name == name }) ||
		slices.ContainsFunc(h.Bridges, func(o Bridge) bool { return o.Name == name })
}

// check returns what is wrong with the bridge, or nil.
func (o *Bridge) check(h *Host) error {
	if len(o.Name) > maxInterfaceName || !interfaceSyntax.MatchString(o.Name) || h.Role == Switch {
		return fmt.Errorf("bridge %q: no name of an interface, or in a switch", o.Name)
	}
	for _, port := range o.Ports {
		if h.iface(port) == nil {
			return fmt.Errorf("bridge %s: no interface %s", o.Name, port)
		}
	}
	return nil
}

// check returns what is wrong with the device, or nil.
func (o *Overlay) check(role Role) error {
	switch {
	case len(o.Name) > maxInterfaceName || !interfaceSyntax.MatchString(o.Name):
		return fmt.Errorf("overlay %q: want a letter and up to %d letters, digits, dots and hyphens", o.Name, maxInterfaceName-1)
	case role == Switch:
		return fmt.Errorf("overlay %s: a switch has none", o.Name)
	case o.ID < 1 || o.ID > maxVNI:
		return fmt.Errorf("overlay %s: identifier %d is not in 1 to %d", o.Name, o.ID, maxVNI)
	case !o.Local.IsValid() || o.MAC.IsZero():
		return fmt.Errorf("overlay %s: a tunnel end point or a MAC address is missing", o.Name)
	case o.MTU != 0 && (o.MTU < minMTU || o.MTU > maxMTU):
		return fmt.Errorf("overlay %s: mtu %d is not in %d to %d", o.Name, o.MTU, minMTU, maxMTU)
	}
	return nil
}
