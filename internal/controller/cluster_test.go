// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/controller"
	"fairlead.io/fairlead/internal/spec"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/cluster"
)

// home is the controllers' namespace.
const home = "fairlead-system"

// testCluster is an API server with the helpers of tests. Objects are written as an administrator,
// controllers have only the rights of their roles.
type testCluster struct {
	testing.TB
	client.Client
	api    *cluster.API
	config *rest.Config // the controllers'
}

func newTestCluster(t testing.TB, flags ...string) *testCluster {
	t.Helper()
	api := cluster.StartAPI(t, flags...)
	if err := api.Define(t.Context(), "../../deploy/helm/fairlead/crds"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	admin := api.Config()
	admin.QPS = -1
	c, err := client.New(admin, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := &testCluster{TB: t, Client: c, api: api}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}})
	w.authorize()
	return w
}

// sub runs a subtest, which leaves nothing behind.
func (w *testCluster) sub(t *testing.T, name string, test func(w *testCluster)) {
	t.Run(name, func(t *testing.T) {
		sub := *w
		sub.TB = t
		defer sub.sweep()
		test(&sub)
	})
}

// sweep deletes all objects that tests write.
func (w *testCluster) sweep() {
	ctx := context.WithoutCancel(w.Context())
	var services corev1.ServiceList
	if err := w.List(ctx, &services); err != nil {
		w.Error(err)
	}
	for i := range services.Items {
		if services.Items[i].Name != "kubernetes" {
			w.remove(&services.Items[i])
		}
	}
	for _, kind := range []client.Object{&v1alpha1.LoadBalancer{}, &corev1.Pod{}} {
		for _, namespace := range []string{"default", home} {
			if err := w.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.GracePeriodSeconds(0)); err != nil {
				w.Error(err)
			}
		}
	}
	for _, kind := range []client.Object{&v1alpha1.AddressPool{}, &v1alpha1.AssignedAddress{}, &v1alpha1.LoadBalancerGroup{}, &v1alpha1.BGPPeer{}, &v1alpha1.BalancerNode{}, &corev1.Node{}} {
		if err := w.DeleteAllOf(ctx, kind); err != nil {
			w.Error(err)
		}
	}
	if err := w.DeleteAllOf(ctx, &eventsv1.Event{}, client.InNamespace("default")); err != nil {
		w.Error(err)
	}
}

// authorize makes the service account that controllers run as.
func (w *testCluster) authorize() {
	name := metav1.ObjectMeta{Name: "fairlead-controller"}
	inside := metav1.ObjectMeta{Name: name.Name, Namespace: home}
	who := []rbacv1.Subject{{Kind: "ServiceAccount", Name: name.Name, Namespace: home}}
	w.create(&corev1.ServiceAccount{ObjectMeta: inside})
	w.create(&rbacv1.ClusterRole{ObjectMeta: name, Rules: clusterRules()})
	w.create(&rbacv1.ClusterRoleBinding{ObjectMeta: name, Subjects: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name}})
	w.create(&rbacv1.Role{ObjectMeta: inside, Rules: namespaceRules()})
	w.create(&rbacv1.RoleBinding{ObjectMeta: inside, Subjects: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name}})
	w.config = w.api.AsServiceAccount(w, home, name.Name)
}

// running is a controller.
type running struct {
	w      *testCluster
	cancel context.CancelFunc
	ended  chan error
	cut    atomic.Bool
}

// loopbackAddress returns a port of a loopback address that no other process has.
func loopbackAddress(port int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254), port)
}

// shortLease has others begin soon after a controller was cut off. A busy machine may fail to renew it.
func shortLease(o *controller.Options) { o.LeaseDuration = 3 * time.Second }

// run starts a controller, which ends with the test. One that ends as it has lost a short lease is started
// again, as the kubelet does.
func (w *testCluster) run(change ...func(*controller.Options)) *running {
	w.Helper()
	options := controller.Options{
		Namespace: home, LeaderElect: true, AgentGrace: time.Minute,
		Log: slog.New(slog.NewTextHandler(testLog{w.TB}, nil)),
	}
	for _, f := range change {
		f(&options)
	}
	r := &running{w: w, ended: make(chan error, 1)}
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if r.cut.Load() {
				return nil, fmt.Errorf("the test has cut the controller off")
			}
			return next.RoundTrip(request)
		})
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	r.cancel = cancel
	go func() {
		err := controller.Run(ctx, config, options)
		lost := func() bool { return err != nil && strings.Contains(err.Error(), "leader election lost") }
		for options.LeaseDuration > 0 && lost() && ctx.Err() == nil && !r.cut.Load() {
			err = controller.Run(ctx, config, options)
		}
		r.ended <- err
	}()
	w.Cleanup(r.stop)
	return r
}

