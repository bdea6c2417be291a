// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"fairlead.io/fairlead/api/v1alpha1"
)

// Access is one thing that an agent does with the API: with Verbs on a resource.
// The chart's roles have to allow this, and nothing else.
type Access struct {
	Group, Resource string
	Verbs           []string
	// Namespaced is for the agents' own namespace only.
	Namespaced bool
	// Named is for one object only: the agents' own DaemonSet.
	Named bool
}

// Accesses are all that an agent does with the API. It reads.
func Accesses() []Access {
	follow := []string{"list", "watch"}
	return []Access{
		{Resource: "services", Verbs: follow},
		{Resource: "nodes", Verbs: follow},
		{Group: discoveryv1.GroupName, Resource: "endpointslices", Verbs: follow},
		{Group: v1alpha1.Group, Resource: "loadbalancergroups", Verbs: follow},
		{Group: v1alpha1.Group, Resource: "loadbalancers", Verbs: follow},
		{Group: v1alpha1.Group, Resource: "bgppeers", Verbs: follow},
		{Group: v1alpha1.Group, Resource: "addresspools", Verbs: follow},
		{Resource: "secrets", Verbs: follow, Namespaced: true}, // those that BGPPeers name, one by one
		{Group: appsv1, Resource: "daemonsets", Verbs: []string{"get"}, Namespaced: true, Named: true},
	}
}

// clients speak with the API server over one connection. They know no more types
// than are followed, which keeps an agent small.
type clients struct{ core, discovery, own rest.Interface }

func newClients(config *rest.Config) (c clients, err error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return c, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme)
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	of := func(version schema.GroupVersion, contentType string) rest.Interface {
		client, failed := newClient(config, connection, codecs, version, contentType)
		if failed != nil {
			err = failed
		}
		return client
	}
	c = clients{
		core:      of(corev1.SchemeGroupVersion, runtime.ContentTypeProtobuf),
		discovery: of(discoveryv1.SchemeGroupVersion, runtime.ContentTypeProtobuf),
		own:       of(v1alpha1.GroupVersion(), runtime.ContentTypeJSON),
	}
	return c, err
}

func newClient(config *rest.Config, connection *http.Client, codecs serializer.CodecFactory, version schema.GroupVersion, contentType string) (rest.Interface, error) {
	own := rest.CopyConfig(config)
	own.GroupVersion, own.APIPath = &version, "/apis"
	if version.Group == "" {
		own.APIPath = "/api"
	}
	own.NegotiatedSerializer = codecs.WithoutConversion()
	own.ContentType, own.AcceptContentTypes = contentType, contentType+","+runtime.ContentTypeJSON
	own.QPS = -1 // some watches are no load
	return rest.RESTClientForConfigAndClient(own, connection)
}

// followed is one list of objects that is followed.
type followed struct {
	kind    Kind
	example runtime.Object
	lists   cache.ListerWatcher
	// name is that of the only object; empty for all.
	name string
}

// list names what is followed: a kind, or one object of it.
func (f followed) list() Object { return Object{Kind: f.kind, Name: f.name} }

// follows are the lists without which nothing is known. Those of Secrets come as
// BGPPeers name them.
func (c clients) follows() []followed {
	all := func(client rest.Interface, resource string) cache.ListerWatcher {
		return cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
	}
	return []followed{
		{kind: KindService, example: &corev1.Service{}, lists: all(c.core, "services")},
		{kind: KindNode, example: &corev1.Node{}, lists: all(c.core, "nodes")},
		{kind: KindEndpointSlice, example: &discoveryv1.EndpointSlice{}, lists: c.endpointSlices()},
		{kind: KindGroup, example: &v1alpha1.LoadBalancerGroup{}, lists: all(c.own, "loadbalancergroups")},
		{kind: KindLoadBalancer, example: &v1alpha1.LoadBalancer{}, lists: all(c.own, "loadbalancers")},
		{kind: KindPeer, example: &v1alpha1.BGPPeer{}, lists: all(c.own, "bgppeers")},
		{kind: KindPool, example: &v1alpha1.AddressPool{}, lists: all(c.own, "addresspools")},
	}
}

// endpointSlices are those that some Service may need that has an address.
func (c clients) endpointSlices() cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(c.discovery, "endpointslices", metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.LabelSelector = discoveryv1.LabelServiceName + ",!" + corev1.IsHeadlessService
	})
}

// secret is the list of one Secret.
func (c clients) secret(namespace, name string) followed {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	return followed{kind: KindSecret, name: name, example: &corev1.Secret{}, lists: cache.NewListWatchFromClient(c.core, "secrets", namespace, one)}
}
