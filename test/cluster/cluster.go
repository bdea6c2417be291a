// SPDX-License-Identifier: Apache-2.0

// Package cluster runs real Kubernetes for tests, out of the binary that
// [BuildKubernetes] builds. Tests of the Kubernetes source, the
// controller and the chart use it.
//
// There are two sizes. [StartAPI] is an API server with its etcd, for tests of
// programs that read and write objects; it is there in some seconds and has no
// nodes. [Start] is a whole [Cluster]: nodes that run pods, a router that speaks
// BGP, and a client behind it. They are wired like this, with IPv4 and IPv6
// everywhere:
//
//	client ── router ── bridge ─┬─ n1 ── pods
//	                            ├─ n2 ── pods
//	     control plane on the bridge
//
// With Options.Management the control plane and the nodes have a network of their own for the
// API, and Nodes their addresses in it. AddMachine, AddAccessPort and AddAPI add servers and another cluster's
// control plane to the nodes' network.
//
// Everything runs on a [Machine], a set of Linux namespaces whose processes are
// killed by the kernel when the test's process ends, however that ends. Nothing of
// a cluster has a name that two could want, so that any number run side by side,
// all with the same addresses. Files and cgroups that a killed run left are removed
// by the next.
package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Options select the parts of a cluster.
type Options struct {
	// Nodes is how many there are; their names are n1, n2 and so on.
	Nodes int
	// KubeProxy is the mode of each node's kube-proxy, nftables or iptables; without
	// one there are no Services but the API server's.
	KubeProxy string
	// NetworkPolicies says that each node's netfilter enforces them for IPv4, by kube-router.
	NetworkPolicies bool
	// Management says that Nodes have addresses of a network of their own, by which they reach the
	// API server, and not of the router's network.
	Management bool
	// GracePeriod is after how long of silence a node is NotReady; 0 means 8 s.
	GracePeriod time.Duration
}

// Cluster is a whole Kubernetes. Its API server can be away for a while, by Stop and
// Start of API.
type Cluster struct {
	*API
	// Router leads to the nodes' network and from there to the client's. It takes
	// BGP, watched by BFD, from every address of the nodes' network (see RouterASN).
	Router *Machine
	// Client is behind the router, and has no other way.
	Client *Machine
	// nodes are by number, the first is n1. others are machines outside of the cluster.
	nodes   []*Node
	others  []*Machine
	options Options
	// dir has all files, binary is Kubernetes.
	dir, binary string
	// kubeRouter is the path of kube-router; empty without NetworkPolicies.
	kubeRouter string
}

// Start makes a cluster and returns when all its nodes are ready; it is gone with
// the test.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	needRoot(t)
	path, err := Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	if o.GracePeriod == 0 {
		o.GracePeriod = 8 * time.Second
	}
	c := &Cluster{dir: newPlace(t), binary: path, options: o}
	if o.NetworkPolicies {
		if c.kubeRouter, err = buildKubeRouter(t.Context(), t.Output()); err != nil {
			t.Fatalf("kube-router: %v", err)
		}
	}
	t.Cleanup(func() { c.end(t) })
	if err := c.build(t.Context(), buildPause(t)); err != nil {
		t.Fatal(err)
	}
	return c
}

// needRoot skips the test where namespaces can't be created.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
}

// build makes everything in the order in which one thing needs another. Nodes get
// the image of the archive before they run anything.
func (c *Cluster) build(ctx context.Context, pause string) error {
	control, err := boot("control-plane", c.dir, unix.CLONE_NEWNET, waitForEnd)
	if err != nil {
		return err
	}
	etcd := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), etcdPort)
	c.API = newAPI(control, c.binary, netip.AddrPortFrom(c.apiNetwork().addresses(controlPlaneNumber)[0], httpsPort), etcd,
		"--bind-address=0.0.0.0", // also the address of the API server's Service
		"--default-not-ready-toleration-seconds=5", "--default-unreachable-toleration-seconds=5")
	c.dial = control.Dial
	if err := c.wire(); err != nil {
		return err
	}
	if err := startRouter(c.Router); err != nil {
		return err
	}
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	return c.buildNodes(ctx, pause)
}

