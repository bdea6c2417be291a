// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/spec"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// objects writes the objects of the measurement.
type objects struct {
	client  client.Client
	decoder runtime.Decoder
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
	// listPause is the time between two lists of all services.
	listPause = 500 * time.Millisecond
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
	api, err := client.New(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, err
	}
	config.GroupVersion, config.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	raw, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &objects{
		client: api, decoder: serializer.NewCodecFactory(kinds).UniversalDeserializer(), raw: raw,
		name: name, services: services, agents: agents, slices: make([]*discovery.EndpointSlice, services),
	}, nil
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
func (o *objects) writes(ctx context.Context) (float64, error) {
	text, err := o.raw.Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("metrics of the API server: %w", err)
	}
	return sumOf(string(text), writeRequests)
}

const (
	// serviceName makes the name of the nth Service, and its EndpointSlice's.
	serviceName = "web-%d"
	servicePort = 80
)

// balancerNode is the Node of the nth agent of a bench.
func balancerNode(bench string, n int) string { return fmt.Sprintf("%s-lb%d", bench, n) }

//go:embed objects.yaml
var objectsText string

// templates make all objects.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"add":             func(a, b int) int { return a + b },
	"balancerAddress": balancerAddress,
	"balancerNode":    balancerNode,
	"excessAddress":   func(slice, i int) netip.Addr { return podAddress(slice%endpoints, slice/endpoints*1000+i) },
	"podAddress":      podAddress,
	"serviceName":     func(n int) string { return fmt.Sprintf(serviceName, n) },
	"sourceRange":     func(n int) string { return fmt.Sprintf("10.%d.%d.0/24", n>>8, n&255) },
	"workerAddress":   workerAddress,
	// The Node of the nth endpoints.
	"workerNode": func(bench string, n int) string { return fmt.Sprintf("%s-worker%d", bench, n) },
}).Parse(objectsText))

// values are the values in a template.
type values struct {
	Name, Excess, Class, MemberNetworks string
	Services, Backends                  int
	Agents, Endpoints                   int
	N, Part                             int
}

// Of is the number of objects, or the part of it that is written.
func (v values) Of(n int) int { return n / v.Part }

// excessive is the name of the namespace that requests too much.
func (o *objects) excessive() string { return o.name + "-excess" }

// render returns the objects of a template, for number n or one object in so many.
func (o *objects) render(name string, n, part int) (all []client.Object, err error) {
	var text bytes.Buffer
	err = templates.ExecuteTemplate(&text, name, values{
		Name: o.name, Excess: o.excessive(), Class: v1alpha1.LoadBalancerClass, MemberNetworks: memberNetworks,
		Services: o.services, Backends: o.services * endpoints, Agents: o.agents, Endpoints: endpoints, N: n, Part: part,
	})
	if err != nil {
		return nil, err
	}
	for document := range strings.SplitSeq(text.String(), "\n---\n") {
		object, _, err := o.decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, object.(client.Object))
	}
	return all, nil
}

// write writes the objects of a template in their order.
func (o *objects) write(ctx context.Context, name string, n, part int) error {
	all, err := o.render(name, n, part)
	for i := 0; i < len(all) && err == nil; i++ {
		err = o.create(ctx, all[i])
		if slice, is := all[i].(*discovery.EndpointSlice); is && name == "service" {
			o.slices[n] = slice
		}
	}
	return err
}

// fill writes the fixtures and all Services.
func (o *objects) fill(ctx context.Context) error {
	if err := o.write(ctx, "fixtures", 0, 1); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for n := range o.services {
		group.Go(func() error { return o.write(ctx, "service", n, 1) })
	}
	return group.Wait()
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
	case *core.Namespace: // which stays when it is emptied
		err = client.IgnoreAlreadyExists(err)
	}
	if err != nil {
		return fmt.Errorf("%T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

// awaitAddresses lists Services or LoadBalancers until so many of them are assigned, and returns
// their addresses by number. An error of alive ends the wait.
func (o *objects) awaitAddresses(
	ctx context.Context, list client.ObjectList, count int, alive func() error, assigned func(runtime.Object) (name, address string, is bool),
) ([]netip.Addr, error) {
	addresses := make([]netip.Addr, count)
	return addresses, bench.Await(ctx, syncTimeout, listPause, func(ctx context.Context) error {
		if err := alive(); err != nil {
			return netlab.Permanent{Err: err}
		}
		// Any version will do: the API server has it in its cache.
		oldest := &meta.ListOptions{ResourceVersion: "0"}
		if err := o.client.List(ctx, list, &client.ListOptions{Namespace: o.name, Raw: oldest}); err != nil {
			return err
		}
		found := 0
		err := apimeta.EachListItem(list, func(object runtime.Object) error {
			var n int
			name, address, is := assigned(object)
			if _, err := fmt.Sscanf(name, serviceName, &n); err != nil || n >= count || !is {
				return nil //nolint:nilerr // an object of another name
			}
			found++
			var err error
			addresses[n], err = netip.ParseAddr(address)
			return err
		})
		if err == nil && found < count {
			err = fmt.Errorf("%d of %d have an address and are ready", found, count)
		}
		return err
	})
}

// awaitServices waits until every Service has an address and is ready.
func (o *objects) awaitServices(ctx context.Context, ready func(*core.Service) bool, alive func() error) ([]netip.Addr, error) {
	return o.awaitAddresses(ctx, &core.ServiceList{}, o.services, alive, func(object runtime.Object) (name, address string, is bool) {
		svc := object.(*core.Service)
		for _, in := range svc.Status.LoadBalancer.Ingress {
			address = in.IP
		}
		return svc.Name, address, address != "" && ready(svc)
	})
}

// hasGroup reports whether a Service has a group.
func hasGroup(svc *core.Service) bool { return spec.ServedBy(svc) != "" }

// isProgrammed reports whether a Service says that all nodes have programmed it.
func isProgrammed(svc *core.Service) bool {
	return apimeta.IsStatusConditionTrue(svc.Status.Conditions, v1alpha1.ConditionServiceProgrammed)
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
	fixtures, err := o.render("fixtures", 0, 1)
	excess := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: o.excessive()}}
	for _, obj := range append(fixtures, excess) {
		errs = append(errs, client.IgnoreNotFound(o.client.Delete(ctx, obj, client.GracePeriodSeconds(0))))
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("cluster: objects are left: %w", err)
	}
	return nil
}

// empty removes a namespace's objects.
func (o *objects) empty(ctx context.Context, namespace string) error {
	var errs []error
	for _, kind := range []client.Object{&core.Service{}, &v1alpha1.LoadBalancer{}, &discovery.EndpointSlice{}, &core.Pod{}} {
		// The API server ends a request after a minute. The next one removes the rest.
		errs = append(errs, bench.Await(ctx, syncTimeout, time.Second, func(ctx context.Context) error {
			return client.IgnoreNotFound(o.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
		}))
	}
	return errors.Join(errs...)
}
