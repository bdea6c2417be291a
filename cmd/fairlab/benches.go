// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/bench/churn"
	"fairlead.io/fairlead/lab/bench/cost"
	"fairlead.io/fairlead/lab/bench/ecmp"
	"fairlead.io/fairlead/lab/bench/flood"
	"fairlead.io/fairlead/lab/bench/forward"
	"fairlead.io/fairlead/lab/bench/http"
	"fairlead.io/fairlead/lab/bench/kubernetes"
	"fairlead.io/fairlead/lab/bench/latency"
	"fairlead.io/fairlead/lab/bench/limit"
	"fairlead.io/fairlead/lab/bench/openstack"
	"fairlead.io/fairlead/lab/netlab"
)

// labName returns a name that no other process uses.
func labName(bench string) string { return fmt.Sprintf("%s-%d", bench, os.Getpid()) }

func newBenchPacket() *measurement {
	m := newMeasurement("packet", "Measure the cost of a packet in the program",
		`Measure the time of the balancer's program for one packet, without a network: for
one flow up to a million, for one service and for many, in each forwarding mode,
and with every flow tracked; a bare reflector is measured for comparison. A cell is
called for example "tcp over ipv4, 4096x16, l2dsr, 65536 flows".`)
	m.run = cost.Packet
	return m
}

// lookups is the bench that all leaves out.
const lookups = "lookups"

func newBenchLookups() *measurement {
	var layouts []string
	m := newMeasurement(lookups, "Measure bare look-ups in tables of any size",
		`Measure the time of a program that only reads tables, to try their layout before
it is built. A layout such as "16384x32>65536x64,65536x16" has tables of elements x
bytes, of which a packet reads one element each, at random; those behind a ">" are
found by what was read before it.`)
	m.flags.StringArrayVar(&layouts, "layout", []string{"32768x32>8193x128>2048x64>2048x16>64x512"}, "tables that a packet reads; several are compared")
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) { return cost.Lookups(ctx, c, layouts) }
	return m
}

func newBenchChurn() *measurement {
	var cfg churn.Config
	m := newMeasurement("churn", "Change backends at random under live connections and count what breaks",
		`Change backends at random under live connections and count what breaks. In labs of
three balancers one of them is lost, and joins again, while no backend changes;
servers are added, removed, drained and re-weighted; once more while one of the
balancers is lost; and once more while servers are killed and started again, which
health checks detect. All but the last are measured again with nodes that forward as
with kube-proxy. Without --quick it takes a quarter of an hour.`)
	m.number(&cfg.Connections, "connections", 3000, 600, "TCP connections that are open all the time")
	m.number(&cfg.Changes, "changes", 1000, 80, "changes of backends")
	m.seed(&cfg.Seed)
	m.flags.TextVar(&cfg.Tracking, "tracking", lb.TrackingMinimal, "flows that balancers track: minimal or full")
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		cfg.Config, cfg.Name = c, labName("churn")
		return churn.Run(ctx, cfg)
	}
	return m
}

func newBenchECMP() *measurement {
	var cfg ecmp.Config
	var routers string
	var reflector bool
	m := newMeasurement("ecmp", "Measure how an upstream router's routes follow the balancers",
		`Measure how an upstream router's equal-cost routes follow the balancers. In a lab
of four balancers and a real router, for each router without and with a route
reflector: whether its tables are right (table 6.2 of the dissertation); how soon
they follow when balancers are drained, stopped and started at random; what is lost
when a node is lost, or an agent hangs, is killed, stopped or drained; and whether
throughput follows the numbers of balancers and servers (figures 6.2 and 6.4).
Without --quick it takes a quarter of an hour.`)
	m.flags.StringVar(&routers, "router", "", "frr, bird, gobgp or all (default: frr and bird; frr with --quick)")
	m.flags.BoolVar(&reflector, "reflector", false, "only with a route reflector, or with =false only without (default: both; without with --quick)")
	m.number(&cfg.Changes, "changes", 300, 20, "changes of the number of balancers for each router")
	m.flags.DurationVar(&cfg.Duration, "duration", 0, "change the number of balancers for this time instead, for example 20h")
	m.flags.DurationVar(&cfg.Interval, "interval", 0, "least time between two changes (default: until the table is right)")
	m.seed(&cfg.Seed)
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		cfg.Config, cfg.Name = c, labName("ecmp")
		kinds, err := benchRouters(routers, c.Quick)
		if err != nil {
			return nil, err
		}
		reflectors := []bool{reflector}
		if !c.Quick && !m.flags.Changed("reflector") {
			reflectors = []bool{false, true}
		}
		for _, with := range reflectors {
			for _, kind := range kinds {
				cfg.Settings = append(cfg.Settings, ecmp.Setting{Router: kind, Reflector: with})
			}
		}
		return ecmp.Run(ctx, cfg)
	}
	return m
}

