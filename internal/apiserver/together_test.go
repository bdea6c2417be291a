// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/controller"
	"fairlead.io/fairlead/internal/spec"
	"fairlead.io/fairlead/test/cluster"
	"fairlead.io/fairlead/test/fuzzrand"
)

// Clients of two servers write load balancers of two projects at random, while a controller decides about them, is
// stopped and started again, and the bounds of its group change. Without changes each address has one owner and an
// object of its name, each load balancer its status, and the group serves those that spec.Admit admits.
func TestAPIServerWithController(t *testing.T) {
	t.Parallel()
	kubernetes := cluster.StartAPI(t)
	if err := kubernetes.Define(t.Context(), "../../deploy/helm/fairlead/crds"); err != nil {
		t.Fatal(err)
	}
	projects := []string{"web", "other"}
	for _, namespace := range []string{"fairlead-system", "project-web", "project-other"} {
		kubernetes.Kubectl(t, "create", "namespace", namespace)
	}
	store, err := newKubernetesStore(kubernetes.Config(), "project-", "default")
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, store.run)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	reader, err := client.New(kubernetes.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	kubernetes.Apply(t, `{apiVersion: fairlead.io/v1alpha1, kind: AddressPool, metadata: {name: p}, spec: {addresses: [203.0.113.0/29]}}`)
	kubernetes.Apply(t, `
{apiVersion: v1, kind: Node, metadata: {name: n1}}
---
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: fairlead-system, labels: {app.kubernetes.io/name: fairlead, app.kubernetes.io/component: agent}}
spec: {nodeName: n1, containers: [{name: agent, image: agent}]}
`)
	for _, object := range []string{"node/n1", "pod/agent"} {
		kubernetes.Kubectl(t, "--namespace=fairlead-system", "patch", object, "--subresource=status", "-p", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	}
	h := together{api: newAPIOf(t, store, 2), Client: reader, kubernetes: kubernetes, rand: rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))}
	h.setBounds()
	stop := h.control()
	const histories, steps = 6, 40
	for range histories {
		for range steps {
			project := projects[h.rand.IntN(2)]
			path := fmt.Sprintf("%s/lb%d", baseOf(project), h.rand.IntN(8))
			switch n := h.rand.IntN(40); {
			case n == 0:
				stop()
				stop = h.control()
			case n == 1:
				h.setBounds()
			case n < 14:
				h.do(h.rand.IntN(2), project, "DELETE", path, "")
			default:
				h.do(h.rand.IntN(2), project, "PUT", path, h.object())
			}
		}
		cluster.Await(t, "the decision", h.agrees)
	}
	stop()
	fuzzrand.Covered(t, histories, histories*steps)
}

// runUntilEnd runs a function until the test ends, or stop is called.
func runUntilEnd(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(stop)
	return stop
}

// together is an API server's clients, and a controller.
type together struct {
	*api
	client.Client
	kubernetes *cluster.API
	rand       *rand.Rand
}

func (h *together) control() (stop func()) {
	o := controller.Options{Namespace: "fairlead-system", AgentGrace: time.Minute, Log: slog.New(slog.DiscardHandler)}
	return runUntilEnd(h, func(ctx context.Context) error { return controller.Run(ctx, h.kubernetes.Config(), o) })
}

func (h *together) setBounds() {
	h.kubernetes.Apply(h, fmt.Sprintf(
		`{apiVersion: fairlead.io/v1alpha1, kind: LoadBalancerGroup, metadata: {name: g}, spec: {nodeSelector: {}, services: {maxPorts: %d, perNamespace: {services: %d}}}}`,
		2+h.rand.IntN(3), 3+h.rand.IntN(6)))
}

// object is a load balancer with up to three listeners, that may want an address.
func (h *together) object() string {
	var listeners []string
	for i := range h.rand.IntN(4) {
		listeners = append(listeners, fmt.Sprintf(`{"name":"l%d","port":%d}`, i, i+1))
	}
	wanted := ""
	if h.rand.IntN(3) == 0 {
		wanted = fmt.Sprintf(`"address":"203.0.113.%d",`, h.rand.IntN(8))
	}
	return fmt.Sprintf(`{%s"forward":"nat","listeners":[%s]}`, wanted, strings.Join(listeners, ","))
}

// baseOf has the load balancers of a project.
func baseOf(project string) string { return strings.Replace(base, "web", project, 1) }

// agrees returns why the cluster's state isn't the decision about its objects.
func (h *together) agrees() error {
	var groups v1alpha1.LoadBalancerGroupList
	var balancers v1alpha1.LoadBalancerList
	var addresses v1alpha1.AssignedAddressList
	for _, l := range []client.ObjectList{&groups, &balancers, &addresses} {
		if err := h.List(h.Context(), l); err != nil {
			return err
		}
	}
	bounds := map[string]spec.Bounds{"g": spec.BoundsOf(&groups.Items[0])}
	owners, claims, objects := map[string]string{}, map[string][]spec.Claim{}, map[string][]*v1alpha1.LoadBalancer{}
	for i := range balancers.Items {
		b := &balancers.Items[i]
		allocated := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAllocated)
		if allocated == nil || allocated.ObservedGeneration != b.Generation {
			return fmt.Errorf("%s/%s isn't decided: %+v", b.Namespace, b.Name, allocated)
		}
		if b.Status.Address == "" {
			if allocated.Status == "True" || spec.ServedBy(b) != "" {
				return fmt.Errorf("%s/%s has no address, and says %+v", b.Namespace, b.Name, allocated)
			}
			continue
		}
		if other := owners[b.Status.Address]; other != "" {
			h.Fatalf("%s and %s/%s have %s", other, b.Namespace, b.Name, b.Status.Address)
		}
		owners[b.Status.Address] = b.Namespace + "/" + b.Name
		claims[b.Namespace] = append(claims[b.Namespace], bounds["g"].ClaimOf(b, nil))
		objects[b.Namespace] = append(objects[b.Namespace], b)
	}
	for i := range addresses.Items {
		a := &addresses.Items[i]
		for _, o := range a.Spec.Owners {
			if owners[string(a.Spec.Address)] != o.Namespace+"/"+o.Name {
				return fmt.Errorf("%s lists %+v, and %q shows it", a.Name, o, owners[string(a.Spec.Address)])
			}
			delete(owners, string(a.Spec.Address))
		}
	}
	if len(owners) > 0 {
		return fmt.Errorf("addresses without object: %v", owners)
	}
	for namespace, all := range claims {
		for i, refused := range spec.Admit(bounds, all) {
			b := objects[namespace][i]
			ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
			if ready == nil || ready.ObservedGeneration != b.Generation || refused.Reason != "" && ready.Reason != refused.Reason {
				return fmt.Errorf("%s/%s is refused: %q, and says %+v", namespace, b.Name, refused, ready)
			}
			if served := spec.ServedBy(b) == "g"; served != (refused.Reason == "") {
				return fmt.Errorf("%s/%s is refused: %q, is served: %t, and says %+v", namespace, b.Name, refused, served, b.Status.Conditions)
			}
			project := strings.TrimPrefix(namespace, "project-")
			shown := h.must(200, project, "GET", baseOf(project)+"/"+b.Name+"/status", "").body
			if !strings.Contains(shown, b.Status.Address) {
				return errors.New("the API shows " + shown)
			}
		}
	}
	return nil
}
