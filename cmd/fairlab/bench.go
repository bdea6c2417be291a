// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/version"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/bench/churn"
	"fairlead.io/fairlead/lab/bench/cost"
	"fairlead.io/fairlead/lab/bench/ecmp"
	"fairlead.io/fairlead/lab/bench/flood"
	"fairlead.io/fairlead/lab/bench/forward"
	"fairlead.io/fairlead/lab/bench/kubernetes"
	"fairlead.io/fairlead/lab/bench/openstack"
	"fairlead.io/fairlead/lab/netlab"
)

func newBenchCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure Fairlead's claims about itself",
		Long: `Measure Fairlead's claims about itself and what they are compared with, in one
run on this machine. The report goes to standard output, as a table, JSON or YAML;
progress goes to standard error. Root is needed.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newBenchChurnCommand(e), newBenchECMPCommand(e), newBenchFloodCommand(e), newBenchForwardCommand(e),
		newBenchHealthCommand(e), newBenchHealthServersCommand(e), newBenchAPICommand(e), newBenchKubernetesCommand(e), newBenchLookupsCommand(e),
		newBenchOpenStackCommand(e), newBenchPacketCommand(e), newBenchReportsCommand(e))
	return cmd
}

// benchOptions are the flags of all measurements.
type benchOptions struct {
	env    env
	flags  *pflag.FlagSet
	quick  bool
	output cli.Output
}

// newMeasureCommand returns the command of one measurement, with the flags that all
// have.
func newMeasureCommand(e env, name, short, long string, run func(context.Context, *benchOptions) (*bench.Report, error)) (*cobra.Command, *pflag.FlagSet) {
	cmd := &cobra.Command{Use: name, Short: short, Long: long, Args: cobra.NoArgs}
	o := &benchOptions{env: e, flags: cmd.Flags()}
	o.flags.BoolVar(&o.quick, "quick", false, "measure less, in under a minute")
	o.output.Register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		measured, unknown := bench.Digests(".", name, version.Commit())
		if unknown != nil && !o.output.Table() {
			fmt.Fprintf(e.stderr, "the report will hold no digests of what it measures: %v\n", unknown)
		}
		report, err := run(cmd.Context(), o)
		if err != nil {
			return err
		}
		maps.Copy(report.Measured, measured)
		if o.output.Table() {
			return report.WriteTable(e.stdout)
		}
		var text bytes.Buffer
		if err := report.WriteJSON(&text); err != nil {
			return err
		}
		return o.output.PrintJSON(e.stdout, text.Bytes())
	}
	return cmd, o.flags
}

func (o *benchOptions) config() bench.Config {
	return bench.Config{
		Labs: netlab.Labs{Dir: netlab.DefaultDir}, Commit: version.Commit(), Quick: o.quick,
		Progress: func(line string) { fmt.Fprintln(o.env.stderr, line) },
	}
}

// labName returns a name that no other process uses.
func labName(bench string) string { return fmt.Sprintf("%s-%d", bench, os.Getpid()) }

// reduce sets a number to its value for --quick, unless its flag is given.
func (o *benchOptions) reduce(flag string, number *int, quick int) {
	if o.quick && !o.flags.Changed(flag) {
		*number = quick
	}
}

// seed draws a seed unless one is given.
func (o *benchOptions) seed(seed *uint64) {
	if !o.flags.Changed("seed") {
		*seed = rand.Uint64()
	}
}

func newBenchPacketCommand(e env) *cobra.Command {
	var cfg cost.PacketConfig
	cmd, flags := newMeasureCommand(e, "packet", "Measure the cost of a packet in the program",
		`Measure the time of the balancer's program for one packet, without a network: for
one flow up to a million, for one service and for many, in each forwarding mode,
and with every flow tracked; a bare reflector is measured for comparison.`,
		func(ctx context.Context, o *benchOptions) (*bench.Report, error) {
			cfg.Config = o.config()
			return cost.Packet(ctx, cfg)
		})
	flags.StringSliceVar(&cfg.Shapes, "shape", nil, "measure only these services x backends, such as 4096x16 (default: all)")
	flags.StringSliceVar(&cfg.Programs, "program", nil, "measure only these programs, such as l2dsr (default: all)")
	flags.IntSliceVar(&cfg.Flows, "flows", nil, "measure only these numbers of flows (default: all)")
	return cmd
}

func newBenchLookupsCommand(e env) *cobra.Command {
	var layouts []string
	cmd, flags := newMeasureCommand(e, "lookups", "Measure bare look-ups in tables of any size",
		`Measure the time of a program that only reads tables, to try their layout before
