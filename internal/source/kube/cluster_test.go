// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// testCluster is a real API server with Fairlead's kinds, and a client that writes objects there.
type testCluster struct {
	*cluster.API
	t       testing.TB
	objects client.Client
}

func startCluster(t testing.TB) *testCluster {
	t.Helper()
	w := &testCluster{API: cluster.StartAPI(t), t: t}
	w.must(w.Define(t.Context(), "../../../deploy/helm/fairlead/crds"))
	objects, err := client.New(w.Config(), client.Options{})
	w.must(err)
	w.objects = objects
	w.must(v1alpha1.AddToScheme(w.objects.Scheme()))
	w.must(w.objects.Create(t.Context(), vips.DeepCopy()))
	return w
}

func (w *testCluster) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// node makes a Node that is ready, with this address.
func (w *testCluster) node(name, address string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": name}}}
	w.must(w.objects.Create(w.t.Context(), n))
	n.Status = corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		NodeInfo:   corev1.NodeSystemInfo{BootID: "first"},
	}
	w.must(w.objects.Status().Update(w.t.Context(), n))
	return n
}

// group makes a LoadBalancerGroup, or changes the nodes that one has.
func (w *testCluster) group(name string, nodes ...string) {
	g := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if w.objects.Get(w.t.Context(), client.ObjectKeyFromObject(g), g) != nil {
		w.must(w.objects.Create(w.t.Context(), g))
	}
	g.Status.Nodes = nil
	for _, n := range nodes {
		g.Status.Nodes = append(g.Status.Nodes, v1alpha1.GroupNode{Name: n, Ready: true})
	}
	w.must(w.objects.Status().Update(w.t.Context(), g))
}

// service makes a Service that a group serves at an address, port 80.
func (w *testCluster) service(name, group, address string) *corev1.Service {
	class := v1alpha1.LoadBalancerClass
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, AllocateLoadBalancerNodePorts: new(bool),
			Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
	w.must(w.objects.Create(w.t.Context(), svc))
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	svc.Status.Conditions = served(group)
	svc.Status.Conditions[0].LastTransitionTime = metav1.Now()
	w.must(w.objects.Status().Update(w.t.Context(), svc))
	return svc
}

// slice makes the EndpointSlice of a Service, or changes its addresses; all serve
// at port 8080.
func (w *testCluster) slice(service string, addresses ...string) {
	name, number := "http", int32(8080)
	es := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: service + "-1", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: service},
	}}
	_, err := controllerutil.CreateOrUpdate(w.t.Context(), w.objects, es, func() error {
		es.AddressType = discoveryv1.AddressTypeIPv4
		es.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &number}}
		es.Endpoints = nil
		for _, a := range addresses {
			es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
		}
		return nil
	})
	w.must(err)
}

// agent follows the cluster for one node, into a store.
type agent struct {
	t      testing.TB
	source *kube.Source
	store  *store.Store
	stop   func()
	log    buffer

	mu       sync.Mutex
	left     []string
	peers    []bgp.Peer
	policies []bgp.Policy
}