// stop ends the controller as SIGTERM does.
func (r *running) stop() {
	r.cancel()
	select {
	case err := <-r.ended:
		if err != nil && !r.cut.Load() {
			r.w.Error(err)
		}
		r.ended <- nil
	case <-time.After(await.Patience):
		r.w.Error("the controller doesn't end")
	}
}

// crash cuts the controller off from the API server: nothing that it does arrives, and
// it gives back no lease.
func (r *running) crash() { r.cut.Store(true) }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// testLog is a test's log.
type testLog struct{ testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	if l.Context().Err() == nil {
		l.Log(strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

func (w *testCluster) create(object client.Object) {
	w.Helper()
	if err := w.Create(w.Context(), object); err != nil {
		w.Fatalf("%T %s: %v", object, object.GetName(), err)
	}
}

func (w *testCluster) remove(object client.Object) {
	w.Helper()
	if err := w.Delete(context.WithoutCancel(w.Context()), object, client.GracePeriodSeconds(0)); err != nil {
		w.Errorf("%T %s: %v", object, object.GetName(), err)
	}
}

// edit changes an object as it is now.
func (w *testCluster) edit(object client.Object, change func()) {
	w.Helper()
	w.awaitObject(object, "an edit of "+object.GetName(), func() error {
		change()
		return w.Update(w.Context(), object)
	})
}

func (w *testCluster) await(what string, condition func() error) {
	w.Helper()
	cluster.Await(w, what, condition)
}

// awaitObject waits until an object, which is read before each attempt, has a property.
func (w *testCluster) awaitObject(object client.Object, what string, condition func() error) {
	w.Helper()
	w.await(what, func() error {
		if err := w.Get(w.Context(), keyOf(object), object); err != nil {
			return err
		}
		return condition()
	})
}

// patchStatus changes a status of which the controller may write other fields at the same time.
func (w *testCluster) patchStatus(svc *corev1.Service, change func()) {
	w.Helper()
	base := svc.DeepCopy()
	change()
	if err := w.Status().Patch(w.Context(), svc, client.MergeFrom(base)); err != nil {
		w.Fatal(err)
	}
}

// pool makes a pool of ranges.
func (w *testCluster) pool(name string, ranges ...v1alpha1.AddressRange) *v1alpha1.AddressPool {
	w.Helper()
	p := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AddressPoolSpec{Addresses: ranges}}
	w.create(p)
	return p
}

// knownPool makes a pool of ranges that the controller, which runs, knows.
func (w *testCluster) knownPool(name string, ranges ...v1alpha1.AddressRange) *v1alpha1.AddressPool {
	w.Helper()
	p := w.pool(name, ranges...)
	w.says(p, v1alpha1.ConditionReady, metav1.ConditionTrue, "PoolReady")
	return p
}

var class = v1alpha1.LoadBalancerClass

// service makes a Service of Fairlead's class; annotations are written "name=value",
// without prefix.
func (w *testCluster) service(name string, annotations ...string) *corev1.Service {
	w.Helper()
	svc := newService(name, annotations...)
	w.create(svc)
	return svc
}

func newService(name string, annotations ...string) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class,
			Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"app": name},
		},
	}
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		svc.Annotations["fairlead.io/"+key] = value
	}
	return svc
}

// dual has a Service ask for both families.
func dual(svc *corev1.Service, policy corev1.IPFamilyPolicy) *corev1.Service {
	svc.Spec.IPFamilyPolicy = &policy
	svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	return svc
}

// addresses returns the addresses in an object's status, with commas between them.
func (w *testCluster) addresses(object client.Object) (string, error) {
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		return "", err
	}
	var shown []string
	switch o := object.(type) {
	case *corev1.Service:
		for _, i := range o.Status.LoadBalancer.Ingress {
			shown = append(shown, i.IP)
		}
	case *v1alpha1.LoadBalancer:
		shown = append(shown, o.Status.Address)
	}
	return strings.Join(shown, ","), nil
}

// has waits until an object shows addresses.
func (w *testCluster) has(object client.Object, want string) {
	w.Helper()
	w.await(fmt.Sprintf("%s to have %q", object.GetName(), want), func() error {
		got, err := w.addresses(object)
		if err == nil && got != want {
			err = fmt.Errorf("has %q", got)
		}
		return err
	})
}

// hasSome waits until an object shows an address, and returns it.
func (w *testCluster) hasSome(object client.Object) (got string) {
	w.Helper()
	w.await(object.GetName()+" to have an address", func() (err error) {
		if got, err = w.addresses(object); err == nil && got == "" {
			err = fmt.Errorf("has none")
		}
		return err
	})
	return got
}

// says waits until an object's condition has a status and a reason.
func (w *testCluster) says(object client.Object, kind string, status metav1.ConditionStatus, reason string) (message string) {
	w.Helper()
	w.awaitObject(object, fmt.Sprintf("%s to be %s=%s, %s", object.GetName(), kind, status, reason), func() error {
		conditions := conditionsOf(object)
		for _, c := range conditions {
			if c.Type == kind && c.Status == status && c.Reason == reason {
				message = c.Message
				return nil
			}
		}
		return fmt.Errorf("conditions %v", conditions)
	})
	return message
}

