// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
	"fairlead.io/fairlead/lab/netlab"
)

// objects writes the objects of the measurement.
type objects struct {
	client client.WithWatch
	// raw requests pages of the API server.
	raw rest.Interface
	// name of the namespace, and of objects without one.
	name             string
	services, agents int
	// slices are the EndpointSlices of the API server by the Service's number.
	slices []*discovery.EndpointSlice
}

const (
	// writers is the number of concurrent writes.
	writers = 16
	// watchPause is the time between the end of a watch and the next one.
	watchPause = 100 * time.Millisecond
)

func newObjects(config *rest.Config, name string, services, agents int) (*objects, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, err
		}
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, err
	}
	config.GroupVersion, config.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	raw, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &objects{client: api, raw: raw, name: name, services: services, agents: agents, slices: make([]*discovery.EndpointSlice, services)}, nil
}

// check returns an error if the cluster lacks Fairlead's kinds, or is in use.
func (o *objects) check(ctx context.Context) error {
	var groups v1alpha1.LoadBalancerGroupList
	err := o.client.List(ctx, &groups)
	switch {
	case apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return errors.New("cluster: Fairlead's kinds are missing: apply deploy/helm/fairlead/crds")
	case err != nil:
		return fmt.Errorf("cluster: %w", err)
	case len(groups.Items) > 0:
		return fmt.Errorf("cluster: it has the LoadBalancerGroup %s: use a cluster without Fairlead", groups.Items[0].Name)
	}
	return nil
}

// writes returns how many requests the API server has had that write.
func (o *objects) writes(ctx context.Context) (n float64, err error) {
	text, err := o.raw.Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("metrics of the API server: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "apiserver_request_total{") || !writing.MatchString(line) {
			continue
		}
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("metrics of the API server: %w", err)
		}
		n += value
	}
	if n == 0 {
		return 0, errors.New("metrics of the API server: no request that writes")
	}
	return n, nil
}

// writing matches the metrics of requests that write.
var writing = regexp.MustCompile(`[{,]verb="(APPLY|PATCH|POST|PUT|DELETE|DELETECOLLECTION)"`)

