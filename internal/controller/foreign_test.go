// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/controller"
	"fairlead.io/fairlead/test/await"
)

// auditPolicy logs all writes to Services and their statuses.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
  resources: [{group: "", resources: [services, services/status]}]
- level: None
`

// Next to another controller for Services without class, a controller with the default settings
// writes nothing to that controller's Services, and serves Services of its own class.
func TestAPIServerOtherController(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, audit := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newTestCluster(t, "--audit-policy-file="+policy, "--audit-log-path="+audit, "--audit-log-mode=blocking-strict")
	w.sub(t, "two controllers", func(w *testCluster) { otherServes(w, audit) })
	w.sub(t, "alone", byItself)
	w.sub(t, "finalizer", finalizer)
	w.sub(t, "left-over", leftOver)
	w.sub(t, "shared", sharedAddress)
	w.sub(t, "overwritten", func(w *testCluster) { overwritten(w, audit) })
	w.sub(t, "removed", removed)
	w.sub(t, "migration", migration)
}

// writesTo returns the requests with which the controllers wrote to Services of that name, by
// the API server's audit log.
func (w *testCluster) writesTo(audit, name string) (writes []string) {
	w.Helper()
	file, err := os.Open(audit)
	if err != nil {
		w.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Name, Subresource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			w.Fatalf("audit log: %v: %s", err, lines.Text())
		}
		if event.ObjectRef.Name == name && event.User.Username == "system:serviceaccount:"+home+":fairlead-controller" {
			writes = append(writes, event.Verb+" "+event.ObjectRef.Subresource)
		}
	}
	if err := lines.Err(); err != nil {
		w.Fatal(err)
	}
	return writes
}

// otherController assigns addresses to Services without class, or of all classes, as other
// projects' controllers do: it writes its address into the status whenever that differs.
type otherController struct {
	prefix  string
	classes bool
	mu      sync.Mutex
	given   map[string]string
	writes  map[string]int
}

// otherController runs one until stop is called or the test ends.
func (w *testCluster) otherController(o *otherController) (stop func()) {
	w.Helper()
	o.given, o.writes = map[string]string{}, map[string]int{}
	clients, err := kubernetes.NewForConfig(w.api.Config())
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	services := clients.CoreV1().Services("default")
	serve := func(object any) {
		svc := object.(*corev1.Service).DeepCopy()
		if !o.serves(svc) {
			return
		}
		want := o.address(svc.Name)
		if in := svc.Status.LoadBalancer.Ingress; len(in) == 1 && in[0].IP == want {
			return
		}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: want}}
		_, err := services.UpdateStatus(ctx, svc, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			w.Errorf("other controller: %v", err)
		}
		if err == nil {
			o.count(svc.Name)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "services", "default", fields.Everything()),
		ObjectType:    &corev1.Service{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    serve,
			UpdateFunc: func(_, now any) { serve(now) },
		},
	})
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.Cleanup(stop)
	return stop
}

func (o *otherController) serves(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && (o.classes || svc.Spec.LoadBalancerClass == nil) &&
		!strings.HasPrefix(svc.Name, "waiting")
}

func (o *otherController) address(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.given[name] == "" {
		o.given[name] = fmt.Sprintf("%s.%d", o.prefix, len(o.given)+1)
	}
	return o.given[name]
}

func (o *otherController) count(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes[name]++
}

// classless makes a Service without class.
func (w *testCluster) classless(name string) *corev1.Service {
	w.Helper()
	svc := newService(name)
	svc.Spec.LoadBalancerClass = nil
	w.create(svc)
	return svc
}

func auto(o *controller.Options) { o.DefaultClass = controller.DefaultClassAuto }

func otherServes(w *testCluster, audit string) {
	other := &otherController{prefix: "198.51.100"}
	w.otherController(other)
	earlier := w.classless("earlier")
	w.has(earlier, "198.51.100.1")
	w.run(auto)
	w.pool("main", "192.0.2.0/28", "198.51.100.2/32") // one of the other's addresses is in it
	ours := w.service("ours")
	w.has(ours, "192.0.2.0")
	later, waiting := w.classless("later"), w.classless("waiting")
	w.has(later, "198.51.100.2")
	if message := w.says(waiting, v1alpha1.ConditionServiceAllocated, no, "OtherControllerSeen"); !strings.Contains(message, "Service earlier") {
		w.Errorf("message %q", message)
	}
	w.awaitEvents(waiting, "Warning OtherControllerSeen")
	third := w.service("third", "addresses=198.51.100.2")
	w.says(third, v1alpha1.ConditionServiceAllocated, no, "AddressTaken")
	for svc, address := range map[*corev1.Service]string{earlier: "198.51.100.1", later: "198.51.100.2"} {
		w.has(svc, address)
		if writes := w.writesTo(audit, svc.Name); len(writes) > 0 || len(svc.Status.Conditions) > 0 {
			w.Errorf("%s: writes %q, conditions %v", svc.Name, writes, svc.Status.Conditions)
		}
	}
	// The other controller has no Services any more.
	w.remove(later)
	w.remove(earlier)
	w.has(waiting, "192.0.2.1")
	if writes := w.writesTo(audit, "ours"); len(writes) == 0 {
		w.Error("the audit log has no write to a Service that the controller serves")
	}
}

// byItself has no other controller: the first Service gets an address.
func byItself(w *testCluster) {
	r := w.run(auto)
	w.pool("main", "192.0.2.0/28")
	svc := w.classless("first")
	w.has(svc, "192.0.2.0")
	w.says(svc, v1alpha1.ConditionServiceAllocated, yes, "Allocated")
	r.stop()
	w.run(auto)
	w.has(w.classless("second"), "192.0.2.1")
	w.has(svc, "192.0.2.0")
}

// finalizer has a Service with the finalizer of a cloud provider, which its author may write: it is left
// to that provider, and no other Service is.
func finalizer(w *testCluster) {
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}
	w.create(tenant)
	left := newService("left")
	left.Namespace, left.Spec.LoadBalancerClass, left.Finalizers = tenant.Name, nil, []string{"service.kubernetes.io/load-balancer-cleanup"}
	w.create(left)
	defer w.edit(left, func() { left.Finalizers = nil })
	w.run(auto)
	w.pool("main", "192.0.2.0/28")
	near := newService("near")
	near.Namespace, near.Spec.LoadBalancerClass = tenant.Name, nil
	w.create(near)
	for _, svc := range []*corev1.Service{near, w.classless("first")} {
		w.says(svc, v1alpha1.ConditionServiceAllocated, yes, "Allocated")
		w.hasSome(svc)
	}
	w.has(left, "")
}

// leftOver has the status and finalizer of a removed controller at a Service: Services without class wait
// until they are removed, and say so.
func leftOver(w *testCluster) {
	left := w.classless("left")
	w.edit(left, func() { left.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"} })
	w.patchStatus(left, func() { left.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}} })
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left-over"}}
	w.create(tenant)
	far := newService("far")
	far.Namespace, far.Spec.LoadBalancerClass = tenant.Name, nil
	w.create(far)
	near := w.classless("near")
	w.run(auto)
	w.pool("main", "192.0.2.0/28")
	for svc, names := range map[*corev1.Service]bool{near: true, far: false} {
		message := w.says(svc, v1alpha1.ConditionServiceAllocated, no, "OtherControllerSeen")
		if strings.Contains(message, "Service left") != names || strings.Contains(message, "default/") {
			w.Errorf("%s: message %q", svc.Name, message)
		}
		w.awaitEvents(svc, "Warning OtherControllerSeen")
	}
	w.edit(left, func() { left.Finalizers = nil })
	w.patchStatus(left, func() { left.Status.LoadBalancer = corev1.LoadBalancerStatus{} })
	for _, svc := range []*corev1.Service{near, far, left} {
		w.hasSome(svc)
	}
}

// sharedAddress has Services with one address of a former controller, which only two of them may share
// here. The others say why they keep it without being served.
func sharedAddress(w *testCluster) {
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mail"}})
	add := func(namespace, name string, port int32, key string, policy corev1.ServiceExternalTrafficPolicy) *corev1.Service {
		svc := newService(name)
		if svc.Namespace, svc.Spec.LoadBalancerClass, svc.Spec.Ports[0].Port = namespace, nil, port; key != "" {
			svc.Annotations["fairlead.io/sharing-key"] = key
		}
		svc.Spec.ExternalTrafficPolicy = policy
		w.create(svc)
		w.patchStatus(svc, func() { svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.5"}} })
		return svc
	}
	www := add("default", "www", 80, "one", "Cluster")
	w.run(auto)
	w.pool("main", "192.0.2.0/28")
	w.says(www, v1alpha1.ConditionServiceAllocated, yes, "Allocated")
	w.says(add("default", "tls", 443, "one", "Cluster"), v1alpha1.ConditionServiceAllocated, yes, "Allocated")
	policy, forgotten := add("default", "policy", 25, "one", "Local"), add("default", "forgotten", 53, "", "Cluster")
	for svc, reason := range map[*corev1.Service]string{
		policy: `one is "Cluster", the other "Local"`, forgotten: "the sharing keys differ",
		add("mail", "smtp", 25, "one", "Cluster"): "only owners of one namespace can share it",
	} {
		message := w.says(svc, v1alpha1.ConditionServiceAllocated, no, "NotTakenOver")
		if !strings.Contains(message, "assigned to Service default/") || !strings.Contains(message, reason) {
			w.Errorf("%s: message %q", svc.Name, message)
		}
		w.has(svc, "192.0.2.5")
		w.awaitEvents(svc, "Warning NotTakenOver")
	}
	w.edit(policy, func() { policy.Spec.ExternalTrafficPolicy = "Cluster" })
	w.says(policy, v1alpha1.ConditionServiceAllocated, yes, "Allocated")
	w.patchStatus(forgotten, func() { forgotten.Status.LoadBalancer = corev1.LoadBalancerStatus{} })
	w.has(forgotten, "192.0.2.0")
}

// overwritten has another controller write its address into a status of Fairlead's.
func overwritten(w *testCluster, audit string) {
	w.run()
	w.pool("main", "192.0.2.0/28")
	w.node("n1", map[string]string{"lb": "g"})
	w.made(w.group("g", 1), "n1") // before the Service, so that Events don't depend on the order
	svc := w.service("contested")
	w.servedBy(svc, "g")
	other := &otherController{prefix: "198.51.100", classes: true}
	w.otherController(other)
	message := w.says(svc, v1alpha1.ConditionServiceAllocated, no, "OtherController")
	if !strings.Contains(message, "198.51.100.1") {
		w.Errorf("message %q", message)
	}
	w.servedBy(svc, "")
	w.awaitEvents(svc, "Normal Allocated", "Warning OtherController")
	writes := w.writesTo(audit, "contested")
	w.edit(svc, func() { metav1.SetMetaDataAnnotation(&svc.ObjectMeta, "example.com/edited", "yes") })
	w.has(w.service("waiting-next"), "192.0.2.0") // it is free again
	w.has(svc, "198.51.100.1")
	if now := w.writesTo(audit, "contested"); len(now) != len(writes) {
		w.Errorf("writes %q, before the end %q", now, writes)
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	if other.writes["contested"] != 1 {
		w.Errorf("the other controller wrote %d times", other.writes["contested"])
	}
}

// removed has an address removed from a status twice. The Service, whose request had failed long
// before, is left for ten minutes from then on, and from the next time that its status is empty.
func removed(w *testCluster) {
	w.run()
	w.pool("main", "192.0.2.0/28")
	svc := w.service("cleared")
	w.has(svc, "192.0.2.0")
	remove := func() {
		w.patchStatus(svc, func() { svc.Status.LoadBalancer = corev1.LoadBalancerStatus{} })
	}
	w.edit(svc, func() { metav1.SetMetaDataAnnotation(&svc.ObjectMeta, "fairlead.io/addresses", "203.0.113.1") })
	w.says(svc, v1alpha1.ConditionServiceAllocated, no, "AddressNotInPool")
	age := func() {
		w.patchStatus(svc, func() {
			apimeta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated).LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
		})
	}
	age()
	remove()
	w.has(svc, "192.0.2.0")
	remove()
	leftNow := func(what string) {
		w.Helper()
		w.awaitObject(svc, what, func() error {
			c := apimeta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated)
			if c.Reason != "OtherController" || time.Since(c.LastTransitionTime.Time) > await.Patience {
				return fmt.Errorf("condition %v", c)
			}
			return nil
		})
	}
	leftNow("the Service to be left now")
	w.has(svc, "")
	w.patchStatus(svc, func() { svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.9"}} })
	age()
	w.says(w.service("third", "addresses=198.51.100.9"), v1alpha1.ConditionServiceAllocated, no, "AddressNotInPool") // seen
	remove()
	leftNow("the Service to be left from the last removal on")
	w.has(svc, "")
}

// migration keeps the addresses that another controller has assigned from the same ranges.
func migration(w *testCluster) {
	stop := w.otherController(&otherController{prefix: "192.0.2"})
	kept, outside := w.classless("kept"), w.classless("outside")
	w.has(kept, "192.0.2.1")
	w.has(outside, "192.0.2.2")
	stop()
	r := w.run(auto)
	main := w.knownPool("main", "192.0.2.0/31")
	w.has(w.service("new"), "192.0.2.0")
	full := w.service("full")
	w.says(full, v1alpha1.ConditionServiceAllocated, no, "PoolExhausted") // 192.0.2.1 is in use
	for _, svc := range []*corev1.Service{kept, outside} {
		if _, err := w.addresses(svc); err != nil || len(svc.Status.Conditions) > 0 {
			w.Errorf("%s has conditions %v while another controller is seen: error %v", svc.Name, svc.Status.Conditions, err)
		}
	}
	w.remove(full)
	w.edit(main, func() { main.Spec.Addresses = []v1alpha1.AddressRange{"192.0.2.0/30"} })
	for svc, address := range map[*corev1.Service]string{kept: "192.0.2.1", outside: "192.0.2.2"} {
		w.says(svc, v1alpha1.ConditionServiceAllocated, yes, "Allocated")
		w.has(svc, address)
	}
	w.has(w.classless("next"), "192.0.2.3")
	r.stop()
	// With defaultClass "true" Fairlead takes over existing Services.
	left := w.classless("left")
	w.patchStatus(left, func() { left.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}} })
	w.pool("more", "203.0.113.0/31")
	w.run(func(o *controller.Options) { o.DefaultClass = controller.DefaultClassAlways })
	w.has(left, "203.0.113.0")
	w.has(kept, "192.0.2.1")
}
