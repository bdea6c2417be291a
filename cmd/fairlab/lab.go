// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

func newLabCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Network-namespace labs: whole topologies with real routers, servers and clients",
	}
	labs := netlab.Labs{
		Dir:      netlab.DefaultDir,
		Progress: func(line string) { fmt.Fprintln(e.stderr, "lab:", line) },
	}
	cmd.AddCommand(
		newLabUpCommand(labs),
		newLabDownCommand(labs),
		newLabListCommand(e, labs),
		newLabExecCommand(labs),
		newLabEchoCommand(),
	)
	return cmd
}

// labTopology is a topology that "lab up" builds.
type labTopology struct {
	name string
	// flags are those that it takes, besides --name and --xdp-mode; nil: all.
	flags []string
	draw  func(netlab.ECMPOptions) (netlab.Topology, error)
}

// labTopologies are all, in the order of the help.
func labTopologies() []labTopology {
	type options = netlab.ECMPOptions
	return []labTopology{
		{"ecmp", nil, netlab.ECMP},
		{"vlan", []string{}, func(options) (netlab.Topology, error) { return netlab.VLAN(), nil }},
		{"vxlan", []string{"mtu"}, func(o options) (netlab.Topology, error) { return netlab.VXLAN(o.MTU), nil }},
		{"pods", []string{"balancers", "servers"}, func(o options) (netlab.Topology, error) {
			return netlab.Pods(netlab.PodsOptions{Balancers: o.Balancers, Nodes: o.Servers})
		}},
		{"nodes", []string{"balancers"}, func(o options) (netlab.Topology, error) {
			return netlab.Nodes(netlab.NodesOptions{Nodes: o.Balancers})
		}},
		{"snat", []string{"balancers", "servers", "router"}, func(o options) (netlab.Topology, error) {
			return netlab.SNAT(netlab.SNATOptions{Router: o.Router, Balancers: o.Balancers, Servers: o.Servers})
		}},
		{"cloud", []string{"forward", "balancers", "servers", "router"}, func(o options) (netlab.Topology, error) {
			return netlab.Cloud(netlab.CloudOptions{Forward: o.Forward, Router: o.Router, Balancers: o.Balancers, Servers: o.Servers})
		}},
		{"balancer-pods", []string{"balancers", "servers", "second"}, func(o options) (netlab.Topology, error) {
			return netlab.BalancerPods(netlab.BalancerPodsOptions{Nodes: o.Balancers, Second: o.Second, Servers: o.Servers})
		}},
	}
}

func newLabUpCommand(labs netlab.Labs) *cobra.Command {
	var o netlab.ECMPOptions
	var name, xdpMode string
	topologies := labTopologies()
	cmd := &cobra.Command{
		Use:   "up TOPOLOGY",
		Short: "Build a lab and return when traffic flows",
		Long: `Build a lab and return when traffic flows. The topologies are:

  ecmp   client, router with equal-cost routes, balancers, nginx servers
  vlan   two tenants with the same VIP in two VLANs of one switch
  vxlan  the same in two VXLAN segments over one network
  pods   ecmp with NAT to pods in a VXLAN overlay, as in a container cluster
  nodes  ecmp with NAT to pods on the balancers' own nodes
  snat   ecmp with balancers that are pods behind their node's address, and
         announce their routes to a BGP route reflector
  cloud  ecmp without a common layer 2: each host has a link to the router only
  balancer-pods
         snat with pods that have no other address, next to a balancer in the
         namespace of its node`,
		Example: "  fairlab lab up ecmp --name try --forward ipip",
		Args:    cobra.ExactArgs(1),
	}
	for _, t := range topologies {
		cmd.ValidArgs = append(cmd.ValidArgs, t.name)
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "name of the lab (default: the topology's)")
	flags.TextVar(&o.Forward, "forward", lb.L2DSR, "forwarding mode of ecmp: l2dsr, ipip, gue, vxlan, geneve or nat; of cloud also dsr, but not l2dsr")
	flags.StringVar((*string)(&o.Router), "router", "", "BGP implementation of the router: frr, bird or gobgp in ecmp (default: static routes), frr or bird in snat (default: frr), frr in cloud (default: static routes)")
	flags.BoolVar(&o.Reflector, "reflector", false, "put a BGP route reflector between the router and the balancers of ecmp")
	flags.BoolVar(&o.Dynamic, "dynamic", false, "make the router of ecmp accept any BGP neighbour")
	flags.BoolVar(&o.PeerIPv6, "peer-ipv6", false, "use IPv6 for all BGP sessions of ecmp")
	flags.BoolVar(&o.Foreign, "foreign", false, "add a server to ecmp that announces VIPs by ExaBGP")
	flags.IntVar(&o.Second, "second", 0, "number of balancers of ecmp, or nodes of balancer-pods, that also serve a second pair of VIPs")
	flags.IntVar(&o.MTU, "mtu", 0, "MTU of the links to balancers and servers, of ecmp and vxlan (default: for clients' full packets with outer headers)")
	flags.StringVar(&xdpMode, "xdp-mode", "auto", "where the balancers' programs run: native, generic or auto")
	flags.IntVar(&o.Balancers, "balancers", 3, "number of balancers of ecmp, pods, nodes, snat and cloud, and of nodes of balancer-pods with a pod")
	flags.IntVar(&o.Servers, "servers", 4, "number of servers of ecmp, snat, cloud and balancer-pods, and of nodes with a pod of pods")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i := slices.IndexFunc(topologies, func(t labTopology) bool { return t.name == args[0] })
		if i < 0 {
			return cli.Usagef("unknown topology %q: want one of %s", args[0], strings.Join(cmd.ValidArgs, ", "))
		}
		if err := topologies[i].checkFlags(flags); err != nil {
			return cli.Usage(err)
		}
		topology, err := topologies[i].draw(o)
		if err != nil {
			return cli.Usage(err)
		}
		topology.SetXDPMode(xdpMode)
		lab, err := labs.Up(cmd.Context(), cmp.Or(name, args[0]), topology)
		if err != nil {
			return err
		}
		labs.Progress(fmt.Sprintf("%s is up in %s", lab.State().Name, lab.Dir()))
		return nil
	}
	return cmd
}