// buffer is a log that is read while it is written.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func startAgent(t testing.TB, api *rest.Config, node, dir string) *agent {
	t.Helper()
	a := &agent{t: t, store: store.New()}
	src, err := kube.Open(kube.Options{
		Config: kube.Config{Node: node, Limits: dataplanetest.Limits(), MaxServices: 4096, MaxBackends: 1 << 17, ASN: 65021},
		API:    api, Namespace: "default", DaemonSet: "agent", StateDir: dir, Log: slog.New(slog.NewTextHandler(&a.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	a.source = src
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	src.Start(context.Background()) // stops with Run
	go func() { ended <- src.Run(ctx, a.apply) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		a.stop()
		if t.Failed() {
			t.Log(a.log.String())
		}
	})
	return a
}

func (a *agent) apply(u source.Update) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, vip := range u.Leaving {
		a.left = append(a.left, vip.String())
	}
	if u.Routes != nil {
		a.peers, a.policies = u.Routes.Peers, u.Routes.Policies
	}
	if u.Whole {
		_, err = a.store.Set(u.Changed)
		return err
	}
	_, err = a.store.Update(u.Changed, slices.Concat(u.Removed, u.Leaving))
	return err
}

// text is the desired state: "default/web/http 10.0.0.1:80 10.0.0.2:80".
func (a *agent) text() string {
	snapshot := a.store.Snapshot()
	if snapshot.Revision == 0 {
		return "nothing known"
	}
	var lines []string
	for _, e := range snapshot.Services {
		line := e.Service.Name
		for _, b := range e.Service.Backends {
			line += " " + b.ID().String()
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// want waits until something is desired.
func (a *agent) want(want string) {
	a.t.Helper()
	a.until(fmt.Sprintf("%q is desired", want), func() bool { return a.text() == want })
}

func (a *agent) until(what string, holds func() bool) {
	a.t.Helper()
	for deadline := time.Now().Add(await.Patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			a.t.Fatalf("timed out waiting until %s; desired are\n%s\nstate %+v", what, a.text(), a.source.State())
		}
	}
}

// Slices, Services, groups and nodes are followed.
func TestAPIServerSource(t *testing.T) {
	w := startCluster(t)
	t.Run("follows", w.follows)
	t.Run("routes", w.routes)
	t.Run("refused", w.refused)
	t.Run("away", w.away)
}

func (w *testCluster) follows(t *testing.T) {
	w.t = t
	self := w.node("lb1", "192.0.2.11")
	w.group("blue", "lb1")
	a := startAgent(t, w.Config(), "lb1", t.TempDir())
	a.want("")
	svc := w.service("web", "blue", "198.51.100.1")
	a.want("default/web/http")
	delivered := func() bool {
		return a.source.Delivered() == v1alpha1.ObservedVersions{Services: svc.ResourceVersion, BootID: self.Status.NodeInfo.BootID}
	}
	a.until("the Service's version is delivered", delivered)
	svc.Status.Conditions = append(svc.Status.Conditions, metav1.Condition{
		Type: "example.com/Nice", Status: metav1.ConditionTrue, Reason: "Nice", LastTransitionTime: metav1.Now(),
	})
	w.must(w.objects.Status().Update(t.Context(), svc))
	a.until("a version that changes nothing is delivered", delivered)
	self.Status.NodeInfo.BootID = "second"
	w.must(w.objects.Status().Update(t.Context(), self))
	a.until("the machine's next start is delivered", delivered)
	w.slice("web", "10.0.0.1", "10.0.0.2")
	a.want("default/web/http 10.0.0.1:8080 10.0.0.2:8080")
	for i := range 20 {
		w.slice("web", fmt.Sprintf("10.0.1.%d", i))
		a.want(fmt.Sprintf("default/web/http 10.0.1.%d:8080", i))
	}
	w.service("other", "red", "198.51.100.2")
	w.slice("other", "10.0.0.3")
	w.group("red", "lb1")
	a.want("default/web/http 10.0.1.19:8080\ndefault/other/http 10.0.0.3:8080")
	w.group("red", "lb2")
	a.want("default/web/http 10.0.1.19:8080")
	if got := fmt.Sprint(a.left); got != "[tcp 198.51.100.2:80]" {
		t.Errorf("%s have left", got)
	}
	w.must(w.objects.Delete(t.Context(), svc))
	a.want("")
	if len(a.left) != 1 {
		t.Errorf("what is deleted is led elsewhere: %s", a.left)
	}
	if reason := a.source.Leaving(); reason != "" || a.source.Draining() {
		t.Errorf("a node of a group leaves: %s", reason)
	}
	self.Spec.Unschedulable = true
	w.must(w.objects.Update(t.Context(), self))
	a.until("a cordoned node leaves", func() bool { return a.source.Leaving() != "" && a.source.Draining() })
	if state := a.source.State(); !state.Reachable || state.Synced.IsZero() || state.Error != "" || len(state.Problems) > 0 {
		t.Errorf("state %+v", state)
	}
}

// Passwords are in files that name no password, and change with it.
func (w *testCluster) routes(t *testing.T) {
	w.t = t
	w.node("lb3", "192.0.2.13")
	dir := t.TempDir()
	a := startAgent(t, w.Config(), "lb3", dir)
	peer := w.passwordPeer(&metav1.LabelSelector{MatchLabels: map[string]string{"rack": "lb3"}})
	a.until("the missing Secret is a problem", func() bool {
		problems := a.source.State().Problems
		return len(problems) == 1 && strings.Contains(problems[0].Message, "no Secret tor-password")
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tor-password", Namespace: "default"}, Data: map[string][]byte{"password": []byte("one\n")}}
	w.must(w.objects.Create(t.Context(), secret))
	password := func() (file, text string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.peers) != 1 {
			return "", ""
		}
		text, _ = a.peers[0].Password.Read()
		return a.peers[0].Password.File, text
	}
	var first string
	a.until("the peer has a password", func() bool {
		file, text := password()
		first = file
		return text == "one"
	})
	secret.Data["password"] = []byte("two")
	w.must(w.objects.Update(t.Context(), secret))
	a.until("the password changes, and its file", func() bool {
		file, text := password()
		return text == "two" && file != first
	})
	a.until("the old file is gone", func() bool {
		_, err := os.Stat(first)
		return os.IsNotExist(err)
	})
	file, _ := password()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v, want 0600", info.Mode(), err)
	}
	for _, text := range []string{a.log.String(), fmt.Sprintf("%+v", a.source.State())} {
		if strings.Contains(text, "two") {
			t.Errorf("a password is shown: %s", text)
		}
	}
	w.must(w.objects.Delete(t.Context(), secret))
	a.until("a peer without its Secret is not configured", func() bool { file, _ := password(); return file == "" })
	pool := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "public"}}
	pool.Spec.Addresses = []v1alpha1.AddressRange{"198.51.100.0/24"}
	pool.Spec.Announce = &v1alpha1.Announcement{Aggregate: true, RouteAttributes: v1alpha1.RouteAttributes{Communities: []v1alpha1.Community{"65021:100"}}}
	w.must(w.objects.Create(t.Context(), pool))
	a.until("the pool's policy is there", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.policies) == 1 && a.policies[0].Aggregate && a.policies[0].Prefixes[0] == netip.MustParsePrefix("198.51.100.0/24")
	})
	w.must(w.objects.Delete(t.Context(), peer))
	a.until("the problem is gone with its peer", func() bool { return len(a.source.State().Problems) == 0 })
}