// benchRouters reads --router.
func benchRouters(text string, quick bool) ([]netlab.RouterKind, error) {
	switch kind := netlab.RouterKind(text); {
	case text == "" && quick:
		return []netlab.RouterKind{netlab.FRR}, nil
	case text == "":
		return []netlab.RouterKind{netlab.FRR, netlab.BIRD}, nil
	case text == "all":
		return []netlab.RouterKind{netlab.FRR, netlab.BIRD, netlab.GoBGP}, nil
	case kind == netlab.FRR, kind == netlab.BIRD, kind == netlab.GoBGP:
		return []netlab.RouterKind{kind}, nil
	}
	return nil, cli.Usagef("--router %q: want frr, bird, gobgp or all", text)
}

func newBenchFlood() *measurement {
	var cfg flood.Config
	m := newMeasurement("flood", "Flood one service with forged packets and count what breaks at another one",
		`Flood one service with SYNs or datagrams of forged addresses and count what breaks at another
one of the same balancer: connections that are silent for ten seconds, and new ones.
Fairlead's stateful modes and the kernel's connection tracking get the same flood.
Without --quick it takes some minutes.`)
	m.number(&cfg.Connections, "connections", 1000, 100, "connections that are silent during the flood")
	m.flags.IntVar(&cfg.Rate, "rate", 200000, "forged packets a second, as far as the machine can make them")
	m.flags.DurationVar(&cfg.Duration, "duration", 30*time.Second, "time of each flood; 10s with --quick")
	m.reduced["duration"] = func() { cfg.Duration = 10 * time.Second }
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		cfg.Config, cfg.Name = c, labName("flood")
		return flood.Run(ctx, cfg)
	}
	return m
}

func newBenchLimit() *measurement {
	m := newMeasurement("limit", "Compare the requests a second of shaped links with the number that their bytes allow",
		`Compare the requests a second that links carry with their rate over the bytes of a
request, which a captured connection gives (appendix C and figure 5.3 of the
dissertation). In a lab with one balancer the client's, the balancer's and the
server's links are shaped one after the other, in the modes l2dsr, ipip, gue and
nat, with answers of 13 bytes to 64 KB. A cell is called as its mode. Without
--quick it takes ten minutes.`)
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		return limit.Run(ctx, c, labName("limit"))
	}
	return m
}

func newBenchLatency() *measurement {
	var length time.Duration
	m := newMeasurement("latency", "Compare the latency of requests over networks of containers and through balancers",
		`Measure the latency of HTTP requests at constant rates, from the time at which each
was to be sent: between pods over routes, VXLAN, macvlan and IPvlan, as far as the
kernel has them, and between their nodes; through Fairlead (l2dsr and nat) and
iptables; and to a pod through Fairlead (dsr) and kube-proxy. Rates are shares of the
most requests a second, which is measured first. A cell is called for example "350
bytes, 30 % of host, vxlan". Without --quick it takes a quarter of an hour; the
99.999th percentile needs a --duration of some minutes.`)
	m.flags.DurationVar(&length, "duration", 5*time.Second, "time of each cell and round; 1s with --quick")
	m.reduced["duration"] = func() { length = time.Second }
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		return latency.Run(ctx, c, labName("latency"), length)
	}
	return m
}

func newBenchForward() *measurement {
	var cfg forward.Config
	m := newMeasurement("forward", "Compare throughput through veth with a reflector, iptables and nftables",
		`Measure the packets a second that one processor forwards through a veth pair, the
device under test and back; the packets are made in the kernel. A bare XDP
reflector, Fairlead in each forwarding mode, Fairlead with pods of its own node past
netfilter and through it, iptables DNAT and nftables DNAT, each in a network namespace
of its own, and no device at all are compared; Fairlead on the kernel's IPVS only if
--device names it (ipvs-l2dsr, ipvs-nat). The scenarios of the Kakao paper have tagged
frames, and one VIP (l2dsr-a) or 128 (l2dsr-b, iptables-128). The machine's connection
table is enlarged during the run.`)
	m.flags.StringSliceVar(&cfg.Devices, "device", nil, "compare only these devices, for example reflector,l2dsr")
	m.flags.IntVar(&cfg.Trials, "trials", 0, "rounds, 3 in the Kakao paper (default 5)")
	m.flags.DurationVar(&cfg.Duration, "duration", 0, "time of one measurement, 60s in the paper (default 400ms)")
	m.flags.DurationVar(&cfg.Pause, "pause", 0, "pause before a measurement, 30s in the paper")
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		cfg.Config = c
		if err := cfg.Check(); err != nil {
			return nil, cli.Usage(err)
		}
		return forward.Run(ctx, cfg)
	}
	return m
}

func newBenchHTTP() *measurement {
	m := newMeasurement("http", "Compare HTTP requests through Fairlead, the kernel and proxies",
		`Measure small HTTP requests through Fairlead in each mode, through the kernel with
rules of iptables, nftables and kube-proxy, and through nginx and HAProxy: the processor
time of a request, of client, network, balancers and servers apart, and the requests a
second of up to 40 servers over shaped links, which are about bytes only. A cell is called
for example "cost, nat" or "throughput, nat, 8 servers". Without --quick it takes half an
hour.`)
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		return http.Run(ctx, http.Config{Config: c, Name: labName("http")})
	}
	return m
}

