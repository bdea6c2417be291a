// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/openstack"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// The client's commands end with answered requests. The status is true while a server is dead, and while each
// service is killed and restarted. Nothing is left of a deleted load balancer.
func TestOpenStack(t *testing.T) {
	t.Parallel()
	c := newCloud(t, "openstack")
	c.create(t)
	c.checkForwarded(t)
	c.checkStatus(t)
	c.checkStatistics(t)
	c.checkMovedPort(t)
	c.checkOwnPort(t)
	c.checkTakeOver(t)
	c.checkKills(t)
	c.checkDeleted(t)
}

// create makes two load balancers: "web" has VIPs of both families, its members have IPv4 addresses; "six" has
// IPv6 addresses only. Then the servers have the VIPs.
func (c *cloud) create(t *testing.T) {
	t.Helper()
	c.openstack(t, slices.Concat(
		[]string{
			"loadbalancer create --name web --vip-subnet-id vips4 --additional-vip subnet-id=vips6 --wait",
			"loadbalancer create --name six --vip-subnet-id vips6 --wait",
		},
		c.listener("web", "TCP", 80, 4), c.listener("web", "UDP", 7, 4), c.listener("six", "TCP", 80, 6),
		[]string{"loadbalancer healthmonitor create --name check --type HTTP --delay 1 --timeout 1 --max-retries 1 --max-retries-down 2 --wait web-TCP"},
	)...)
	var all struct {
		LoadBalancers []struct {
			ID, Name   string
			VIP        netip.Addr `json:"vip_address"`
			Additional []struct {
				Address netip.Addr `json:"ip_address"`
			} `json:"additional_vips"`
		}
	}
	if err := c.client.Get(t.Context(), "loadbalancers", &all); err != nil {
		t.Fatal(err)
	}
	for _, found := range all.LoadBalancers {
		if found.Name == "web" {
			c.id, c.web = found.ID, []netip.Addr{found.VIP, found.Additional[0].Address}
		} else {
			c.six = found.VIP
		}
	}
	for _, h := range c.Hosts(netlab.Server) {
		c.addVIPs(t, h.Name)
	}
}

// listener are the commands that make a listener with a pool, whose members are the servers' addresses of a family.
func (c *cloud) listener(balancer, protocol string, port, family int) []string {
	name := balancer + "-" + protocol
	commands := []string{
		fmt.Sprintf("loadbalancer listener create --name %s --protocol %s --protocol-port %d --wait %s", name, protocol, port, balancer),
		fmt.Sprintf("loadbalancer pool create --name %s --listener %[1]s --protocol %s --lb-algorithm SOURCE_IP_PORT --wait", name, protocol),
	}
	for _, h := range c.Hosts(netlab.Server) {
		commands = append(commands, fmt.Sprintf("loadbalancer member create --name %s --address %s --protocol-port %d --subnet-id members%d --wait %s",
			h.Name, h.Addresses[family/6], port, family, name)) // IPv4, then IPv6
	}
	return commands
}

// addVIPs adds the VIPs to a server's loopback interface, where it answers datagrams.
func (c *cloud) addVIPs(t *testing.T, server string) {
	t.Helper()
	args := []string{"fairlab", "lab", "echo", "--name", server}
	for _, vip := range append(c.web, c.six) {
		if err := c.plane.AddVIPs(t.Context(), server, netip.PrefixFrom(vip, vip.BitLen())); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--listen", netip.AddrPortFrom(vip, 7).String())
	}
	if err := c.Start(t.Context(), server, netlab.Process{Name: "echo", Args: args}); err != nil {
		t.Fatal(err)
	}
}

// forwarded sums the packets that XDP has forwarded.
func (c *cloud) forwarded(t *testing.T) (packets uint64) {
	t.Helper()
	for _, h := range c.Hosts(netlab.Balancer) {
		packets += harness.ExitsOf(t, &h)["forward_l2dsr"]
	}
	return packets
}