it is built. A layout such as "16384x32>65536x64,65536x16" has tables of elements x
bytes, of which a packet reads one element each, at random; those behind a ">" are
found by what was read before it.`,
		func(ctx context.Context, o *benchOptions) (*bench.Report, error) {
			return cost.Lookups(ctx, o.config(), layouts)
		})
	flags.StringArrayVar(&layouts, "layout", []string{"32768x32>8193x128>2048x64>2048x16>64x512"}, "tables that a packet reads; several are compared")
	return cmd
}

func newBenchChurnCommand(e env) *cobra.Command {
	var cfg churn.Config
	cmd, flags := newMeasureCommand(e, "churn", "Change backends at random under live connections and count what breaks",
		`Change backends at random under live connections and count what breaks. In a lab
of three balancers one of them is lost while no backend changes; servers are added,
removed, drained and re-weighted; once more while servers are killed and started
again, which health checks detect; and once more while one of the balancers is
lost. Without --quick it takes some minutes.`,
		func(ctx context.Context, o *benchOptions) (*bench.Report, error) {
			cfg.Config, cfg.Name = o.config(), labName("churn")
			o.reduce("connections", &cfg.Connections, 600)
			o.reduce("changes", &cfg.Changes, 80)
			o.seed(&cfg.Seed)
			return churn.Run(ctx, cfg)
		})
	flags.IntVar(&cfg.Connections, "connections", 3000, "TCP connections that are open all the time; 600 with --quick")
	flags.IntVar(&cfg.Changes, "changes", 1000, "changes of backends; 80 with --quick")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "repeat the changes of an earlier run (default: random)")
	flags.TextVar(&cfg.Tracking, "tracking", lb.TrackingMinimal, "flows that balancers track: minimal or full")
	return cmd
}

func newBenchECMPCommand(e env) *cobra.Command {
	var cfg ecmp.Config
	var routers string
	var reflector bool
	cmd, flags := newMeasureCommand(e, "ecmp", "Measure how an upstream router's routes follow the balancers",
		`Measure how an upstream router's equal-cost routes follow the balancers. In a lab
of four balancers and a real router, for each router without and with a route
reflector: whether its tables are right (table 6.2 of the dissertation); how soon
they follow when balancers are drained, stopped and started at random; what is lost
when a node is lost, or an agent hangs, is killed, stopped or drained; and whether
throughput follows the numbers of balancers and servers (figures 6.2 and 6.4).
Without --quick it takes a quarter of an hour.`,
		func(ctx context.Context, o *benchOptions) (*bench.Report, error) {
			cfg.Config, cfg.Name = o.config(), labName("ecmp")
			o.reduce("changes", &cfg.Changes, 20)
			o.seed(&cfg.Seed)
			kinds, err := benchRouters(routers, o.quick)
			if err != nil {
				return nil, err
			}
			reflectors := []bool{reflector}
			if !o.quick && !o.flags.Changed("reflector") {
				reflectors = []bool{false, true}
			}
			for _, with := range reflectors {
				for _, kind := range kinds {
					cfg.Settings = append(cfg.Settings, ecmp.Setting{Router: kind, Reflector: with})
				}
			}
			return ecmp.Run(ctx, cfg)
		})
	flags.StringVar(&routers, "router", "", "frr, bird, gobgp or all (default: frr and bird; frr with --quick)")
	flags.BoolVar(&reflector, "reflector", false, "only with a route reflector, or with =false only without (default: both; without with --quick)")
	flags.IntVar(&cfg.Changes, "changes", 300, "changes of the number of balancers for each router; 20 with --quick")
	flags.DurationVar(&cfg.Duration, "duration", 0, "change the number of balancers for this time instead, for example 20h")
	flags.DurationVar(&cfg.Interval, "interval", 0, "least time between two changes (default: until the table is right)")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "repeat the changes of an earlier run (default: random)")
	return cmd
}

func newBenchFloodCommand(e env) *cobra.Command {
	var cfg flood.Config
	cmd, flags := newMeasureCommand(e, "flood", "Flood one service with forged packets and count what breaks at another one",
		`Flood one service with SYNs or datagrams of forged addresses and count what breaks at another
