// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
)

const (
	// The servers of controlled clusters are in memberVLAN; the router sends packets for taggedVIP
	// in clientVLAN.
	memberVLAN, clientVLAN = 100, 300
	// controlFolder has a node's kubeconfig file for the control cluster.
	controlFolder = "/var/lib/fairlead-control"
)

// shopVIP and taggedVIP are the addresses of LoadBalancers.
var shopVIP, taggedVIP = netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("203.0.113.20")

// byL2DSR matches metrics of a node that has forwarded packets by l2dsr.
var byL2DSR = regexp.MustCompile(`fairlead_dataplane_packets_total\{exit="forward_l2dsr"\} [1-9]`)

// controlled is a cluster of balancers whose load balancers are in another one, the control cluster,
// with servers that are in neither.
type controlled struct {
	*installation
	// control is the API server of the control cluster, console a machine that reaches both.
	control *cluster.API
	console *cluster.Machine
	// members are those of the load balancer, one of each server, in YAML.
	members []string
}

// Balancers of a cluster whose Nodes have addresses of a management network serve a LoadBalancer of a
// control cluster, by XDP l2dsr, with members in a VLAN outside of both, also if packets arrive in another
// VLAN. Their group follows labels of Nodes without a lost request. While the balancers' API server is
// away they follow the control cluster. Without both API servers they keep their services, also
// after an agent was killed.
func TestAPIServerControlCluster(t *testing.T) {
	t.Parallel()
	c := &controlled{installation: &installation{Cluster: cluster.Start(t, cluster.Options{Nodes: 2, Management: true})}}
	c.diagnoseFailure(t)
	c.control, c.console = c.AddAPI(t, "control")
	c.addServers(t, 3)
	c.installBoth(t)
	c.apply(t, 2)
	c.Kubectl(t, "label", "node", "n1", "n2", "group=a")
	vips := []netip.Addr{shopVIP}
	c.awaitRoutes(t, vips, "n1", "n2")
	c.answeredBy(t, shopVIP, "server1", "server2")
	c.answeredBy(t, taggedVIP, "server1", "server2")
	cluster.Await(t, "a route to an address in a VLAN by both nodes", func() error {
		route, err := c.Router.Run(t.Context(), "ip", "route", "show", taggedVIP.String())
		if err == nil && (!strings.Contains(route, taggedHop(0)) || !strings.Contains(route, taggedHop(1))) {
			err = fmt.Errorf("it is %q", route)
		}
		return err
	})

	l := startLoad(t.Context(), c.Client, []netip.Addr{shopVIP, taggedVIP})
	defer l.stop()
	l.goOn(t)
	c.Kubectl(t, "label", "node", "n1", "group-")
	c.awaitRoutes(t, vips, "n2")
	l.goOn(t)
	c.Kubectl(t, "label", "node", "n1", "group=a")
	c.awaitRoutes(t, vips, "n1", "n2")
	l.goOn(t)
	reports := strings.Fields(c.control.Kubectl(t, "get", "balancernodes", "--output", "jsonpath={.items[*].metadata.name} {.items[*].metadata.ownerReferences}"))
	if !slices.Equal(reports, []string{"n1", "n2"}) {
		t.Errorf("reports and their owners are %q, want those of both nodes, without owners", reports)
	}

	c.Stop(t)
	c.apply(t, 3)
	c.answeredBy(t, shopVIP, "server1", "server2", "server3")
	l.goOn(t)
	c.control.Stop(t)
	l.goOn(t)
	toll := l.stop()
	t.Logf("%d requests answered, the slowest in %s, on %d connections", toll.Requests, toll.Slowest, toll.Connections)
	if len(toll.Lost)+len(toll.Broken)+toll.Closed > 0 {
		t.Errorf("%d requests lost, %d connections broken, %d closed", len(toll.Lost), len(toll.Broken), toll.Closed)
		sample(t, "lost", toll.Lost)
		sample(t, "broken", toll.Broken)
	}
	c.forwardedByXDP(t)
	n1 := c.Node(t, "n1")
	c.killAgent(t, n1) // without load: one node only knows connections that are younger than the last member
	cluster.Await(t, "the next agent to serve what was saved", func() error {
		services, err := c.ask(t.Context(), n1, "services")
		if err == nil && !strings.Contains(services, "flb:default/shop/http") {
			err = fmt.Errorf("it serves %s", services)
		}
		return err
	})
	c.awaitRoutes(t, vips, "n1", "n2")
	c.answeredBy(t, shopVIP, "server1", "server2", "server3")
}

