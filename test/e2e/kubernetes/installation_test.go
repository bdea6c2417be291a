// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
)

const (
	namespace = "fairlead-system"
)

// pools are the addresses that Services get, IPv4 and then IPv6.
var pools = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:113::/120")}

// installation is a cluster with Fairlead in it.
type installation struct {
	*cluster.Cluster
	forward forwarding
	// helm is the command, kubeconfig its access to the cluster.
	helm, kubeconfig string
	// values is the chart's values file.
	values string
}

// whoamiImage has the command of that name.
func whoamiImage(t *testing.T) string {
	t.Helper()
	return cluster.Image{
		Name: "localhost/whoami:1", Entrypoint: []string{"/whoami"},
		Copies: map[string]string{"/whoami": filepath.Join(artefacts, "whoami")},
	}.Build(t)
}

// forwarding is how the group brings packets to pods.
type forwarding string

const (
	// nat keeps sessions on the balancer that a connection came through: it breaks when
	// the router sends it through another one.
	nat forwarding = "nat"
	// dsr, which is the default, keeps them on the node that has the connection's pod.
	dsr forwarding = ""
)

// stateless says that a connection continues through any balancer.
func (f forwarding) stateless() bool { return f != nat }

// install makes a cluster, and gives it Fairlead; args are more of "helm install".
func install(t *testing.T, o cluster.Options, forward forwarding, args ...string) *installation {
	t.Helper()
	i := &installation{Cluster: cluster.Start(t, o), forward: forward}
	i.diagnoseFailure(t)
	i.Load(t, imageArchive, cluster.NginxImage(t), whoamiImage(t))
	i.helm, i.kubeconfig = helmPath(t), i.Kubeconfig(t, i.Config())
	i.values = filepath.Join(t.TempDir(), "values.yaml")
	text := i.valuesText()
	if o.KubeProxy == "" {
		text += i.serverText(t)
	}
	if err := os.WriteFile(i.values, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	i.Kubectl(t, "create", "namespace", namespace)
	i.Kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged")
	i.runHelm(t, "install", append([]string{"--wait"}, args...)...)
	return i
}

// helmPath returns the helm of tools/helm.
func helmPath(t *testing.T) string {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "go", "tool", "-n", "-modfile="+root+"/tools/helm/go.mod", "helm").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(path))
}

// runHelm installs or upgrades the release.
func (i *installation) runHelm(t *testing.T, verb string, args ...string) {
	t.Helper()
	args = append([]string{verb, "fairlead", chart, "--values", i.values, "--timeout", await.Patience.String()}, args...)
	i.callHelm(t, args...)
}

// callHelm runs helm at the client, which reaches the API server as an operator's
// machine does.
func (i *installation) callHelm(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{i.helm, "--kubeconfig", i.kubeconfig, "--namespace", namespace}, args...)
	if _, err := i.Client.Run(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// valuesText are the chart's values: one pool, one group, and the router as a peer at
// both of its addresses. BFD waits for 3 s: pods have no real-time priority, and when a
// busy machine delays all nodes at once the router would be left without a route, and
// refuse clients.
func (i *installation) valuesText() string {
	forward := ""
	if i.forward != dsr {
		forward = fmt.Sprintf("forward: %s, ", i.forward)
	}
	router := cluster.RouterAddresses()
	return fmt.Sprintf(`
image: {pullPolicy: Never} # its name is the release's
logFormat: text
bgp:
  asn: %d
  peers:
    - {name: router, address: %s, asn: %d, bfd: {interval: 1s}}
    - {name: router-v6, address: "%s", asn: %d, bfd: {interval: 1s}}
addressPools:
  - {name: default, addresses: [%s, "%s"]}
groups:
  - name: default
    size: 3
    nodeSelector: {}
    dataPlane: {%shealthCheck: {type: tcp, interval: 300ms, timeout: 300ms}}
metrics: {secure: true}
agent:
  listen: {address: "0.0.0.0"}
  resources: {requests: {cpu: 10m, memory: 64Mi}}
  dataplane: {flows: 16384, natSessions: 16384}
controller:
  resources: {requests: {cpu: 10m, memory: 32Mi}}
`, cluster.NodeASN, router[0], cluster.RouterASN, router[1], cluster.RouterASN, pools[0], pools[1], forward)
}

// serverText are the values by which pods find the API server without kube-proxy.
func (i *installation) serverText(t *testing.T) string {
	t.Helper()
	server, err := url.Parse(i.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("kubernetes: {apiServer: {host: %s, port: %s}}\n", server.Hostname(), server.Port())
}

// ask runs the fairlead command on a node and returns its output.
func (i *installation) ask(ctx context.Context, n *cluster.Node, args ...string) (string, error) {
	if n.Machine == nil {
		return "", errors.New("node " + n.Name() + " has no power")
	}
	return n.Run(ctx, append([]string{executable}, args...)...)
}

// diagnoseFailure logs diagnostics at the end of a test that fails.
func (i *installation) diagnoseFailure(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			i.diagnose(t)
		}
	})
}

// diagnose logs the state and the logs of controllers and agents.
func (i *installation) diagnose(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	show := func(what string, say func() (string, error)) {
		text, err := say()
		if err != nil {
			text += err.Error()
		}
		t.Logf("%s:\n%s", what, text)
	}
	for _, n := range i.Nodes() {
		for _, command := range []string{"status", "services", "backends", "routes"} {
			show(n.Name()+": fairlead "+command, func() (string, error) { return i.ask(ctx, n, command) })
		}
		if n.Machine == nil {
			continue
		}
		const last = `for f in /var/log/pods/` + namespace + `_*/*/*.log; do echo "$f"; tail -n 60 "$f"; done`
		show(n.Name()+": logs", func() (string, error) { return n.Run(ctx, "sh", "-c", last) })
	}
	show("objects", func() (string, error) {
		kubernetes, err := cluster.Kubernetes()
		if err != nil {
			return "", err
		}
		return i.Client.Run(ctx, kubernetes, "kubectl", "--kubeconfig", i.kubeconfig, "--request-timeout=5s",
			"get", "addresspools,loadbalancergroups,bgppeers", "--output=yaml")
	})
}