// checkForwarded checks that XDP forwards TCP and UDP over IPv4 and IPv6 to both servers.
func (c *cloud) checkForwarded(t *testing.T) {
	t.Helper()
	c.awaitTree(t, allOnline)
	for _, vip := range append(c.web, c.six) {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		if err := c.AwaitRoute(ctx, netlab.LearnedRoute{Host: "router", Prefix: netip.PrefixFrom(vip, vip.BitLen()), Via: openstack.NextHops(2, vip)}); err != nil {
			t.Fatal(err)
		}
		cancel()
		before := c.forwarded(t)
		answers := c.Gets(t, "client", harness.Origin(vip.String()), 50)
		if answers["server1"] == 0 || answers["server2"] == 0 || len(answers) != 2 {
			t.Errorf("%s: answers are %v", vip, answers)
		}
		if moved := c.forwarded(t) - before; moved < 50*4 {
			t.Errorf("%s: 50 requests leave with %d packets by forward_l2dsr", vip, moved)
		}
	}
	for _, vip := range c.web {
		before := c.forwarded(t)
		answers := harness.ByServer(c.Echo(t, "client", vip.String(), harness.Ports(50)))
		if answers["server1"] == 0 || answers["server2"] == 0 || len(answers) != 2 {
			t.Errorf("%s: datagrams are answered by %v", vip, answers)
		}
		if moved := c.forwarded(t) - before; moved < 100 {
			t.Errorf("%s: 100 datagrams leave with %d packets by forward_l2dsr", vip, moved)
		}
	}
}

// tree is the status tree of a load balancer.
type tree struct {
	Statuses struct {
		LoadBalancer struct {
			state
			Listeners []struct {
				state
				Pools []struct {
					state
					Members []state
				}
			}
		}
	}
}

// state are the statuses of a part.
type state struct {
	Name      string
	Operating string `json:"operating_status"`
}

// words are the statuses of "web", its TCP listener and its pool, then of the members by their names.
func (t *tree) words() string {
	all := []string{t.Statuses.LoadBalancer.Operating}
	for _, listener := range t.Statuses.LoadBalancer.Listeners {
		if listener.Name != "web-TCP" {
			continue
		}
		all = append(all, listener.Operating)
		for _, pool := range listener.Pools {
			all = append(all, pool.Operating)
			slices.SortFunc(pool.Members, func(a, b state) int { return strings.Compare(a.Name, b.Name) })
			for _, m := range pool.Members {
				all = append(all, m.Operating)
			}
		}
	}
	return strings.Join(all, " ")
}

// awaitTree waits until the status tree of "web" has these words.
func (c *cloud) awaitTree(t *testing.T, want string) {
	t.Helper()
	var shown tree
	var err error
	holds := func() bool {
		shown = tree{}
		err = c.client.Get(t.Context(), "loadbalancers/"+c.id+"/status", &shown)
		return err == nil && shown.words() == want
	}
	if !c.within(t, await.Patience, holds) {
		t.Fatalf("the statuses are %s, want %s: %v", shown.words(), want, err)
	}
}

// The words of the tree of "web" if all works, and if the first server is dead.
const (
	allOnline  = "ONLINE ONLINE ONLINE ONLINE ONLINE"
	serverDead = "DEGRADED DEGRADED DEGRADED ERROR ONLINE"
)

// checkStatus checks that the status tree shows the death and the return of a server.
func (c *cloud) checkStatus(t *testing.T) {
	t.Helper()
	killed := c.KillServer(t, "server1")
	c.awaitTree(t, serverDead)
	t.Logf("Octavia shows the dead member after %s", time.Since(killed).Round(time.Millisecond))
	if answers := c.Gets(t, "client", harness.Origin(c.web[0].String()), 20); answers["server2"] != 20 {
		t.Errorf("answers are %v", answers)
	}
	c.StartServer(t, "server1")
	c.awaitTree(t, allOnline)
	c.openstack(t, "loadbalancer member set --disable --wait web-TCP server2")
	c.awaitTree(t, "ONLINE ONLINE ONLINE ONLINE OFFLINE")
	c.openstack(t, "loadbalancer member set --enable --wait web-TCP server2")
	c.awaitTree(t, allOnline)
}