// fill writes all objects.
func (o *objects) fill(ctx context.Context) error {
	if err := o.fillFixtures(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for n := range o.services {
		group.Go(func() error {
			o.slices[n] = o.slice(n)
			return errors.Join(o.client.Create(ctx, o.service(n)), o.client.Create(ctx, o.slices[n]))
		})
	}
	return group.Wait()
}

// fillFixtures writes the fixtures.
func (o *objects) fillFixtures(ctx context.Context) error {
	for _, obj := range o.fixtures() {
		if err := o.create(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

// create writes an object, with the status of Nodes and pods.
func (o *objects) create(ctx context.Context, obj client.Object) error {
	status := obj.DeepCopyObject().(client.Object)
	err := o.client.Create(ctx, obj)
	switch status.(type) {
	case *core.Node, *core.Pod:
		if err == nil {
			status.SetResourceVersion(obj.GetResourceVersion())
			status.SetUID(obj.GetUID())
			err = o.client.Status().Update(ctx, status)
		}
	}
	if err != nil {
		return fmt.Errorf("%T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

// awaitAddresses waits until every Service has an address and is ready, and returns the
// addresses by the Services' numbers. An error of alive ends the wait.
func (o *objects) awaitAddresses(ctx context.Context, ready func(*core.Service) bool, alive func() error) ([]netip.Addr, error) {
	// Any version will do: the newest one may not be in the API server's cache until a Service
	// changes again, and it refuses to wait for that.
	oldest := &meta.ListOptions{ResourceVersion: "0"}
	open := func() (watch.Interface, error) {
		return o.client.Watch(ctx, &core.ServiceList{}, &client.ListOptions{Namespace: o.name, Raw: oldest})
	}
	events, err := open()
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	defer func() { events.Stop() }()
	addresses, missing := make([]netip.Addr, o.services), o.services
	check := time.NewTicker(time.Second)
	defer check.Stop()
	for missing > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-check.C:
			if err := alive(); err != nil {
				return nil, err
			}
		case e, more := <-events.ResultChan():
			svc, is := e.Object.(*core.Service)
			if !more || !is {
				// The API server ends watches, for example of a slow client.
				if err := netlab.Sleep(ctx, watchPause); err != nil {
					return nil, fmt.Errorf("services: %d of %d without an address: %w", missing, o.services, err)
				}
				next, err := open()
				if err != nil {
					return nil, fmt.Errorf("services: %w", err)
				}
				events = next
				continue
			}
			n, address := assigned(svc)
			if address.IsValid() && ready(svc) && !addresses[n].IsValid() {
				addresses[n] = address
				missing--
			}
		}
	}
	return addresses, nil
}

// hasGroup reports whether a Service has a group.
func hasGroup(svc *core.Service) bool { return spec.ServedBy(svc) != "" }

// isProgrammed reports whether a Service says that all nodes have programmed it.
func isProgrammed(svc *core.Service) bool {
	return apimeta.IsStatusConditionTrue(svc.Status.Conditions, v1alpha1.ConditionServiceProgrammed)
}

// assigned returns the number of a Service, and its address.
func assigned(svc *core.Service) (n int, address netip.Addr) {
	if _, err := fmt.Sscanf(svc.Name, serviceName, &n); err != nil {
		return n, address
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			return n, a
		}
	}
	return n, address
}

// setReady writes the readiness of an endpoint of the nth Service.
func (o *objects) setReady(ctx context.Context, n int, endpoint netip.Addr, ready bool) error {
	s := o.slices[n]
	i := slices.IndexFunc(s.Endpoints, func(e discovery.Endpoint) bool { return e.Addresses[0] == endpoint.String() })
	if i < 0 {
		return fmt.Errorf("the program chooses %s, which isn't an endpoint", endpoint)
	}
	s.Endpoints[i].Conditions.Ready = &ready
	if err := o.client.Update(ctx, s); err != nil {
		return fmt.Errorf("endpointslice %s: %w", s.Name, err)
	}
	return nil
}

// remove removes everything. Without Kubernetes' own controllers the empty namespace
// remains in deletion.
func (o *objects) remove(ctx context.Context) error {
	errs := []error{o.empty(ctx, o.name), o.empty(ctx, o.excessive())}
	for _, obj := range append(o.fixtures(), o.namespace(o.excessive())) {
		errs = append(errs, client.IgnoreNotFound(o.client.Delete(ctx, obj, client.GracePeriodSeconds(0))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cluster: objects are left: %w", err)
	}
	return nil
}

// empty removes a namespace's objects.
func (o *objects) empty(ctx context.Context, namespace string) error {
	var errs []error
	for _, kind := range []client.Object{&core.Service{}, &v1alpha1.LoadBalancer{}, &discovery.EndpointSlice{}, &core.Pod{}} {
		// The API server ends a request after a minute. The next one removes the rest.
		var last error
		if wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
			last = client.IgnoreNotFound(o.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
			return last == nil, nil
		}) != nil {
			errs = append(errs, last)
		}
	}
	return errors.Join(errs...)
}

// labels select the objects of the measurement in group and pool.
func (o *objects) labels() map[string]string { return map[string]string{"fairlead.io/bench": o.name} }

func (o *objects) selector() meta.LabelSelector { return meta.LabelSelector{MatchLabels: o.labels()} }

const (
	// serviceName makes the name of the nth Service, and its EndpointSlice's.
	serviceName = "web-%d"
	servicePort = 80
	podPort     = 8080
	// pool contains the addresses of the Services.
	pool = "10.64.0.0/16"
)

// balancerNode is the Node of the nth agent of a bench.
func balancerNode(bench string, n int) string { return fmt.Sprintf("%s-lb%d", bench, n) }

// workerNode is the Node of the nth endpoints.
func (o *objects) workerNode(n int) string { return fmt.Sprintf("%s-worker%d", o.name, n) }

// fixtures are all objects but Services, LoadBalancers and EndpointSlices, in the order of their
// creation. The controller takes a node into a group if an agent's pod is ready on it: so far
// that is the first one only.
func (o *objects) fixtures() []client.Object {
	all := []client.Object{o.namespace(o.name)}
	for n := range o.agents {
		balancer := o.node(balancerNode(o.name, n), balancerAddress(n))
		balancer.Labels = o.labels()
		all = append(all, balancer)
	}
	for n := range endpoints {
		all = append(all, o.node(o.workerNode(n), workerAddress(n)))
	}
	return append(all, o.agentPod(0),
		&v1alpha1.AddressPool{
			ObjectMeta: meta.ObjectMeta{Name: o.name},
			Spec: v1alpha1.AddressPoolSpec{
				Addresses: []v1alpha1.AddressRange{pool}, ServiceSelector: new(o.selector()),
			},
		},
		&v1alpha1.LoadBalancerGroup{
			ObjectMeta: meta.ObjectMeta{Name: o.name},
			Spec: v1alpha1.LoadBalancerGroupSpec{
				Size: int32(o.agents), NodeSelector: o.selector(), Services: v1alpha1.ServiceFilter{
					Selector:     new(o.selector()),
					PerNamespace: v1alpha1.NamespaceQuota{Services: int32(o.services), Backends: int32(o.services * endpoints)},
				},
				LoadBalancers: v1alpha1.LoadBalancerPolicy{MemberNetworks: []v1alpha1.CIDR{memberNetworks}},
			},
		})
}

func (o *objects) namespace(name string) *core.Namespace {
	return &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name}}
}

// node is a ready node.
func (o *objects) node(name string, address netip.Addr) *core.Node {
	return &core.Node{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Status: core.NodeStatus{
			Addresses:  []core.NodeAddress{{Type: core.NodeInternalIP, Address: address.String()}},
			Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}},
		},
	}
}

// agentPod is the pod that the DaemonSet would create for the nth agent.
func (o *objects) agentPod(n int) *core.Pod {
	return &core.Pod{
		ObjectMeta: meta.ObjectMeta{
			Name: fmt.Sprintf("agent-%d", n), Namespace: o.name,
			Labels: map[string]string{"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/component": "agent"},
		},
		Spec: core.PodSpec{
			NodeName: balancerNode(o.name, n), AutomountServiceAccountToken: new(false),
			Containers: []core.Container{{Name: "agent", Image: "localhost/fairlead"}},
		},
		Status: core.PodStatus{
			Phase:      core.PodRunning,
			Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}},
		},
	}
}