one of the same balancer: connections that are silent for ten seconds, and new ones.
Fairlead's stateful modes and the kernel's connection tracking get the same flood.
Without --quick it takes some minutes.`,
		func(ctx context.Context, o *benchOptions) (*bench.Report, error) {
			cfg.Config, cfg.Name = o.config(), labName("flood")
			o.reduce("connections", &cfg.Connections, 100)
			if o.quick && !o.flags.Changed("duration") {
				cfg.Duration = 10 * time.Second
			}
			return flood.Run(ctx, cfg)
		})
	flags.IntVar(&cfg.Connections, "connections", 1000, "connections that are silent during the flood; 100 with --quick")
	flags.IntVar(&cfg.Rate, "rate", 200000, "forged packets a second, as far as the machine can make them")
	flags.DurationVar(&cfg.Duration, "duration", 30*time.Second, "time of each flood; 10s with --quick")
	return cmd
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

func newBenchForwardCommand(e env) *cobra.Command {
	var cfg forward.Config
	cmd, flags := newMeasureCommand(e, "forward", "Compare throughput through veth with a reflector, iptables and nftables",
		`Measure the packets a second that one processor forwards through a veth pair, the
device under test and back; the packets are made in the kernel. A bare XDP
reflector, Fairlead in each forwarding mode, Fairlead with pods of its own node past
netfilter and through it, iptables DNAT and nftables DNAT, each in a network namespace
of its own, and no device at all are compared; Fairlead on the kernel's IPVS only if
--device names it (ipvs-l2dsr, ipvs-nat). The machine's connection table is enlarged
during the run.`,
		func(ctx context.Context, o *benchOptions) (*bench.Report, error) {
			cfg.Config = o.config()
			if err := cfg.Check(); err != nil {
				return nil, cli.Usage(err)
			}
			return forward.Run(ctx, cfg)
		})
	flags.StringSliceVar(&cfg.Devices, "device", nil, "compare only these devices, for example reflector,l2dsr")
	flags.StringSliceVar(&cfg.Sizes, "frame", nil, "send only frames of these sizes in bytes, for example 64,imix")
	return cmd
}

// healthServers is the hidden command that runs the servers of bench health.
const healthServers = "health-servers"

func newBenchHealthCommand(e env) *cobra.Command {
	var cfg cost.CheckConfig
	cmd, flags := newMeasureCommand(e, "health", "Measure the cost of health checks",
		`Measure the processor time of health checks: thousands of addresses of the
loopback interface are checked each second, by TCP and by HTTP, while another
process answers.`,
		func(ctx context.Context, o *benchOptions) (*bench.Report, error) {
			executable, err := os.Executable()
			if err != nil {
				return nil, err
			}
			cfg.Config, cfg.Servers = o.config(), []string{executable, "bench", healthServers}
			return cost.Checks(ctx, cfg)
		})
	flags.IntVar(&cfg.Backends, "backends", 5000, "backends, each of which is checked once a second")
	return cmd
}

// newBenchHealthServersCommand answers checks until its standard input ends.
func newBenchHealthServersCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:    healthServers,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return cost.ServeChecks(cmd.Context(), os.Stdin, e.stdout) },
	}
}

func newBenchKubernetesCommand(e env) *cobra.Command {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	var cfg kubernetes.Config
	cmd, flags := newMeasureCommand(e, "kubernetes", "Measure how Fairlead follows a Kubernetes cluster, and the cost",
		`Measure how Fairlead follows a Kubernetes cluster, and the cost. It needs a cluster
of its own, of which the API server and Fairlead's kinds are enough. It writes
Services with EndpointSlices, and Nodes; runs a controller and, on a veth pair, an
agent; and traces packets through the agent's program while EndpointSlices change.
At the end it starts more agents and counts what they write while nothing changes. It
removes everything that it writes. Without --quick it takes some minutes.

    go run ./test/cluster/up bin/fairlab bench kubernetes

