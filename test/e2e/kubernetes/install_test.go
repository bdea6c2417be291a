// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
	"fairlead.io/fairlead/test/e2e/harness"
)

// One cluster with kube-proxy goes through everything. A scenario needs the ones
// before it only for Deployment and Service "web".
func TestCluster(t *testing.T) {
	i := install(t, cluster.Options{Nodes: 3, KubeProxy: "nftables"}, dsr)
	i.Apply(t, web)
	i.Apply(t, whoami)
	for _, step := range []struct {
		name string
		run  func(*testing.T, *installation)
	}{
		{"install", testInstall},
		{"plugin", testPlugin},
		{"metrics", testMetrics},
		{"TCP and UDP", testBothProtocols},
		{"local policy", testLocalPolicy},
		{"session affinity", testAffinity},
		{"session affinity with local policy", testAffinityLocal},
		{"source ranges", testSourceRanges},
		{"UDP after a pod", testUDPAfterAPod},
		{"inside", testInside},
		{"direct server return", testDirectReturn},
		{"greedy tenant", testGreedyTenant},
		{"scale", testScale},
		{"rollout", testRollout},
		{"rollout with local policy", testRolloutLocal},
		{"deleted pods", testDeletedPods},
		{"drain", testDrain},
		{"upgrade", testUpgrade},
		{"kubelets restart", testKubelet},
		{"API server is away", testAPIAway},
		{"power is cut", testPowerCut},
		{"uninstall", testUninstall},
	} {
		t.Run(step.name, func(t *testing.T) {
			i.diagnoseFailure(t) // before the next step changes anything
			step.run(t, i)
		})
	}
}

// A Deployment and a Service get addresses, routes by way of all nodes, and answers
// of all pods.
func testInstall(t *testing.T, i *installation) {
	pods := i.deployed(t, "web")
	vips := i.vips(t, "web")
	i.awaitRoutes(t, vips, i.names()...)
	for _, vip := range vips {
		i.answered(t, vip, pods)
	}
	nodes := len(i.Nodes())
	i.awaitOutput(t, "each node to report what it serves", strings.Repeat(fmt.Sprintf("%d %[1]d 0 %[1]d;", len(vips)), nodes),
		"get", "balancernodes", "--output", "jsonpath={range .items[*]}{.status.services.total} "+
			"{.status.services.programmed} {.status.services.failed} {.status.routes.announced};{end}")
	i.awaitOutput(t, "both peers to have sessions with all nodes", strings.Repeat(fmt.Sprintf("%d of %[1]d: True;", nodes), 2),
		"get", "bgppeers.fairlead.io", "--output",
		"jsonpath={range .items[*]}{.status.established} of {.status.nodes}: {.status.conditions[0].status};{end}")
	var conditions strings.Builder
	for _, kind := range []string{"Programmed", "BackendsHealthy", "Announced"} {
		fmt.Fprintf(&conditions, `{.status.conditions[?(@.type=="fairlead.io/%s")].status} `, kind)
	}
	i.awaitOutput(t, "the Service to say what nodes report", "True True True ", "get", "service", "web", "--output", "jsonpath="+conditions.String())
	i.awaitOutput(t, "the group to say who announces", "by "+strings.Join(i.names(), ", "), "get", "loadbalancergroups",
		"--output", `jsonpath={.items[*].status.conditions[?(@.type=="Announced")].message}`)
}

// awaitOutput waits until kubectl writes a text.
func (i *installation) awaitOutput(t *testing.T, what, want string, args ...string) {
	t.Helper()
	cluster.Await(t, what, func() error {
		if got := i.Kubectl(t, args...); got != want {
			return fmt.Errorf("kubectl %s: %q, want %q", strings.Join(args, " "), got, want)
		}
		return nil
	})
}

// With metrics.secure agents and controllers answer a token of an account that may get /metrics,
// and no other client, wherever it is.
func testMetrics(t *testing.T, i *installation) {
	i.Kubectl(t, "create", "serviceaccount", "prometheus")
	token := i.Kubectl(t, "create", "token", "prometheus")
	from := i.Nodes()[0]
	pages := []string{"https://" + net.JoinHostPort(i.Nodes()[1].Addresses[0].String(), "9571")}
	for address := range strings.FieldsSeq(i.Kubectl(t, "get", "pods", "--namespace", namespace,
		"--selector", "app.kubernetes.io/component=controller", "--output", "jsonpath={.items[*].status.podIP}")) {
		pages = append(pages, "https://"+net.JoinHostPort(address, "9573"))
	}
	if len(pages) < 2 {
		t.Errorf("no controllers: %v", pages)
	}
	want := func(page, token, status string) {
		t.Helper()
		got, err := from.Run(t.Context(), "curl", "--silent", "--show-error", "--insecure", "--max-time", "10", "--output", "/dev/null",
			"--write-out", "%{http_code}", "--header", "Authorization: Bearer "+token, page)
		if err != nil || got != status {
			t.Errorf("%s: status %s, %v, want %s", page, got, err, status)
		}
	}
	for _, page := range pages {
		want(page+"/metrics", "", "401")
		want(page+"/metrics", "nonsense", "401")
		want(page+"/metrics", token, "403")
	}
	agent := pages[0]
	want(agent+"/api/v1/services", token, "403") // every account may get paths under /api of an API server
	i.Kubectl(t, "create", "clusterrolebinding", "prometheus", "--clusterrole=fairlead-metrics-reader", "--serviceaccount=default:prometheus")
	for _, page := range pages {
		want(page+"/metrics", token, "200")
	}
	want(agent+"/api/v1/services", token, "200")
	want(agent+"/healthz", "", "200")
}

