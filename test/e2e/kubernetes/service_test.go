// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
)

// web is nginx, which answers with the name of its pod, as Kubernetes recommends to
// run it: pods that end go on for some seconds, until everybody knows.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 20
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: localhost/nginx:1
        imagePullPolicy: Never
        readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 80}]
`

// whoami (the command of that name) answers over TCP and UDP with the name of its pod and the address that it
// was asked from. Of three nodes one has no pod of it.
const whoami = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: whoami}
spec:
  replicas: 2
  selector: {matchLabels: {app: whoami}}
  template:
    metadata: {labels: {app: whoami}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: whoami}}}
      containers:
      - name: whoami
        image: localhost/whoami:1
        imagePullPolicy: Never
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
`

// exposed is a Service of whoami with more in its spec.
func exposed(name, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: whoami}
  ports: [{name: tcp, port: 8080}, {name: udp, port: 8080, protocol: UDP}]
  %s
`, name, more)
}

// vips waits for the addresses of a Service, one of each of the pool's networks.
func (i *installation) vips(t *testing.T, service string) []netip.Addr {
	t.Helper()
	var found []netip.Addr
	cluster.Await(t, "addresses of Service "+service, func() error {
		s, err := i.Clients().CoreV1().Services("default").Get(t.Context(), service, meta.GetOptions{})
		if err != nil {
			return err
		}
		found = nil
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(ingress.IP); err == nil {
				found = append(found, a)
			}
		}
		if len(found) != len(pools) || !pools[0].Contains(found[0]) || !pools[1].Contains(found[1]) {
			return fmt.Errorf("it has %v", s.Status.LoadBalancer.Ingress)
		}
		return nil
	})
	return found
}

// pods are those with a label "app" that are ready and don't end, with their nodes.
func (i *installation) pods(ctx context.Context, app string) (map[string]string, error) {
	return i.podsOf(ctx, "default", app)
}

// podsOf returns the pods of an app in a namespace.
func (i *installation) podsOf(ctx context.Context, namespace, app string) (map[string]string, error) {
	list, err := i.Clients().CoreV1().Pods(namespace).List(ctx, meta.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, p := range list.Items {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c core.PodCondition) bool {
			return c.Type == core.PodReady && c.Status == core.ConditionTrue
		})
		if ready && p.DeletionTimestamp == nil {
			found[p.Name] = p.Spec.NodeName
		}
	}
	return found, nil
}

// deployed waits until a Deployment has as many pods as it wants, all new, and
// returns them with their nodes.
func (i *installation) deployed(t *testing.T, name string) map[string]string {
	t.Helper()
	// Kubernetes' own controllers may still be backing off, if the API server was away.
	i.Kubectl(t, "rollout", "status", "deployment/"+name, "--timeout="+await.Patience.String())
	found, err := i.pods(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// clientsSeen sends requests until all pods have answered with the client address that they saw.
func (i *installation) clientsSeen(t *testing.T, network string, vip netip.AddrPort, pods map[string]string) map[string]string {
	t.Helper()
	answers := map[string]string{}
	cluster.Await(t, fmt.Sprintf("answers of all pods from %s %s", network, vip), func() error {
		pod, asker, err := i.who(t.Context(), network, vip)
		if err != nil {
			return err
		}
		if _, known := pods[pod]; !known {
			return fmt.Errorf("answered by %q", pod)
		}
		answers[pod] = asker
		if len(answers) < len(pods) {
			return fmt.Errorf("only %v answered so far", slices.Sorted(maps.Keys(answers)))
		}
		return nil
	})
	return answers
}

// clientsKept checks that all pods see the client's own address.
func (i *installation) clientsKept(t *testing.T, vips []netip.Addr, pods map[string]string) {
	t.Helper()
	for family, vip := range vips {
		for _, network := range []string{"tcp", "udp"} {
			for pod, asker := range i.clientsSeen(t, network, netip.AddrPortFrom(vip, 8080), pods) {
				if got, want := addressOf(t, asker), cluster.ClientAddresses()[family]; got != want {
					t.Errorf("%s: pod %s was asked by %s, want %s", network, pod, got, want)
				}
			}
		}
	}
}

// who asks whoami from the client and returns the pod that answers, and as whom it
// saw the client.
func (i *installation) who(ctx context.Context, network string, vip netip.AddrPort) (pod, asker string, err error) {
	const timeout = 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := i.Client.Dial(ctx, network, vip.String())
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if network == "udp" {
		if _, err := conn.Write([]byte("who?\n")); err != nil {
			return "", "", err
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", "", err
	}
	pod, asker, found := strings.Cut(strings.TrimSpace(line), " ")
	if !found {
		return "", "", fmt.Errorf("%s %s says %q", network, vip, line)
	}
	return pod, asker, nil
}

// addressOf is the one in "[::ffff:198.51.100.2]:1234", as pods say it.
func addressOf(t *testing.T, text string) netip.Addr {
	t.Helper()
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		t.Fatalf("asked by %q: %v", text, err)
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		t.Fatalf("asked by %q: %v", text, err)
	}
	return a.Unmap()
}
