// SPDX-License-Identifier: Apache-2.0

package file

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Node is the machine on which the agent runs. A running agent can't change it.
type Node struct {
	// Name tells nodes apart, and names the folder of what is pinned in the
	// kernel: at most 63 of a to z, 0 to 9, dot and hyphen. The default is the
	// host's name.
	Name string
	// Interfaces are where packets for VIPs arrive; at least one, all distinct.
	Interfaces []string
	// TunnelEnds are the node's addresses at which VXLAN and Geneve frames hold
	// packets for VIPs; all distinct. Services in such segments need at least one.
	TunnelEnds []netip.Addr
	NAT        NAT
	// DrainTimeout is how long an agent that is told to end waits at most until no
	// packets come any more; 0 doesn't wait. Unlike the others a running agent takes
	// it over.
	DrainTimeout time.Duration
}

const (
	defaultDrainTimeout = 30 * time.Second
	maxDrainTimeout     = time.Hour
)

const maxNodeName = 63

// maxInterfaceName is IFNAMSIZ of linux/if.h without its final zero.
const maxInterfaceName = 15

func (n *Node) read(v value) {
	n.setDefaults()
	v.readFields(append(n.common(),
		optional("name", checked(text(&n.Name), func() error { return checkNodeName(n.Name) })),
		required("interfaces", n.readInterfaces),
	)...)
	if n.Name != "" || v.broken("name") {
		return
	}
	host, err := os.Hostname()
	n.Name = strings.ToLower(host)
	if err = errors.Join(err, checkNodeName(n.Name)); err != nil {
		v.fail(position(v.node), v.pathOf("name"), fmt.Errorf("missing, and the host's own doesn't serve: %w", err))
	}
}

func (n *Node) setDefaults() { n.NAT.Ports, n.DrainTimeout = defaultNATPorts(), defaultDrainTimeout }

// common are the fields that every node has.
func (n *Node) common() []field {
	return []field{
		optional("tunnelEnds", addresses(&n.TunnelEnds)),
		optional("nat", n.NAT.read),
		optional("drainTimeout", checked(duration(&n.DrainTimeout), func() error {
			if n.DrainTimeout < 0 || n.DrainTimeout > maxDrainTimeout {
				return lb.OutOfRange(n.DrainTimeout, time.Duration(0), maxDrainTimeout)
			}
			return nil
		})),
	}
}

// checkNodeName refuses what can't name a folder, or would be awkward to type.
func checkNodeName(name string) error {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-'
	}
	switch {
	case len(name) > maxNodeName:
		return fmt.Errorf("%d characters are too many: want at most %d", len(name), maxNodeName)
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) ||
		strings.Trim(name, ".-") != name:
		return fmt.Errorf("bad node name %q: want a to z, 0 to 9, dots and hyphens, beginning and ending with a letter or digit", name)
	}
	return nil
}

func (n *Node) readInterfaces(v value) {
	list(&n.Interfaces, func(v value, to *string) {
		var name string
		text(&name)(v)
		switch err := checkInterface(name); {
		case name == "": // text has reported it
		case err != nil:
			v.failf("%w", err)
		case slices.Contains(n.Interfaces, name):
			v.failf("%s is given twice", name)
		default:
			*to = name
		}
	})(v)
	if n.Interfaces != nil && len(n.Interfaces) == 0 {
		v.failf("no interface: want at least one")
	}
}

// addresses reads distinct unicast addresses.
func addresses(to *[]netip.Addr) reader {
	return list(to, func(v value, one *netip.Addr) {
		var a netip.Addr
		address(&a)(v)
		switch err := lb.CheckAddress(a); {
		case !a.IsValid(): // address has reported it
		case err != nil:
			v.failf("%w", err)
		case slices.Contains(*to, a):
			v.failf("%s is given twice", a)
		default:
			*one = a
		}
	})
}

// checkInterface is dev_valid_name of the kernel's net/core/dev.c.
func checkInterface(name string) error {
	if len(name) > maxInterfaceName || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r") {
		return fmt.Errorf("bad interface name %q: want at most %d characters without slash, colon and space",
			name, maxInterfaceName)
	}
	return nil
}