// checkFlags returns an error if a flag is given that the topology doesn't have.
func (t labTopology) checkFlags(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if t.flags != nil && f.Name != "name" && f.Name != "xdp-mode" && !slices.Contains(t.flags, f.Name) {
			err = fmt.Errorf("topology %s takes no --%s", t.name, f.Name)
		}
	})
	return err
}

func newLabDownCommand(labs netlab.Labs) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:               "down {NAME | --all}",
		Short:             "Remove a lab with all its processes",
		ValidArgsFunction: completeLabs(labs),
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all labs")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) == 1) || len(args) > 1 {
			return cli.Usagef("want the name of one lab, or --all")
		}
		// An interrupt doesn't stop the removal.
		return takeDown(context.WithoutCancel(cmd.Context()), labs, args)
	}
	return cmd
}

// takeDown removes the named labs, or all.
func takeDown(ctx context.Context, labs netlab.Labs, names []string) error {
	if len(names) == 0 {
		states, err := labs.List()
		if err != nil {
			return err
		}
		for _, s := range states {
			names = append(names, s.Name)
		}
	}
	var errs []error
	for _, name := range names {
		lab, err := labs.Open(name)
		if err == nil {
			err = lab.Down(ctx)
		}
		if err == nil {
			labs.Progress(name + " is down")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func newLabListCommand(e env, labs netlab.Labs) *cobra.Command {
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the labs with their hosts",
		Args:  cobra.NoArgs,
	}
	output.Register(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		states, err := labs.List()
		if err != nil {
			return err
		}
		if output.Table() {
			return printLabs(e.stdout, states)
		}
		return output.Print(e.stdout, states)
	}
	return cmd
}

func printLabs(w io.Writer, states []netlab.State) error {
	if len(states) == 0 {
		_, err := fmt.Fprintln(w, "no labs")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LAB\tTOPOLOGY\tHOST\tROLE\tNAMESPACE\tINTERFACES\tADDRESSES\tSOCKET")
	for _, s := range states {
		topology := s.Topology
		if !s.Ready {
			topology += " (incomplete)"
		}
		for _, h := range s.Hosts {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				s.Name, topology, h.Name, roleText(h), h.Namespace,
				dash(strings.Join(h.Interfaces, ",")), dash(joinAddresses(h.Addresses)), dash(h.Socket))
		}
	}
	return table.Flush()
}

// roleText is for example "router (frr)".
func roleText(h netlab.HostState) string {
	if h.Software == "" {
		return string(h.Role)
	}
	return fmt.Sprintf("%s (%s)", h.Role, h.Software)
}

// completeLabs completes the name of a lab.
func completeLabs(labs netlab.Labs) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		if states, err := labs.List(); err == nil && len(args) == 0 {
			for _, s := range states {
				names = append(names, s.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeHosts completes the name of a lab, and of one of its hosts.
func completeHosts(labs netlab.Labs) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) != 1 {
			return completeLabs(labs)(cmd, args, word)
		}
		if lab, err := labs.Open(args[0]); err == nil {
			for _, h := range lab.State().Hosts {
				names = append(names, h.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func joinAddresses(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

// dash replaces an empty column.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// newLabExecCommand replaces fairlab by the command, which thus has the terminal, and
// gets signals.
func newLabExecCommand(labs netlab.Labs) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "exec NAME HOST -- CMD…",
		Short:             "Run a command in a host's network namespace",
		Example:           "  fairlab lab exec try client -- curl http://10.1.1.1/",
		Args:              cobra.MinimumNArgs(3),
		ValidArgsFunction: completeHosts(labs),
		RunE: func(_ *cobra.Command, args []string) error {
			lab, err := labs.Open(args[0])
			if err != nil {
				return err
			}
			command := args[2:]
			if command[0] == "--" && len(command) > 1 {
				command = command[1:]
			}
			return lab.Exec(args[1], command, os.Environ())
		},
	}
	// Flags after the host are the command's, also without the dashes.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// newLabEchoCommand runs in a lab's servers for the service "echo".
func newLabEchoCommand() *cobra.Command {
	var name string
	var listen []string
	cmd := &cobra.Command{
		Use:    "echo",
		Short:  "Answer UDP datagrams and lines over TCP with a name and their content",
		Args:   cobra.NoArgs,
		Hidden: true,
	}
	cmd.Flags().StringVar(&name, "name", "", "name to answer with")
	cmd.Flags().StringArrayVar(&listen, "listen", nil, "address and port to answer at; can be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var addresses []netip.AddrPort
		for _, text := range listen {
			address, err := netip.ParseAddrPort(text)
			if err != nil {
				return cli.Usagef("--listen: %w", err)
			}
			addresses = append(addresses, address)
		}
		return netlab.Echo(cmd.Context(), name, addresses)
	}
	return cmd
}
