// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// network is a way from a client to a server.
type network struct {
	name     string
	topology netlab.Topology
	// The host client reaches the host server, which listens at the port, at the address.
	client, server, address string
	port                    uint16
	// device is the type that the kernel has to have, with arguments.
	device   string
	balancer bool // the way leads through one
	// commands complete a lab that is up. The first word is the host; a word behind "netns" is a
	// host for its namespace.
	commands []string
}

// Networks that others are compared with.
const (
	hostNetwork, routesNetwork    = "host", "routes"
	natBalancer, iptablesBalancer = "nat", "iptables"
	dsrNodes, kubeProxyNodes      = "dsr", "kube-proxy"
)

// networks are all that can be compared, the reference first.
func networks() []network {
	all := []network{
		containers(hostNetwork, "10.0.0.2:80", "veth", ""),
		containers(routesNetwork, "10.244.2.2:80", "veth", podLink+`
node ip route add 10.244.M.0/24 via 10.0.0.M`),
		containers("vxlan", "10.244.2.2:80", "vxlan id 1 dstport 4789", strings.ReplaceAll(podLink, "1500", "1450")+`
node ip link add vx0 mtu 1450 type vxlan id 1 local 10.0.0.N remote 10.0.0.M dstport 4789
node ip addr add 10.245.0.N/24 dev vx0
node ip link set vx0 up
node ip route add 10.244.M.0/24 via 10.245.0.M`),
		containers("macvlan", "10.0.0.12:80", "macvlan", fmt.Sprintf(sharedLink, "macvlan mode bridge")),
		containers("ipvlan", "10.0.0.12:80", "ipvlan", fmt.Sprintf(sharedLink, "ipvlan mode l2")),
		balanced("l2dsr", lb.L2DSR), balanced(natBalancer, lb.NAT), balanced(iptablesBalancer, lb.NAT),
		toPod(dsrNodes), toPod(kubeProxyNodes),
	}
	all[0].client, all[0].server = "node1", "node2"
	return all
}

// podLink leads from a node to its pod, and sharedLink gives a pod a part of the node's interface.
const (
	podLink = `node ip link add veth0 mtu 1500 type veth peer name eth0 mtu 1500 netns pod
node ip addr add 10.244.N.1/24 dev veth0
node ip link set veth0 up
pod ip addr add 10.244.N.2/24 dev eth0
pod ip link set eth0 up
pod ip route add default via 10.244.N.1`
	sharedLink = `node ip link add link eth0 name eth0 netns pod type %s
pod ip addr add 10.0.0.1N/24 dev eth0
pod ip link set eth0 up`
)

