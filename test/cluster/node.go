// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed" // nodeScript
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Node is a machine with containerd and a kubelet, and with a disk, its /var, that
// survives when its power is cut. Its interface is eth0, and its /sys/fs/bpf is a BPF
// file system of its own.
type Node struct {
	// Machine is the running machine; nil while the power is cut.
	*Machine
	// Addresses are the node's own at eth0, IPv4 and then IPv6.
	Addresses []netip.Addr
	cluster   *Cluster
	name      string
	// number is the node's in its networks.
	number int
	// pods are the networks of its pods, IPv4 and then IPv6.
	pods []netip.Prefix

	addresses           []netip.Prefix
	containerd, kubelet *process
}

// nodeScript is run by the first process of a node, and joinScript before: it takes
// the process into the node's control groups, which become those that the node sees
// as the topmost.
//
//go:embed node.sh
var nodeScript string

const joinScript = `
script=$1 join=$2
shift 2
for group in $join; do
	echo 0 >"$group"
done
exec unshare --cgroup sh -ec "$script" sh "$@"
`

// enterScript has a program run in the node's control groups.
const enterScript = `
while read -r group; do
	echo 0 >"$group"
done </run/cgroups
exec "$@"
`

func newNode(c *Cluster, number int) *Node {
	return &Node{
		cluster:   c,
		name:      fmt.Sprintf("n%d", number),
		number:    nodeNumber + number,
		Addresses: nodeNetwork.addresses(nodeNumber + number),
		addresses: nodeNetwork.prefixes(nodeNumber + number),
	}
}

// Name is the node's, as "n1".
func (n *Node) Name() string { return n.name }

// internal are the addresses that its Node has.
func (n *Node) internal() []netip.Addr { return n.cluster.apiNetwork().addresses(n.number) }

// disk returns the folder that is /var on the node.
func (n *Node) disk() string { return filepath.Join(n.cluster.dir, n.name, "var") }

// group is the name of the node's control group.
func (n *Node) group() string { return filepath.Base(n.cluster.dir) + "-" + n.name }

// setUp makes a new node, whose pods can have addresses in the end.
func (n *Node) setUp(ctx context.Context, pause string) error {
	for _, step := range []func() error{
		n.furnish,
		func() error { return n.boot(ctx) },
		func() error { return n.load(ctx, pause) },
		n.startKubelet,
		n.startProxy,
		func() error { return n.awaitNetworks(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// boot makes the node's machine, in the network, and starts containerd.
func (n *Node) boot(ctx context.Context) error {
	names, err := hierarchies()
	if err != nil {
		return err
	}
	join, err := makeCgroups(n.group())
	if err != nil {
		return err
	}
	spaces := unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP
	args := append([]string{nodeScript + waitForEnd, strings.Join(join, " "), n.name, n.disk()}, names...)
	n.Machine, err = boot(n.name, n.cluster.dir, spaces, joinScript, args...)
	if err != nil {
		return err
	}
	if err := n.plumb(); err != nil {
		return err
	}
	n.containerd, err = n.run("containerd", "containerd", "--config", inNode(containerdConfig))
	if err != nil {
		return err
	}
	return n.containerd.poll(ctx, n.serving)
}

// serving reports whether containerd answers kubelets, which end if it doesn't: it does so a while after it
// answers ctr. The socket is seen from here through the machine's first process.
func (n *Node) serving(ctx context.Context) (err error) {
	socket := fmt.Sprintf("unix:///proc/%d/root%s", n.pid(), containerdSocket)
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return conn.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
}

// plumb connects the node with the network. The router is its gateway.
func (n *Node) plumb() error {
	if err := n.tune(forwarding()); err != nil {
		return err
	}
	if err := n.up("lo"); err != nil {
		return err
	}
	if err := n.cluster.join(n.Machine, eth0, bridge, n.addresses); err != nil {
		return err
	}
	if n.cluster.options.Management {
		if err := n.cluster.join(n.Machine, eth1, managementBridge, managementNetwork.prefixes(n.number)); err != nil {
			return err
		}
	}
	routes := append(defaultRoutes(RouterAddresses()...), route{
		to:  netip.PrefixFrom(serviceOfAPI, serviceOfAPI.BitLen()),
		via: n.cluster.apiNetwork().addresses(controlPlaneNumber)[0],
	})
	return n.route(routes...)
}

// run starts a program of the node, in its control groups.
func (n *Node) run(name string, args ...string) (*process, error) {
	return n.launch(name, nil, append([]string{"sh", "-ec", enterScript, "sh"}, args...)...)
}

func (n *Node) startKubelet() (err error) {
	ips := n.internal()
	n.kubelet, err = n.run("kubelet", n.cluster.binary, "kubelet",
		"--config="+inNode(kubeletConfig), "--kubeconfig="+inNode(kubeletKubeconfig),
		"--hostname-override="+n.name, "--node-ip="+ips[0].String()+","+ips[1].String())
	return err
}

// startProxy starts kube-proxy where the cluster has one.
func (n *Node) startProxy() error {
	if n.cluster.options.KubeProxy == "" {
		return nil
	}
	_, err := n.run("kube-proxy", n.cluster.binary, "kube-proxy", "--config="+inNode(proxyConfig))
	return err
}

// load gives images to containerd.
func (n *Node) load(ctx context.Context, archives ...string) error {
	for _, archive := range archives {
		if err := n.importImage(ctx, archive); err != nil {
			return fmt.Errorf("node %s: image %s: %w", n.name, filepath.Base(archive), err)
		}
	}
	return nil
}

// PowerCut ends the node at once: its cable is pulled and all its processes are
// killed. Its disk stays.
func (n *Node) PowerCut(t testing.TB) {
	t.Helper()
	err := errors.Join(n.cluster.unplug(n.name), n.cut())
	n.Machine = nil
	if err := errors.Join(err, removeCgroups(n.group())); err != nil {
		t.Fatal(err)
	}
}

// Boot starts a node whose power was cut, with its disk, and returns when it is
// ready.
func (n *Node) Boot(t testing.TB) {
	t.Helper()
	start := now()
	for _, step := range []func() error{
		func() error { return n.boot(t.Context()) },
		n.startKubelet,
		n.startProxy,
		n.cluster.routePods,
		func() error { return n.cluster.awaitHeartbeat(t.Context(), n, start) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// RestartKubelet stops the kubelet and starts it again; the pods go on. It returns
// when the node is ready.
func (n *Node) RestartKubelet(t testing.TB) {
	t.Helper()
	if err := n.kubelet.stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	start := now()
	if err := n.startKubelet(); err != nil {
		t.Fatal(err)
	}
	if err := n.cluster.awaitHeartbeat(t.Context(), n, start); err != nil {
		t.Fatal(err)
	}
}