// addServers makes servers in memberVLAN, with the router as their gateway there, and the nodes next hops
// of the router in clientVLAN: without VLAN devices they don't answer for these addresses.
func (c *controlled) addServers(t *testing.T, count int) {
	t.Helper()
	run := func(m *cluster.Machine, args ...string) string {
		t.Helper()
		out, err := m.Run(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	c.AddAccessPort(t, c.Router, "eth2", memberVLAN, netip.MustParsePrefix("10.0.4.254/24"))
	c.AddAccessPort(t, c.Router, "eth3", clientVLAN, netip.MustParsePrefix("10.0.5.254/24"))
	for i, n := range c.Nodes() {
		mac, hop := run(n.Machine, "cat", "/sys/class/net/eth0/address"), taggedHop(i)
		run(c.Router, "ip", "neighbour", "replace", hop, "lladdr", mac, "dev", "eth3", "nud", "permanent")
		c.Kubectl(t, "annotate", "node", n.Name(), fmt.Sprintf("fairlead.io/next-hops=%d=%s", clientVLAN, hop))
	}
	for n := range count {
		name, address := fmt.Sprintf("server%d", n+1), fmt.Sprintf("10.0.4.%d", n+1)
		m := c.AddMachine(t, name)
		mac := c.AddAccessPort(t, m, "eth0", memberVLAN, netip.MustParsePrefix(address+"/24"))
		run(m, "ip", "route", "add", "default", "via", "10.0.4.254")
		run(m, "ip", "address", "add", shopVIP.String(), "dev", "lo")
		run(m, "ip", "address", "add", taggedVIP.String(), "dev", "lo")
		serveName(t, m)
		c.members = append(c.members, fmt.Sprintf("{address: %s, port: 80, mac: %q, segment: {type: vlan, id: %d}}", address, mac, memberVLAN))
	}
}

// taggedHop is the next hop of a node in clientVLAN.
func taggedHop(node int) string { return fmt.Sprintf("10.0.5.%d", 11+node) }

// serveName answers requests at port 80 of a machine with its name.
func serveName(t *testing.T, m *cluster.Machine) {
	t.Helper()
	var listener net.Listener
	err := m.Do(func() (err error) {
		listener, err = net.Listen("tcp4", ":80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, m.Name()) })}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
}

// installBoth installs the agents in the balancers' cluster and all else in the control cluster, whose
// controller runs on the console.
func (c *controlled) installBoth(t *testing.T) {
	t.Helper()
	c.Load(t, imageArchive)
	c.helm, c.kubeconfig = helmPath(t), c.Kubeconfig(t, c.Config())
	for _, n := range c.Nodes() {
		user := c.control.As(t, "fairlead:node:"+n.Name(), "fairlead:agents")
		text, err := os.ReadFile(c.control.Kubeconfig(t, user))
		if err != nil {
			t.Fatal(err)
		}
		err = n.Do(func() error {
			if err := os.Mkdir(controlFolder, 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(controlFolder, "kubeconfig"), text, 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c.Kubectl(t, "create", "namespace", namespace)
	c.callHelm(t, "install", "fairlead", chart, "--skip-crds", "--values", write(fmt.Sprintf(`
image: {pullPolicy: Never}
logFormat: text
bgp: {asn: %d}
agent:
  interfaces: [eth0]
  controlKubeconfigFolder: %s
  resources: {requests: {cpu: 10m, memory: 64Mi}}
  dataplane: {flows: 16384, natSessions: 16384}
`, cluster.NodeASN, controlFolder)+c.serverText(t)))

	c.control.Kubectl(t, "create", "namespace", namespace)
	c.onConsole(t, c.helm, "--kubeconfig", c.control.Kubeconfig(t, c.control.Config()), "--namespace", namespace,
		"install", "fairlead", chart, "--values", write(fmt.Sprintf(`
controller: {nodesKubeconfigSecret: balancers}
bgp: {asn: %d, peers: [{name: router, address: %s, asn: %d, bfd: {interval: 1s}}]}
addressPools: [{name: vips, addresses: [%s]}]
groups:
  - name: a
    size: 2
    nodeSelector: {matchLabels: {group: a}}
    loadBalancers: {memberNetworks: [10.0.4.0/24], memberMACs: true, segments: [{type: vlan, first: %d}, {type: vlan, first: %d, announce: [%s/32]}]}
`, cluster.NodeASN, cluster.RouterAddresses()[0], cluster.RouterASN, pools[0], memberVLAN, clientVLAN, taggedVIP)))
	controller := exec.Command(executable, "controller", "--namespace", namespace, "--hash-seed-secret=fairlead-hash-seed",
		"--kubeconfig", c.control.Kubeconfig(t, c.control.AsServiceAccount(t, namespace, "fairlead-controller")),
		"--nodes-kubeconfig", c.Kubeconfig(t, c.AsServiceAccount(t, namespace, "fairlead-controller")),
		"--metrics-address=", "--health-address=")
	controller.Stdout, controller.Stderr = t.Output(), t.Output()
	if err := c.console.Start(controller); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = controller.Process.Kill()
		_ = controller.Wait()
	})
	c.Kubectl(t, "--namespace", namespace, "rollout", "status", "daemonset/fairlead-agent", "--timeout="+await.Patience.String())
}

// onConsole runs a command on the console.
func (c *controlled) onConsole(t *testing.T, args ...string) {
	t.Helper()
	if _, err := c.console.Run(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// apply has the control cluster have load balancers with the first members.
func (c *controlled) apply(t *testing.T, members int) {
	t.Helper()
	c.control.Apply(t, c.balancer("shop", fmt.Sprintf("address: %s", shopVIP), members)+"---\n"+
		c.balancer("tagged", fmt.Sprintf("address: %s\n  segment: {type: vlan, id: %d}", taggedVIP, clientVLAN), members))
}

// balancer is a load balancer with the first members.
func (c *controlled) balancer(name, address string, members int) string {
	return fmt.Sprintf(`apiVersion: fairlead.io/v1alpha1
kind: LoadBalancer
metadata: {name: %s, namespace: default}
spec:
  forward: l2dsr
  %s
  listeners: [{name: http, port: 80, pool: servers}]
  pools:
    - name: servers
      healthCheck: {type: http, path: /, interval: 500ms, timeout: 500ms}
      members: [%s]
`, name, address, strings.Join(c.members[:members], ", "))
}

// answeredBy waits until each of these servers has answered the client, and no other one.
func (c *controlled) answeredBy(t *testing.T, vip netip.Addr, servers ...string) {
	t.Helper()
	seen := map[string]bool{}
	cluster.Await(t, fmt.Sprintf("answers of %v", servers), func() error {
		name, err := fetch(t.Context(), c.Client, netip.AddrPortFrom(vip, 80))
		if err != nil {
			return err
		}
		seen[name] = true
		if len(seen) < len(servers) {
			return fmt.Errorf("answers of %v only", seen)
		}
		return nil
	})
	for _, name := range servers {
		if !seen[name] {
			t.Errorf("answers of %v, want those of %s", seen, name)
		}
	}
}

// forwardedByXDP checks that the nodes forward by l2dsr, to members in their VLAN.
func (c *controlled) forwardedByXDP(t *testing.T) {
	t.Helper()
	for _, n := range c.Nodes() {
		metrics, err := n.Run(t.Context(), "curl", "--silent", "--fail", "http://127.0.0.1:9571/metrics")
		if err != nil || !byL2DSR.MatchString(metrics) {
			t.Errorf("%s: %v: no packets by l2dsr in its metrics", n.Name(), err)
		}
		backends, err := c.ask(t.Context(), n, "backends")
		if err != nil || strings.Count(backends, fmt.Sprintf("vlan %d", memberVLAN)) != 2*len(c.members) {
			t.Errorf("%s: %v: backends, which aren't all in VLAN %d:\n%s", n.Name(), err, memberVLAN, backends)
		}
	}
}
