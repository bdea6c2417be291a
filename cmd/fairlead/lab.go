// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// newLabCommand is "fairlead lab": whole networks in namespaces to try things
// in. lab_list.go shows them, lab_run.go has what runs inside,
// lab_demo.go is the demonstration.
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
		newLabDemoCommand(e, labs),
		newLabEchoCommand(),
	)
	return cmd
}

// labOptions are the flags of "lab up".
type labOptions struct {
	name, forward, router             string
	mtu, balancers, servers, second   int
	reflector, dynamic, ipv6, foreign bool
}

func newLabUpCommand(labs netlab.Labs) *cobra.Command {
	var o labOptions
	cmd := &cobra.Command{
		Use:   "up TOPOLOGY",
		Short: "Build a lab and return when traffic flows",
		Long: `Build a lab and return when traffic flows. The topologies are:

  ecmp   client, router with equal-cost routes, balancers, nginx servers
  vlan   two tenants with the same VIP in two VLANs of one switch
  vxlan  the same in two VXLAN segments over one network
  pods   ecmp with NAT to pods in a VXLAN overlay, as in a container cluster
  nodes  ecmp with NAT to pods of the balancers' own machines
  snat   ecmp with balancers that are pods behind their node's address, and a
         BGP route reflector which they announce their routes to`,
		Example:   "  fairlead lab up ecmp --name try --forward ipip",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"ecmp", "vlan", "vxlan", "pods", "nodes", "snat"},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.name, "name", "", "name of the lab (default: the topology's)")
	flags.StringVar(&o.forward, "forward", "l2dsr", "forwarding mode of ecmp: l2dsr, ipip, gue, vxlan, geneve or nat")
	flags.StringVar(&o.router, "router", "", "what fills the router's table by BGP: frr, bird or gobgp in ecmp (default: the lab itself does), frr or bird in snat (default: frr)")
	flags.BoolVar(&o.reflector, "reflector", false, "put a BGP route reflector between the router and the balancers of ecmp")
	flags.BoolVar(&o.dynamic, "dynamic", false, "have the router of ecmp take any BGP neighbour that calls")
	flags.BoolVar(&o.ipv6, "peer-ipv6", false, "have all BGP sessions of ecmp over IPv6")
	flags.BoolVar(&o.foreign, "foreign", false, "add a server to ecmp that announces VIPs by ExaBGP")
	flags.IntVar(&o.second, "second", 0, "number of balancers of ecmp that serve a second pair of VIPs too")
	flags.IntVar(&o.mtu, "mtu", 0, "MTU of the links to balancers and servers, of ecmp and vxlan (default: clients' full packets fit with outer headers)")
	flags.IntVar(&o.balancers, "balancers", 3, "number of balancers of ecmp, pods, nodes and snat")
	flags.IntVar(&o.servers, "servers", 4, "number of servers of ecmp and snat, and of nodes with a pod of pods")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkLabFlags(flags, args[0]); err != nil {
			return err
		}
		topology, err := o.topology(args[0])
		if err != nil {
			return err
		}
		if o.name == "" {
			o.name = args[0]
		}
		lab, err := labs.Up(cmd.Context(), o.name, topology)
		if err != nil {
			return err
		}
		labs.Progress(fmt.Sprintf("%s is up in %s", o.name, lab.Dir()))
		return nil
	}
	return cmd
}

// checkLabFlags returns an error if a flag is given that the topology, other than
// ecmp, doesn't take.
func checkLabFlags(flags *pflag.FlagSet, topology string) (err error) {
	takes := map[string][]string{"vlan": {}, "vxlan": {"mtu"}, "pods": {"balancers", "servers"}, "nodes": {"balancers"}, "snat": {"balancers", "servers", "router"}}
	flags.Visit(func(f *pflag.Flag) {
		if others, limited := takes[topology]; limited && f.Name != "name" && !slices.Contains(others, f.Name) {
			err = fmt.Errorf("topology %s takes no --%s", topology, f.Name)
		}
	})
	return err
}

// topology makes the topology of that name; what runs in it is this very
// executable.
func (o labOptions) topology(name string) (netlab.Topology, error) {
	fairlead, err := os.Executable()
	if err != nil {
		return netlab.Topology{}, err
	}
	gobgpd := filepath.Join(filepath.Dir(fairlead), "gobgpd") // "make gobgpd"
	if _, err := os.Stat(gobgpd); err != nil {
		gobgpd = ""
	}
	switch name {
	case "ecmp":
		var forward lb.Forward
		if err := forward.UnmarshalText([]byte(o.forward)); err != nil {
			return netlab.Topology{}, err
		}
		return netlab.ECMP(netlab.ECMPOptions{
			Fairlead: fairlead, Forward: forward, MTU: o.mtu, Balancers: o.balancers, Servers: o.servers,
			Second: o.second, Router: netlab.RouterKind(o.router), Reflector: o.reflector, Dynamic: o.dynamic,
			PeerIPv6: o.ipv6, Foreign: o.foreign, GoBGPD: gobgpd,
		})
	case "vlan":
		return netlab.VLAN(fairlead), nil
	case "vxlan":
		return netlab.VXLAN(fairlead, o.mtu), nil
	case "pods":
		return netlab.Pods(netlab.PodsOptions{Fairlead: fairlead, Balancers: o.balancers, Nodes: o.servers})
	case "nodes":
		return netlab.Nodes(netlab.NodesOptions{Fairlead: fairlead, Nodes: o.balancers})
	case "snat":
		return netlab.SNAT(netlab.SNATOptions{
			Fairlead: fairlead, Router: netlab.RouterKind(o.router), Balancers: o.balancers, Servers: o.servers,
		})
	default:
		return netlab.Topology{}, fmt.Errorf("unknown topology %q: want ecmp, vlan, vxlan, pods, nodes or snat", name)
	}
}

func newLabDownCommand(labs netlab.Labs) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down {NAME | --all}",
		Short: "Remove a lab with everything that runs in it",
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all labs")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) == 1) || len(args) > 1 {
			return errors.New("want the name of one lab, or --all")
		}
		// Half a removal helps nobody: an interrupt doesn't stop it.
		return takeDown(context.WithoutCancel(cmd.Context()), labs, args)
	}
	return cmd
}

// takeDown removes the labs of these names, or all if there is none.
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