// service is the nth Service.
func (o *objects) service(n int) *core.Service {
	return &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf(serviceName, n), Namespace: o.name, Labels: o.labels()},
		Spec: core.ServiceSpec{
			Type: core.ServiceTypeLoadBalancer, LoadBalancerClass: new(v1alpha1.LoadBalancerClass),
			AllocateLoadBalancerNodePorts: new(false),
			Ports:                         []core.ServicePort{{Name: "http", Port: servicePort}},
		},
	}
}

// slice is the EndpointSlice of the nth Service, with one endpoint on each worker, as
// Kubernetes' own controller writes it.
func (o *objects) slice(n int) *discovery.EndpointSlice {
	name := fmt.Sprintf(serviceName, n)
	s := emptySlice(o.name, name, name)
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{
			Addresses:  []string{podAddress(i, n).String()},
			Conditions: discovery.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(o.workerNode(i)),
			TargetRef:  &core.ObjectReference{Kind: "Pod", Namespace: o.name, Name: fmt.Sprintf("%s-%d", name, i)},
		})
	}
	return s
}

// emptySlice is an EndpointSlice of a Service.
func emptySlice(namespace, service, name string) *discovery.EndpointSlice {
	return &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{
			Name: name, Namespace: namespace, Labels: map[string]string{discovery.LabelServiceName: service},
		},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: new("http"), Port: new(int32(podPort)), Protocol: new(core.ProtocolTCP)}},
	}
}