func conditionsOf(object client.Object) []metav1.Condition {
	switch o := object.(type) {
	case *corev1.Service:
		return o.Status.Conditions
	case *v1alpha1.AddressPool:
		return o.Status.Conditions
	case *v1alpha1.LoadBalancer:
		return o.Status.Conditions
	case *v1alpha1.LoadBalancerGroup:
		return o.Status.Conditions
	case *v1alpha1.BGPPeer:
		return o.Status.Conditions
	}
	return nil
}

// group makes a group whose nodes are labelled lb=NAME.
func (w *testCluster) group(name string, size int32) *v1alpha1.LoadBalancerGroup {
	w.Helper()
	g := &v1alpha1.LoadBalancerGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.LoadBalancerGroupSpec{Size: size, NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"lb": name}}},
	}
	w.create(g)
	return g
}

// node makes a node that is ready, with a ready agent on it.
func (w *testCluster) node(name string, labels map[string]string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(labels)}}
	w.create(n)
	w.ready(n, true)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + name, Namespace: home, Labels: map[string]string{
			"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/component": "agent",
		}},
		Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
	}
	w.create(pod)
	w.agentReady(name, true)
	return n
}

// ready writes a node's status, with the condition Ready.
func (w *testCluster) ready(n *corev1.Node, ready bool) {
	w.Helper()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: truth(ready)}}
	w.await("a status of "+n.Name, func() error {
		err := w.Status().Update(w.Context(), n)
		if err != nil {
			fresh := &corev1.Node{}
			if err := w.Get(w.Context(), client.ObjectKeyFromObject(n), fresh); err == nil {
				fresh.Status = n.Status
				*n = *fresh
			}
		}
		return err
	})
}

// agentReady writes the condition Ready of a node's agent.
func (w *testCluster) agentReady(node string, ready bool) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node, Namespace: home}}
	w.awaitObject(pod, "a status of "+pod.Name, func() error {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: truth(ready)}}
		return w.Status().Update(w.Context(), pod)
	})
}

func truth(holds bool) corev1.ConditionStatus {
	if holds {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// made waits until a group's nodes are these; those that aren't ready have an
// exclamation mark.
func (w *testCluster) made(g *v1alpha1.LoadBalancerGroup, want ...string) {
	w.Helper()
	w.awaitObject(g, fmt.Sprintf("group %s to be %v", g.Name, want), func() error {
		var got []string
		for _, n := range g.Status.Nodes {
			if !n.Ready {
				n.Name += "!"
			}
			got = append(got, n.Name)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("is %v", got)
		}
		return nil
	})
}

// servedBy waits until a Service's status has a group.
func (w *testCluster) servedBy(svc *corev1.Service, group string) {
	w.Helper()
	w.awaitObject(svc, fmt.Sprintf("%s to be served by %q", svc.Name, group), func() error {
		if got := spec.ServedBy(svc); got != group {
			return fmt.Errorf("is by %q", got)
		}
		return nil
	})
}

// awaitEvents waits until the controller's Events about an object are these, oldest first,
// without those that say that no group serves it: most tests have none.
func (w *testCluster) awaitEvents(object client.Object, want ...string) {
	w.Helper()
	w.await(fmt.Sprintf("Events about %s", object.GetName()), func() error {
		var all eventsv1.EventList
		if err := w.List(w.Context(), &all); err != nil {
			return err
		}
		slices.SortFunc(all.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
		var got []string
		for _, e := range all.Items {
			if e.Regarding.UID == object.GetUID() && e.ReportingController == "fairlead-controller" && e.Reason != "NoGroup" {
				got = append(got, e.Type+" "+e.Reason)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("are %q, want %q", got, want)
		}
		return nil
	})
}

// clusterRules are the controller's permissions in the whole cluster. "get" bypasses the
// cache before an address is reassigned, "list" and "watch" fill the cache, "patch"
// publishes.
func clusterRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes", "namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"loadbalancers"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"assignedaddresses"}, Verbs: []string{"create", "delete", "get", "list", "update", "watch"}},
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"addresspools", "balancernodes", "bgppeers", "loadbalancergroups"}, Verbs: []string{"list", "watch"}},
		{
			APIGroups: []string{v1alpha1.Group},
			Resources: []string{"addresspools/status", "bgppeers/status", "loadbalancergroups/status", "loadbalancers/status"},
			Verbs:     []string{"patch"},
		},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}

// metricsRules are the controller's additional permissions with MetricsSecure.
func metricsRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
}

// namespaceRules are the controller's permissions in its own namespace: for its Lease and
// the agents' pods.
func namespaceRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"fairlead-controller"},
			Verbs: []string{"get", "update"},
		},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}},
	}
}