// checkStatistics checks that Octavia's statistics rise with the requests of clients.
func (c *cloud) checkStatistics(t *testing.T) {
	t.Helper()
	var found struct {
		Stats struct {
			Bytes int `json:"bytes_in"`
			Total int `json:"total_connections"`
		}
	}
	path := "loadbalancers/" + c.id + "/stats"
	if err := c.client.Get(t.Context(), path, &found); err != nil {
		t.Fatal(err)
	}
	before := found.Stats
	c.Gets(t, "client", harness.Origin(c.web[1].String()), 40)
	if !await.Holds(func() bool {
		err := c.client.Get(t.Context(), path, &found)
		return err == nil && found.Stats.Total >= before.Total+40 && found.Stats.Bytes >= before.Bytes+40*200
	}) {
		t.Fatalf("statistics didn't rise: %+v, before %+v", found.Stats, before)
	}
}

// checkMovedPort checks that members are followed to another MAC address.
func (c *cloud) checkMovedPort(t *testing.T) {
	t.Helper()
	const mac = "fa:16:3e:00:00:99"
	c.openstackAs(t, "admin", "port set --mac-address "+mac+" server1")
	if err := c.plane.SetMAC(t.Context(), "server1", mac); err != nil {
		t.Fatal(err)
	}
	for _, h := range c.Hosts(netlab.Balancer) {
		harness.Until(t, h.Name+" sends to the new MAC address", func() bool {
			return strings.Contains(c.Show(t, h.Name, "backends"), mac)
		})
	}
	c.awaitTree(t, allOnline)
}

// checkOwnPort checks that a port of the tenant's can have the VIP, and that it stays as it is.
func (c *cloud) checkOwnPort(t *testing.T) {
	t.Helper()
	const show = "port show own -f json -c fixed_ips -c device_owner -c device_id -c allowed_address_pairs -c tags"
	c.openstack(t, "port create --network vips --fixed-ip subnet=vips4,ip-address=10.1.9.9 own")
	before := c.openstack(t, show)
	c.openstack(t, "loadbalancer create --name own --vip-port-id own --wait")
	vip := c.openstack(t, "loadbalancer show own -f value -c vip_address")
	if vip != "10.1.9.9" {
		t.Errorf("the VIP is %q", vip)
	}
	c.openstack(t, "loadbalancer delete --cascade --wait own")
	if after := c.openstack(t, show); after != before {
		t.Errorf("the port is %s, and was %s", after, before)
	}
	c.openstack(t, "port delete own")
}

// checkDeleted deletes the load balancers. Nothing is left of them anywhere.
func (c *cloud) checkDeleted(t *testing.T) {
	t.Helper()
	left := c.openstack(t, "loadbalancer delete --cascade --wait web", "loadbalancer delete --cascade --wait six",
		"loadbalancer list -f value", "loadbalancer listener list -f value", "loadbalancer pool list -f value", "loadbalancer healthmonitor list -f value")
	left += c.openstackAs(t, "admin", "port list --network vips -f value")
	if left != "" {
		t.Errorf("left are %s", left)
	}
	pairs := c.openstackAs(t, "admin", "port show server1 -f value -c allowed_address_pairs -c tags", "port show server2 -f value -c allowed_address_pairs -c tags")
	if strings.Join(strings.Fields(pairs), " ") != "[] [] [] []" {
		t.Errorf("ports have address pairs and tags: %s", pairs)
	}
	c.checkNoneServed(t)
	for _, vip := range append(c.web, c.six) {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		if err := c.AwaitRoute(ctx, netlab.LearnedRoute{Host: "router", Prefix: netip.PrefixFrom(vip, vip.BitLen())}); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

// checkNoneServed checks that API server and balancers have no load balancer.
func (c *cloud) checkNoneServed(t *testing.T) {
	t.Helper()
	statuses := c.Run(t, openstack.Controller, "sh", "-c",
		`curl -s --cacert server.crt -H "Authorization: Bearer $(cat octavia.token)" https://`+openstack.APIAddress+"/v1/statuses")
	if !strings.Contains(statuses, `"items":[]`) {
		t.Errorf("the LB API has %s", statuses)
	}
	for _, h := range c.Hosts(netlab.Balancer) {
		harness.Until(t, h.Name+" has no service", func() bool {
			s := harness.Status(t, &h)
			return s.Services.Total == 0 && s.Backends.Total == 0 && s.APIServer.Objects == 0
		})
	}
}