// containers returns a network of a client and a server in pods of two nodes, which a link joins.
// Each line of the script is a command for both sides: N is the side's number, M the other's.
func containers(name, address, device, script string) network {
	n := network{name: name, client: "pod1", server: "pod2", address: address, port: 80, device: device}
	n.topology = netlab.Topology{Name: "latency", Links: []netlab.Link{{A: netlab.End{Host: "node1", Interface: "eth0"}, B: netlab.End{Host: "node2", Interface: "eth0"}}}}
	for _, side := range [][2]string{{"1", "2"}, {"2", "1"}} {
		number, other := side[0], side[1]
		n.topology.Hosts = append(n.topology.Hosts,
			netlab.Host{Name: "node" + number, Role: netlab.Router, Interfaces: []netlab.Interface{
				{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0." + number + "/24")}},
			}},
			netlab.Host{Name: "pod" + number, Role: netlab.Server})
		for line := range strings.Lines(script) {
			words := strings.NewReplacer("node", "node"+number, "pod", "pod"+number, "N", number, "M", other)
			n.commands = append(n.commands, words.Replace(line))
		}
	}
	return n
}

// balanced returns the lab "ecmp" with a balancer in a mode, in whose place iptables translates
// and masquerades, as kube-proxy has it do, if the name is iptables.
func balanced(name string, mode lb.Forward) network {
	t, _ := netlab.ECMP(netlab.ECMPOptions{Forward: mode, Balancers: 1, Servers: 1}) // no error: it is constant
	vip, backend := t.Services[0].VIP, t.Services[0].Backends[0]
	n := network{
		name: name, topology: t, client: "client", server: "server1", balancer: true, device: "veth",
		address: netip.AddrPortFrom(vip.Address, vip.Port).String(), port: backend.Port,
	}
	if name == iptablesBalancer {
		h := t.Host("lb1")
		h.Role, h.Agent, h.Processes, h.Socket, n.topology.Probes = netlab.Router, nil, nil, "", nil
		n.commands = []string{
			fmt.Sprintf("lb1 iptables -w -t nat -A PREROUTING -d %s -p tcp --dport %d -j DNAT --to-destination %s:%d",
				vip.Address, vip.Port, backend.Address, backend.Port),
			"lb1 iptables -w -t nat -A POSTROUTING -j MASQUERADE",
		}
	}
	return n
}

// toPod returns a lab of two nodes, over which the router spreads the connections to a pod of one of
// them: agents forward to it with dsr, or kube-proxy's nftables rules, if the name is kube-proxy's.
func toPod(name string) network {
	t, _ := netlab.Nodes(netlab.NodesOptions{Nodes: 2, Forward: lb.DSR}) // no error: it is constant
	const server = "pod2-1"
	service := t.Services[0]
	service.Backends = service.Backends[2:3]
	t.SetOnly(service)
	t.Probes[0].Answers = []string{server}
	if name == kubeProxyNodes {
		t.KubeProxy(t.Services)
	}
	return network{
		name: name, topology: t, client: "client", server: server, balancer: true, device: "veth",
		address: netip.AddrPortFrom(service.Address, service.Port).String(), port: service.Backends[0].Port,
	}
}

// testbed is a network's lab.
type testbed struct {
	network
	*netlab.Lab // nil: not built
	// most is the requests a second by size of answers.
	most map[int]float64
}

// build builds the lab and measures the network's most, unless that has been done.
func (t *testbed) build(ctx context.Context, labs netlab.Labs, name string, size int, length time.Duration) (err error) {
	if t.Lab == nil {
		if t.Lab, err = labs.Up(ctx, name+"-"+t.name, t.topology); err != nil {
			return err
		}
		for _, c := range t.commands {
			words := strings.Fields(c)
			if i := slices.Index(words, "netns"); i >= 0 {
				words[i+1] = t.State().Host(words[i+1]).Namespace
			}
			if _, err := t.Run(ctx, words[0], words[1:]...); err != nil {
				return err
			}
		}
	}
	if t.most[size] == 0 {
		err = t.with(ctx, size, length, func(c *client) (err error) {
			t.most[size], err = c.most(length)
			return err
		})
	}
	return err
}

// with calls use with a client, whose requests take up to a time.
func (t *testbed) with(ctx context.Context, size int, length time.Duration, use func(*client) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var c *client
	err := bench.Await(ctx, answerTimeout, netlab.Poll, func(within context.Context) (err error) { // nginx may be starting
		c, err = open(ctx, size, length, func() (net.Conn, error) { return t.Dial(within, t.client, "tcp", t.address) })
		return err
	})
	if err == nil {
		err = use(c)
	}
	return err
}

// measure measures one round, unless the rate is more than the network's most.
func (t *testbed) measure(ctx context.Context, cfg bench.Config, c conditions, host *testbed, length time.Duration) (found, error) {
	if c.of == own {
		host = t
	}
	rate := host.most[c.size] * float64(c.percent) / 100
	f := found{"most requests/s": t.most[c.size]}
	if rate > t.most[c.size] {
		cfg.Log("%s is left out: %.0f requests a second are more than its most", c.cell(t.name), rate)
		return f, nil
	}
	f["rate requests/s"] = rate
	err := t.with(ctx, c.size, length, func(client *client) error {
		before, err1 := t.counters(ctx)
		latencies, err2 := client.send(rate, length)
		after, err3 := t.counters(ctx)
		for name := range after {
			if cpu, ok := strings.CutPrefix(name, "idle "); ok {
				f["busy share processor="+cpu] = 1 - (after[name]-before[name])/(after["all "+cpu]-before["all "+cpu])
			}
		}
		f["retransmitted segments"] = after["retransmitted"] - before["retransmitted"]
		f.addPercentiles(latencies)
		return errors.Join(err1, err2, err3)
	})
	return f, err
}

// counters are the TCP segments that client and server have sent again, and the time that each
// processor was idle, and in all.
func (t *testbed) counters(ctx context.Context) (map[string]float64, error) {
	all := map[string]float64{}
	for _, host := range []string{t.client, t.server} {
		var segments float64
		text, err := t.Run(ctx, host, "nstat", "-asz", "TcpRetransSegs")
		if err == nil {
			_, err = fmt.Sscanf(text, "#kernel\nTcpRetransSegs %f", &segments)
		}
		if err != nil {
			return nil, fmt.Errorf("nstat: %w", err)
		}
		all["retransmitted"] += segments
	}
	text, err := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(text)) {
		var cpu string
		var user, nice, system, idle, wait, interrupts, soft float64
		if n, _ := fmt.Sscanf(line, "cpu%s %f %f %f %f %f %f %f", &cpu, &user, &nice, &system, &idle, &wait, &interrupts, &soft); n == 8 && line[3] != ' ' {
			all["idle "+cpu], all["all "+cpu] = idle+wait, user+nice+system+idle+wait+interrupts+soft
		}
	}
	return all, err
}