// TCP and UDP with the same number share an address.
func testBothProtocols(t *testing.T, i *installation) {
	pods := i.deployed(t, "whoami")
	i.Apply(t, exposed("both", ""))
	for _, vip := range i.vips(t, "both") {
		for _, network := range []string{"tcp", "udp"} {
			i.clientsSeen(t, network, netip.AddrPortFrom(vip, 8080), pods)
		}
	}
	i.Kubectl(t, "delete", "service", "both")
}

// With externalTrafficPolicy: Local only nodes with pods announce, and pods see the
// client's own address. A group without pods relays to the nodes that have them.
func testLocalPolicy(t *testing.T, i *installation) {
	pods := i.deployed(t, "whoami")
	i.Apply(t, exposed("local", "externalTrafficPolicy: Local"))
	vips := i.vips(t, "local")
	nodes := slices.Collect(maps.Values(pods))
	i.awaitRoutes(t, vips, nodes...)
	i.clientsKept(t, vips, pods)
	without := slices.DeleteFunc(i.names(), func(name string) bool { return slices.Contains(nodes, name) })
	selectNodes := func(labels string) {
		i.Kubectl(t, "patch", "loadbalancergroup", "default", "--type=merge", "--patch", `{"spec":{"nodeSelector":{"matchLabels":`+labels+`}}}`)
	}
	selectNodes(`{"kubernetes.io/hostname":"` + without[0] + `"}`)
	defer selectNodes("null")
	i.awaitRoutes(t, vips, without...)
	i.clientsKept(t, vips, pods)
	i.Kubectl(t, "delete", "service", "local")
	i.awaitRoutes(t, vips)
}

// With sessionAffinity one client has one pod, by whatever port it comes.
func testAffinity(t *testing.T, i *installation) {
	i.sticky(t, "sessionAffinity: ClientIP", i.names())
}

// That holds whichever node with a pod a connection comes through.
func testAffinityLocal(t *testing.T, i *installation) {
	i.sticky(t, "sessionAffinity: ClientIP\n  externalTrafficPolicy: Local", slices.Collect(maps.Values(i.deployed(t, "whoami"))))
}

// sticky checks that a Service with these fields, which nodes announce, keeps a client's pod.
func (i *installation) sticky(t *testing.T, fields string, nodes []string) {
	t.Helper()
	i.Apply(t, exposed("sticky", fields))
	for _, vip := range i.vips(t, "sticky") {
		to := netip.AddrPortFrom(vip, 8080)
		i.awaitRoutes(t, []netip.Addr{vip}, nodes...)
		first := ""
		cluster.Await(t, "an answer", func() (err error) {
			first, _, err = i.who(t.Context(), "tcp", to)
			return err
		})
		for range 20 {
			pod, _, err := i.who(t.Context(), "tcp", to)
			if err != nil || pod != first {
				t.Errorf("%s: answered by %q, error %v; want %s as before", vip, pod, err, first)
			}
		}
	}
	i.Kubectl(t, "delete", "service", "sticky")
}