// healthServers is the hidden command that runs the servers of bench health.
const healthServers = "health-servers"

func newBenchHealth() *measurement {
	var cfg cost.CheckConfig
	m := newMeasurement("health", "Measure the cost of health checks",
		`Measure the processor time of health checks: thousands of addresses of the
loopback interface are checked each second, by TCP and by HTTP, while another
process answers.`)
	m.flags.IntVar(&cfg.Backends, "backends", 5000, "backends, each of which is checked once a second")
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		executable, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cfg.Config, cfg.Servers = c, []string{executable, "bench", healthServers}
		return cost.Checks(ctx, cfg)
	}
	return m
}

// newBenchHealthServersCommand answers checks until its standard input ends.
func newBenchHealthServersCommand() *cobra.Command {
	return &cobra.Command{
		Use:    healthServers,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			listener, err := cost.CheckListener()
			if err != nil {
				return err
			}
			return cost.ServeChecks(os.Stdin, listener)
		},
	}
}

// cluster adds the flag --kubeconfig, which is read when the bench runs.
func (m *measurement) cluster(cfg *kubernetes.Config, run func(context.Context) (*bench.Report, error)) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	m.flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "access to the API server (default: as kubectl)")
	m.run = func(ctx context.Context, c bench.Config) (_ *bench.Report, err error) {
		cfg.Config, cfg.Name = c, labName(m.name)
		if cfg.Kubeconfig, err = rules.Load(); err != nil {
			return nil, err
		}
		return run(ctx)
	}
}

func newBenchKubernetes() *measurement {
	var cfg kubernetes.Config
	m := newMeasurement("kubernetes", "Measure how Fairlead follows a Kubernetes cluster, and the cost",
		`Measure how Fairlead follows a Kubernetes cluster, and the cost. It needs a cluster
of its own, of which the API server and Fairlead's kinds are enough. It writes
Services with EndpointSlices, and Nodes; runs a controller and, on a veth pair, an
agent; and traces packets through the agent's program while EndpointSlices change.
At the end it starts more agents and counts what they write while nothing changes. It
removes everything that it writes. Without --quick it takes some minutes.

    go run ./test/cluster/up bin/fairlab bench kubernetes

starts such a cluster for it.`)
	m.number(&cfg.Services, "services", 4096, 200, "Services, with sixteen endpoints each")
	m.number(&cfg.Changes, "changes", 1000, 100, "changes of EndpointSlices")
	m.number(&cfg.Agents, "agents", 10, 3, "agents at the end, of which the API server's writes are counted")
	m.cluster(&cfg, func(ctx context.Context) (*bench.Report, error) { return kubernetes.Run(ctx, cfg) })
	return m
}

func newBenchAPI() *measurement {
	var cfg kubernetes.APIConfig
	m := newMeasurement("api", "Measure how changes through the HTTP API reach packets",
		`Measure the time from a request of the HTTP API to the program's decision, through
fairlead apiserver, a Kubernetes API server and an agent, at each number of load
balancers, with sixteen members each. The cluster is that of bench kubernetes:

    go run ./test/cluster/up bin/fairlab bench api

It removes everything that it writes. Without --quick it takes some minutes.`)
	m.flags.IntSliceVar(&cfg.Sizes, "load-balancers", []int{1000, 4096}, "numbers of load balancers, increasing; 100,200 with --quick")
	m.reduced["load-balancers"] = func() { cfg.Sizes = []int{100, 200} }
	m.number(&cfg.Changes, "changes", 1000, 100, "changes of members at each number")
	m.cluster(&cfg.Config, func(ctx context.Context) (*bench.Report, error) { return kubernetes.RunAPI(ctx, cfg) })
	return m
}

func newBenchOpenStack() *measurement {
	var cfg openstack.Config
	m := newMeasurement("openstack", "Measure how changes in OpenStack reach packets, and health reaches OpenStack",
		`Measure how soon a member that is created by Octavia's API gets a packet, and how
soon Octavia shows a member's change of health. It runs Keystone, Neutron and
Octavia with Fairlead's provider, which scripts/install-deps.sh openstack installs,
and a balancer in a lab. --quick takes some minutes, most of them until OpenStack
runs; without it the bench takes half an hour.`)
	m.flags.StringVar(&cfg.Provider, "provider", "octavia", "folder of the provider's package")
	m.number(&cfg.Members, "members", 200, 10, "members that are created")
	m.number(&cfg.Changes, "changes", 100, 10, "changes of health")
	m.number(&cfg.Balancers, "load-balancers", 1000, 20, "load balancers of ten members during these")
	m.run = func(ctx context.Context, c bench.Config) (*bench.Report, error) {
		cfg.Config, cfg.Name = c, labName("openstack")
		return openstack.Run(ctx, cfg)
	}
	return m
}