// passwordPeer makes a BGPPeer, on nodes that a selector selects, whose password is in a Secret
// that isn't there yet.
func (w *testCluster) passwordPeer(nodes *metav1.LabelSelector) *v1alpha1.BGPPeer {
	peer := &v1alpha1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "tor"}}
	peer.Spec.Address, peer.Spec.ASN, peer.Spec.NodeSelector = "192.0.2.1", 65000, nodes
	peer.Spec.PasswordSecretRef = &v1alpha1.SecretKeySelector{Name: "tor-password"}
	w.must(w.objects.Create(w.t.Context(), peer))
	return peer
}

// An API server that rejects a list is still reachable: other lists are followed, and the rejected
// one is a problem, logged once, until it is allowed.
func (w *testCluster) refused(t *testing.T) {
	w.t = t
	grant := func(role, resources string) {
		w.Kubectl(t, "create", "clusterrole", role, "--verb=list,watch", "--resource="+resources)
		w.Kubectl(t, "create", "clusterrolebinding", role, "--clusterrole="+role, "--user=poor")
	}
	grant("all-but-secrets", "services,nodes,namespaces,endpointslices.discovery.k8s.io,loadbalancergroups.fairlead.io,"+
		"loadbalancers.fairlead.io,bgppeers.fairlead.io,addresspools.fairlead.io")
	w.group("brown")
	peer := w.passwordPeer(nil)
	defer func() { w.must(w.objects.Delete(context.WithoutCancel(t.Context()), peer)) }()
	config := w.As(t, "poor")
	var asked atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/secrets") {
				asked.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	a := startAgent(t, config, "lb1", t.TempDir())
	problem := func() bool {
		return slices.ContainsFunc(a.source.State().Problems, func(p v1alpha1.NodeProblem) bool {
			return p.Object == "Secret tor-password" && strings.Contains(p.Message, "forbidden")
		})
	}
	a.until("the refusal is a problem", problem)
	for i := range 3 {
		next := asked.Load() + 1
		a.until("it is tried again", func() bool { return asked.Load() > next })
		w.group("brown", fmt.Sprintf("lb%d", i+10)) // something that can be followed
		a.until("the API server is reached", func() bool { return a.source.State().Reachable })
	}
	if state := a.source.State(); state.Error != "" || !problem() {
		t.Errorf("state %+v", state)
	}
	for what, most := range map[string]int{"can't be watched": 1, "API server reached": 1} {
		if n := strings.Count(a.log.String(), what); n != most {
			t.Errorf("%q is said %d times", what, n)
		}
	}
	grant("secrets", "secrets")
	a.until("the problem is solved", func() bool { return !problem() })
}

// roundTripper is a function that sends requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// While the API server is away an agent serves the last known services, and a new agent serves the
// saved ones. Both follow the API server once it is back.
func (w *testCluster) away(t *testing.T) {
	w.t = t
	w.node("lb4", "192.0.2.14")
	w.group("grey", "lb4")
	w.service("kept", "grey", "198.51.100.4")
	w.slice("kept", "10.0.4.1")
	w.service("gone", "grey", "198.51.100.5")
	dir := t.TempDir()
	a := startAgent(t, w.Config(), "lb4", dir)
	const both = "default/kept/http 10.0.4.1:8080\ndefault/gone/http"
	a.want(both)
	w.Stop(t)
	a.until("it is noticed", func() bool { return !a.source.State().Reachable })
	if a.text() != both {
		t.Errorf("without an API server %s is desired", a.text())
	}
	a.stop()
	next := startAgent(t, w.Config(), "lb4", dir)
	next.want(both)
	if four, _ := next.source.Addresses(t.Context()); four != netip.MustParseAddr("192.0.2.14") {
		t.Errorf("the node's address is %s", four)
	}
	if state := next.source.State(); state.Restored.IsZero() || !state.Synced.IsZero() || next.source.Leaving() != "" {
		t.Errorf("state %+v", state)
	}
	fresh := startAgent(t, w.Config(), "lb4", t.TempDir())
	w.Start(t)
	w.group("grey", "lb4", "lb5")
	w.slice("kept", "10.0.4.2")
	w.Kubectl(t, "delete", "service", "gone")
	const one = "default/kept/http 10.0.4.2:8080"
	next.want(one)
	fresh.want(one)
	next.until("it is known to be new", func() bool {
		state := next.source.State()
		return state.Restored.IsZero() && !state.Synced.IsZero() && state.Reachable
	})
}