func (c *Cluster) buildNodes(ctx context.Context, pause string) error {
	for n := range c.options.Nodes {
		c.nodes = append(c.nodes, newNode(c, n+1))
	}
	var all errgroup.Group
	for _, n := range c.nodes {
		all.Go(func() error { return n.setUp(ctx, pause) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if err := c.routePods(); err != nil {
		return err
	}
	if err := c.awaitReady(ctx, c.nodes...); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := n.startPolicies(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := c.start(ctx); err != nil {
		return err
	}
	err := c.startControllers(ctx,
		"--node-monitor-period=1s", fmt.Sprintf("--node-monitor-grace-period=%s", c.options.GracePeriod),
		"--allocate-node-cidrs=true", "--cluster-cidr="+podNetworks)
	if err != nil {
		return err
	}
	kubeconfig, err := c.kubeconfig("system:kube-scheduler")
	if err != nil {
		return err
	}
	return c.launch("kube-scheduler", c.binary, "kube-scheduler", "--kubeconfig="+kubeconfig,
		"--leader-elect=false", "--secure-port=0", "--cert-dir="+c.API.dir)
}

// Nodes are all, by number.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// Node returns the node of that name; a test that asks for one that isn't there
// fails.
func (c *Cluster) Node(t testing.TB, name string) *Node {
	t.Helper()
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	t.Fatalf("there is no node %s", name)
	return nil
}

// Load gives images, in OCI archives, to all nodes.
func (c *Cluster) Load(t testing.TB, archives ...string) {
	t.Helper()
	var all errgroup.Group
	for _, n := range c.nodes {
		all.Go(func() error { return n.load(t.Context(), archives...) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// end logs the cluster's state if the test failed, and cuts all machines.
func (c *Cluster) end(t testing.TB) {
	if t.Failed() {
		c.Diagnose(t)
	}
	var all errgroup.Group
	for _, m := range c.machines() {
		all.Go(m.cut)
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

// machines are those that are there.
func (c *Cluster) machines() []*Machine {
	var all []*Machine
	if c.API != nil {
		all = append(all, c.API.machine)
	}
	for _, m := range append([]*Machine{c.Router, c.Client}, c.others...) {
		if m != nil {
			all = append(all, m)
		}
	}
	for _, n := range c.nodes {
		if n.Machine != nil {
			all = append(all, n.Machine)
		}
	}
	return all
}

// Diagnose logs the objects of the cluster, the end of its programs' logs and the routes
// of the router. A test that fails calls it by itself.
func (c *Cluster) Diagnose(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"get", "nodes,pods,services,endpointslices", "--all-namespaces", "--output=wide"},
		{"get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"},
	} {
		logOutput(t, "kubectl "+args[1], func() (string, error) {
			return c.kubectl(ctx, append(args, "--request-timeout=5s")...)
		})
	}
	for _, args := range [][]string{{"ip", "route"}, {"ip", "-6", "route"}} {
		logOutput(t, "routes of the router", func() (string, error) { return c.Router.Run(ctx, args...) })
	}
	logOutput(t, "neighbours of the router", func() (string, error) { return c.RouterShell(ctx, "show bgp summary") })
	const lines = 15
	logs, err := filepath.Glob(filepath.Join(c.dir, "*", "*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, log := range logs {
		t.Logf("%s:\n%s", filepath.Join(filepath.Base(filepath.Dir(log)), filepath.Base(log)), tail(log, lines))
	}
}

func logOutput(t testing.TB, what string, ask func() (string, error)) {
	t.Helper()
	out, err := ask()
	if err != nil {
		t.Logf("%s: %v", what, err)
	}
	t.Logf("%s:\n%s", what, out)
}