// A client with a fixed port, which never stops sending, is answered by another pod within
// two seconds after its own has ended. On a busy machine one pod of three has to be
// followed so fast.
func testUDPAfterAPod(t *testing.T, i *installation) {
	pods := i.deployed(t, "whoami")
	i.Apply(t, exposed("fixed", ""))
	to := netip.AddrPortFrom(i.vips(t, "fixed")[0], 8080)
	i.clientsSeen(t, "udp", to, pods)
	conn, err := i.Client.Dial(t.Context(), "udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const limit, attempts = 2 * time.Second, 3
	for attempt := 1; ; attempt++ {
		silence := i.deletePodOf(t, conn)
		if silence <= limit {
			break
		}
		if attempt == attempts {
			t.Errorf("no answer for %s after a pod, in attempt %d of %d; want %s", silence, attempt, attempts, limit)
			break
		}
		harness.Retried(t, "attempt %d of %d: no answer for %s after a pod, want %s", attempt, attempts, silence, limit)
	}
	i.Kubectl(t, "delete", "service", "fixed")
}

// deletePodOf deletes the pod that answers a client. It returns the time from the pod's
// last answer to the first one of another pod.
func (i *installation) deletePodOf(t *testing.T, conn net.Conn) time.Duration {
	t.Helper()
	var first string
	cluster.Await(t, "an answer", func() (err error) {
		first, err = whoOver(conn)
		return err
	})
	i.Kubectl(t, "delete", "pod", first, "--wait=false")
	last := time.Now() // of the first pod's answers
	for deadline := time.Now().Add(await.Patience); ; {
		pod, err := whoOver(conn)
		switch {
		case err == nil && pod == first:
			last = time.Now()
		case err == nil:
			silence := time.Since(last)
			t.Logf("pod %s answered %s after the last answer of %s", pod, silence.Round(time.Millisecond), first)
			i.deployed(t, "whoami")
			return silence
		}
		if time.Now().After(deadline) {
			t.Fatalf("no answer for %s, the last one was of the deleted pod %s: %v", time.Since(last), first, err)
		}
	}
}

// whoOver sends a datagram to whoami and returns the pod that answers.
func whoOver(conn net.Conn) (pod string, err error) {
	_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := conn.Write([]byte("who?\n")); err != nil {
		return "", err
	}
	answer := make([]byte, 256)
	n, err := conn.Read(answer)
	pod, _, _ = strings.Cut(string(answer[:n]), " ")
	return pod, err
}

// loadBalancerSourceRanges shut the client out, and let it in again.
func testSourceRanges(t *testing.T, i *installation) {
	pods := i.deployed(t, "whoami")
	i.Apply(t, exposed("ranges", `loadBalancerSourceRanges: [198.51.100.0/24, "fd31::/64"]`))
	vips := i.vips(t, "ranges")
	i.awaitRoutes(t, vips, i.names()...)
	for _, vip := range vips {
		i.clientsSeen(t, "tcp", netip.AddrPortFrom(vip, 8080), pods)
	}
	i.Apply(t, exposed("ranges", `loadBalancerSourceRanges: [192.0.2.0/24, "2001:db8:ffff::/48"]`))
	for _, vip := range vips {
		to := netip.AddrPortFrom(vip, 8080)
		cluster.Await(t, "the client to be shut out", func() error { return i.shutOut(t.Context(), to) })
	}
	i.Kubectl(t, "delete", "service", "ranges")
}

// shutOut returns an error if anybody answers: clients are asked at once who come
// through all of the nodes.
func (i *installation) shutOut(ctx context.Context, to netip.AddrPort) error {
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			if pod, _, err := i.who(ctx, "tcp", to); err == nil {
				return fmt.Errorf("%s answers", pod)
			}
			return nil
		})
	}
	return all.Wait()
}

// Inside the cluster kube-proxy serves Services as ever, under both addresses.
func testInside(t *testing.T, i *installation) {
	pods := i.deployed(t, "web")
	addresses := strings.Fields(i.Kubectl(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIPs[0]} {.spec.clusterIPs[1]}"))
	for _, vip := range i.vips(t, "web") {
		addresses = append(addresses, vip.String())
	}
	for _, a := range addresses {
		i.answeredInside(t, netip.MustParseAddr(a), pods)
	}
}

// answered asks nginx from the client until all pods have answered.
func (i *installation) answered(t *testing.T, vip netip.Addr, pods map[string]string) {
	t.Helper()
	var seen []string
	cluster.Await(t, "answers of all pods from "+vip.String(), func() error {
		pod, err := fetch(t.Context(), i.Client, netip.AddrPortFrom(vip, 80))
		if err != nil {
			return err
		}
		if _, known := pods[pod]; !known {
			return fmt.Errorf("answered by %q", pod)
		}
		if !slices.Contains(seen, pod) {
			seen = append(seen, pod)
		}
		if len(seen) < len(pods) {
			return fmt.Errorf("only %v answered so far", seen)
		}
		return nil
	})
}

// answeredInside asks nginx from a pod of whoami.
func (i *installation) answeredInside(t *testing.T, address netip.Addr, pods map[string]string) {
	t.Helper()
	url := "http://" + netip.AddrPortFrom(address, 80).String()
	got := strings.TrimSpace(i.Kubectl(t, "exec", "deployment/whoami", "--", "/whoami", url))
	if _, known := pods[got]; !known {
		t.Errorf("%s says %q inside, want one of %v", url, got, pods)
	}
}

// fetch asks nginx once from a machine, and returns the pod that answered.
func fetch(ctx context.Context, from *cluster.Machine, address netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, harness.AnswerTimeout)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", address.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	c := harness.NewClient(conn)
	err = c.Query()
	return c.Server, err
}