starts such a cluster for it.`,
		func(ctx context.Context, o *benchOptions) (_ *bench.Report, err error) {
			cfg.Config, cfg.Name = o.config(), labName("kubernetes")
			o.reduce("services", &cfg.Services, 200)
			o.reduce("agents", &cfg.Agents, 3)
			o.reduce("changes", &cfg.Changes, 100)
			if cfg.Kubeconfig, err = rules.Load(); err != nil {
				return nil, err
			}
			return kubernetes.Run(ctx, cfg)
		})
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "access to the API server (default: as kubectl)")
	flags.IntVar(&cfg.Services, "services", 4096, "Services, with sixteen endpoints each; 200 with --quick")
	flags.IntVar(&cfg.Changes, "changes", 1000, "changes of EndpointSlices; 100 with --quick")
	flags.IntVar(&cfg.Agents, "agents", 10, "agents at the end, of which the API server's writes are counted; 3 with --quick")
	return cmd
}

func newBenchAPICommand(e env) *cobra.Command {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	var cfg kubernetes.APIConfig
	cmd, flags := newMeasureCommand(e, "api", "Measure how changes through the HTTP API reach packets",
		`Measure the time from a request of the HTTP API to the program's decision, through
fairlead apiserver, a Kubernetes API server and an agent, at each number of load
balancers, with sixteen members each. The cluster is that of bench kubernetes:

    go run ./test/cluster/up bin/fairlab bench api

It removes everything that it writes. Without --quick it takes some minutes.`,
		func(ctx context.Context, o *benchOptions) (_ *bench.Report, err error) {
			cfg.Config.Config, cfg.Name = o.config(), labName("api")
			o.reduce("changes", &cfg.Changes, 100)
			if o.quick && !o.flags.Changed("load-balancers") {
				cfg.Sizes = []int{100, 200}
			}
			if cfg.Kubeconfig, err = rules.Load(); err != nil {
				return nil, err
			}
			return kubernetes.RunAPI(ctx, cfg)
		})
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "access to the API server (default: as kubectl)")
	flags.IntSliceVar(&cfg.Sizes, "load-balancers", []int{1000, 4096}, "numbers of load balancers, increasing; 100,200 with --quick")
	flags.IntVar(&cfg.Changes, "changes", 1000, "changes of members at each number; 100 with --quick")
	return cmd
}

func newBenchOpenStackCommand(e env) *cobra.Command {
	var cfg openstack.Config
	cmd, flags := newMeasureCommand(e, "openstack", "Measure how changes in OpenStack reach packets, and health reaches OpenStack",
		`Measure how soon a member that is created by Octavia's API gets a packet, and how
soon Octavia shows a member's change of health. It runs Keystone, Neutron and
Octavia with Fairlead's provider, which scripts/install-deps.sh openstack installs,
and a balancer in a lab. --quick takes some minutes, most of them until OpenStack
runs; without it the bench takes half an hour.`,
		func(ctx context.Context, o *benchOptions) (*bench.Report, error) {
			cfg.Config, cfg.Name = o.config(), labName("openstack")
			o.reduce("members", &cfg.Members, 10)
			o.reduce("changes", &cfg.Changes, 10)
			o.reduce("load-balancers", &cfg.Balancers, 20)
			return openstack.Run(ctx, cfg)
		})
	flags.StringVar(&cfg.Provider, "provider", "octavia", "folder of the provider's package")
	flags.IntVar(&cfg.Members, "members", 200, "members that are created; 10 with --quick")
	flags.IntVar(&cfg.Changes, "changes", 100, "changes of health; 10 with --quick")
	flags.IntVar(&cfg.Balancers, "load-balancers", 1000, "load balancers of ten members during these; 20 with --quick")
	return cmd
}

func newBenchReportsCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reports [TREE]",
		Short: "Check that the committed reports are current",
		Long: `Check that the reports in docs/reports of a source tree (default: the current
folder) are current: the code that a bench measures (the instructions of the BPF
programs, or Go packages without comments, formatting and tests) has the digests
that the report holds. The others are listed with what has changed, and are an
error, as is a report without digests. A bench writes digests with -o json if the
current folder is the root of the checkout that fairlab was built from, without
changes outside of docs.`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		root := "."
		if len(args) > 0 {
			root = args[0]
		}
		reports, err := bench.CommittedReports(root)
		if err != nil {
			return err
		}
		stale := 0
		table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "BENCH\tCOMMIT\tSTARTED\tSTATE")
		for _, r := range reports {
			if r.Stale != "" {
				stale++
			}
			fmt.Fprintf(table, "%s\t%.12s\t%s\t%s\n", r.Bench, r.Commit, r.Started.Format("2006-01-02"), cmp.Or(r.Stale, "current"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		if stale > 0 {
			return fmt.Errorf("%d of %d reports have to be measured again", stale, len(reports))
		}
		return nil
	}
	return cmd
}
