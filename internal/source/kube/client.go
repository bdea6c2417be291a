// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.io/fairlead/api/v1alpha1"
)

// clients access an API server over one connection. They know only the types that are
// watched, which saves memory.
type clients struct{ core, discovery, own rest.Interface }

// newClients returns the clients of a cluster.
func newClients(config *rest.Config) (c clients, err error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return c, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme)
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	of := func(path string, version schema.GroupVersion, contentType string) (rest.Interface, error) {
		own := rest.CopyConfig(config)
		own.GroupVersion, own.APIPath = &version, path
		own.NegotiatedSerializer = codecs.WithoutConversion()
		own.ContentType, own.AcceptContentTypes = contentType, contentType+","+runtime.ContentTypeJSON
		own.QPS = -1 // only a few watches
		return rest.RESTClientForConfigAndClient(own, connection)
	}
	var errs [3]error
	c.core, errs[0] = of("/api", corev1.SchemeGroupVersion, runtime.ContentTypeProtobuf)
	c.discovery, errs[1] = of("/apis", discoveryv1.SchemeGroupVersion, runtime.ContentTypeProtobuf)
	c.own, errs[2] = of("/apis", v1alpha1.GroupVersion(), runtime.ContentTypeJSON)
	return c, errors.Join(errs[:]...)
}

// watchedList is a list of objects to watch.
type watchedList struct {
	*cache.ListWatch
	kind    Kind
	example runtime.Object
	// name is the name of the only object; empty for all.
	name string
	// apart says that the list is of the node's own cluster, and this is not the control cluster.
	apart bool
}

// list returns the kind, or the one object, of the list.
func (f watchedList) list() Object { return Object{Kind: f.kind, Name: f.name} }

// watchedLists returns the lists to watch. Of Secrets these are the ones that this node's BGPPeers refer to, and no others. It
// is called with the lock held.
func (s *Source) watchedLists() []watchedList {
	all := func(client rest.Interface, resource string) *cache.ListWatch {
		return cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
	}
	apart := s.Control != nil
	lists := []watchedList{
		{all(s.clients.core, "services"), KindService, &corev1.Service{}, "", apart},
		{all(s.clients.core, "nodes"), KindNode, &corev1.Node{}, "", apart},
		{all(s.control.core, "namespaces"), KindNamespace, &corev1.Namespace{}, "", false},
		{all(s.control.own, "loadbalancergroups"), KindGroup, &v1alpha1.LoadBalancerGroup{}, "", false},
		{all(s.control.own, "loadbalancers"), KindLoadBalancer, &v1alpha1.LoadBalancer{}, "", false},
		{all(s.control.own, "bgppeers"), KindPeer, &v1alpha1.BGPPeer{}, "", false},
		{all(s.control.own, "addresspools"), KindPool, &v1alpha1.AddressPool{}, "", false},
	}
	for _, name := range s.cache.routing.secretNames(s.cache.nodes[s.Node]) {
		one := cache.NewListWatchFromClient(s.control.core, "secrets", s.Namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
		lists = append(lists, watchedList{one, KindSecret, &corev1.Secret{}, name, false})
	}
	if apart {
		return lists // no Services are served
	}
	// Only EndpointSlices of Services with an address are listed.
	endpointSlices := cache.NewFilteredListWatchFromClient(s.clients.discovery, "endpointslices", metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.LabelSelector = discoveryv1.LabelServiceName + ",!" + corev1.IsHeadlessService
	})
	return append(lists, watchedList{endpointSlices, KindEndpointSlice, &discoveryv1.EndpointSlice{}, "", false})
}

// LoadConfig returns how the API server is reached, and the agents' namespace: by a
// kubeconfig file, or by default as a pod does.
func LoadConfig(kubeconfig, namespace, userAgent string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	api, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("kubernetes: %w", err)
	}
	api.UserAgent = userAgent
	if namespace != "" {
		return api, namespace, nil
	}
	namespace, _, err = loader.Namespace()
	return api, namespace, err
}
