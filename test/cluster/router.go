// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
)

// AS numbers of the router and of whom it takes BGP from (RFC 6996: private use).
const (
	RouterASN = 65000
	NodeASN   = 65021
)

// RouterAddresses returns the router's addresses in the nodes' network, IPv4 and
// then IPv6: it is the nodes' gateway, and takes BGP at both.
func RouterAddresses() []netip.Addr { return nodeNetwork.addresses(routerNumber) }

// ClientAddresses returns the client's addresses, IPv4 and then IPv6.
func ClientAddresses() []netip.Addr { return clientNetwork.addresses(clientNumber) }

// routerScript: FRR's daemons keep folders of temporary files that have their process
// ids in the name, and two routers have the same ids.
const routerScript = `
mount --make-rprivate /
mount -t proc proc /proc
mkdir -p /var/tmp/frr
mount -t tmpfs tmpfs /var/tmp/frr
`

// startRouter has the machine be a router of FRR, for any number of nodes.
func startRouter(m *Machine) error {
	var host netlab.Host
	netlab.BGPRouter{
		ASN: RouterASN, RouterID: RouterAddresses()[0], PeerASN: NodeASN, Networks: nodeNetwork[:],
		VIPs: []bgp.Acceptance{
			{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Shortest: 32},
			{Prefix: netip.MustParsePrefix("2001:db8:113::/48"), Shortest: 128},
			{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Shortest: 24}, // of balancer pods
			{Prefix: netip.MustParsePrefix("fd00:10:1::/48"), Shortest: 64},
		},
	}.FRR(&host)
	for name, text := range host.Files {
		if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("router: %w", err)
		}
	}
	if err := netlab.Chown(m.dir, host.Owner); err != nil {
		return fmt.Errorf("router: owner %s: %w", host.Owner, err)
	}
	for _, p := range host.Processes {
		if _, err := m.launch(p.Name, nil, p.Args...); err != nil {
			return err
		}
	}
	return nil
}

// Vtysh begins a command line that runs FRR's shell, on the router.
func (c *Cluster) Vtysh() []string { return []string{"vtysh", "--vty_socket", c.Router.dir} }

// RouterShell runs a command of FRR's shell on the router, as "show bgp summary".
func (c *Cluster) RouterShell(ctx context.Context, command string) (string, error) {
	return c.Router.Run(ctx, append(c.Vtysh(), "-c", command)...)
}
