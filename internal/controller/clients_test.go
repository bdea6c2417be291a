// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/apiserver"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/internal/spec"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fuzzrand"
)

// TestAPIServerClients has clients of the HTTP API write load balancers while Services, pools and the
// bounds and policy of the group change, and controllers are restarted or cut off. After each history
// each address has one owner, and statuses, the HTTP API and a node agree with the decisions of spec.
func TestAPIServerClients(t *testing.T) {
	t.Parallel()
	const histories, steps = 8, 60
	w := newTestCluster(t)
	seed := fuzzrand.Seed(t)
	c := &clientHistory{randomHistory: &randomHistory{testCluster: w, rand: rand.New(rand.NewPCG(seed, seed)), watch: w.watchOwners()}}
	c.node("lb1", map[string]string{"lb": "main"})
	c.group("main", 1)
	c.pools()
	c.startAPI()
	for i := range histories {
		for range steps {
			switch n := c.rand.IntN(10); {
			case n < 5:
				c.request()
			case n == 5:
				c.changeGroup()
			default:
				c.step()
			}
		}
		c.settle()
		c.await(fmt.Sprintf("history %d to be as decided", i), c.agreed)
	}
	fuzzrand.Covered(t, histories, histories*steps)
}

// clientHistory is a cluster with random changes, of which some come by the HTTP API.
type clientHistory struct {
	*randomHistory
	// url and token are for the project default, which is the namespace.
	url, token string
}

func (c *clientHistory) startAPI() {
	token, entry, err := apiserver.NewToken(apiserver.Token{ID: "client", Projects: []string{"default"}})
	o := apiserver.Options{Listen: loopbackAddress(9575), Rate: 1_000_000, Log: slog.New(slog.DiscardHandler)}
	o.Files.Tokens = filepath.Join(c.TempDir(), "tokens.yaml")
	if err := errors.Join(err, os.WriteFile(o.Files.Tokens, []byte(entry.Line()), 0o600)); err != nil {
		c.Fatal(err)
	}
	c.url, c.token = "http://"+o.Listen+"/v1/projects/default/loadbalancers", token
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	ended := make(chan error, 1)
	go func() { ended <- apiserver.Run(ctx, c.api.Config(), o) }()
	c.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	})
	c.await("the HTTP API", func() error {
		_, err := c.do(http.MethodGet, "", "")
		return err
	})
}

// answer is an answer of the HTTP API.
type answer struct {
	status int
	etag   string
	body   []byte
}

// do sends a request.
func (c *clientHistory) do(method, path, body string) (a answer, err error) {
	request, err := http.NewRequestWithContext(c.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a.status, a.etag = response.StatusCode, response.Header.Get("ETag")
	a.body, err = io.ReadAll(response.Body)
	return a, err
}

// changeGroup changes the bounds and the policy of the group.
func (c *clientHistory) changeGroup() {
	g := &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	ports, services, networks := 1+c.rand.Int32N(4), 4+c.rand.Int32N(24), []v1alpha1.CIDR{"10.0.0.0/8", "192.0.2.0/24"}
	if c.rand.IntN(3) == 0 {
		networks = []v1alpha1.CIDR{"10.0.0.0/31"}
	}
	c.edit(g, func() {
		g.Spec.Services.MaxPorts, g.Spec.Services.PerNamespace.Services, g.Spec.LoadBalancers.MemberNetworks = ports, services, networks
	})
}

// request sends a random request. A write that succeeds is read again. Some members aren't allowed, or are
// in pools, and so are addresses.
func (c *clientHistory) request() {
	balancer, n := fmt.Sprintf("/b%d", c.rand.IntN(8)), c.rand.IntN(4)
	member, address := fmt.Sprintf("%s.%d", []string{"10.0.0", "10.0.0", "192.0.2"}[c.rand.IntN(3)], n), ""
	if c.rand.IntN(3) == 0 {
		address = fmt.Sprintf(`"address":"192.0.2.%d",`, c.rand.IntN(8))
	}
	whole := fmt.Sprintf(`{"forward":"nat",%s"listeners":[{"name":"l0","port":80,"pool":"p"}],"pools":[{"name":"p","members":[{"address":%q,"port":80}]}]}`, address, member)
	part := [][2]string{
		{"", whole},
		{"", whole},
		{fmt.Sprintf("/listeners/l%d", n), fmt.Sprintf(`{"port":%d,"pool":"p"}`, 80+n)},
		{"/pools/p/members/" + member + ":80", `{}`},
		{"/pools/p/healthcheck", fmt.Sprintf(`{"type":"tcp","interval":"%dms"}`, 300+100*n)},
	}[c.rand.IntN(5)]
	method, path, body := http.MethodPut, balancer+part[0], part[1]
	if c.rand.IntN(4) == 0 {
		method, body = http.MethodDelete, ""
	}
	changed, err := c.do(method, path, body)
	read, failed := c.do(http.MethodGet, path, "")
	switch err := errors.Join(err, failed); {
	case err != nil:
		c.Fatal(err)
	case changed.status == http.StatusNotFound, changed.status == http.StatusUnprocessableEntity:
	case changed.status == http.StatusNoContent && read.status == http.StatusNotFound:
	case changed.status/100 == 2 && read.status == http.StatusOK && read.etag == changed.etag:
	default:
		c.Errorf("%s %s %s: %d: %s; then %d", method, path, body, changed.status, changed.body, read.status)
	}
}

// moment has the Services and LoadBalancers at one time, by kind and name, and the addresses in their
// statuses.
type moment struct {
	objects map[string]client.Object
	shown   map[string][]string
}

func (m *moment) add(o runtime.Object) {
	switch o := o.(type) {
	case *corev1.Service:
		if o.Spec.Type == corev1.ServiceTypeLoadBalancer {
			m.objects["Service "+o.Name] = o
		}
		for _, in := range o.Status.LoadBalancer.Ingress {
			m.shown["Service "+o.Name] = append(m.shown["Service "+o.Name], in.IP)
		}
	case *v1alpha1.LoadBalancer:
		m.objects["LoadBalancer "+o.Name], m.shown["LoadBalancer "+o.Name] = o, strings.Fields(o.Status.Address)
	}
}

// agreed returns an error unless all objects are as decided.
func (c *clientHistory) agreed() error {
	var g v1alpha1.LoadBalancerGroup
	var assigned v1alpha1.AssignedAddressList
	errs := []error{c.Get(c.Context(), client.ObjectKey{Name: "main"}, &g), c.List(c.Context(), &assigned)}
	m := &moment{objects: map[string]client.Object{}, shown: map[string][]string{}}
	node := kube.NewCache(kube.Config{Node: "lb1", Limits: dataplanetest.Limits(), MaxServices: 1 << 10, MaxBackends: 1 << 10})
	node.Set(&g)
	node.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &v1alpha1.LoadBalancerList{}, &v1alpha1.AddressPoolList{}, &corev1.NodeList{}} {
		errs = append(errs, c.List(c.Context(), list), meta.EachListItem(list, func(o runtime.Object) error {
			node.Set(o.(metav1.Object))
			m.add(o)
			return nil
		}))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	refused, err := m.checkServed(&g)
	errs = []error{err, m.checkOwners(assigned.Items), m.checkNode(node)}
	for name, o := range m.objects {
		if b, is := o.(*v1alpha1.LoadBalancer); is {
			errs = append(errs, c.checkAnswer(b, refused[name].Message))
		}
	}
	return errors.Join(errs...)
}

// checkOwners checks that objects of addresses list the objects that show them; LoadBalancers share none.
func (m *moment) checkOwners(assigned []v1alpha1.AssignedAddress) error {
	listed := map[string][]string{}
	for _, one := range assigned {
		for _, e := range one.Spec.Owners {
			name := e.Kind + " " + e.Name
			if listed[name] = append(listed[name], string(one.Spec.Address)); e.Kind == "LoadBalancer" && len(one.Spec.Owners) > 1 {
				return fmt.Errorf("%s has the owners %+v", one.Name, one.Spec.Owners)
			}
		}
	}
	for name, addresses := range m.shown {
		slices.Sort(addresses)
		slices.Sort(listed[name])
		if !slices.Equal(addresses, listed[name]) {
			return fmt.Errorf("%s shows %v, and is an owner of %v", name, addresses, listed[name])
		}
		delete(listed, name)
	}
	if len(listed) > 0 {
		return fmt.Errorf("addresses of objects that don't exist: %v", listed)
	}
	return nil
}

// checkServed checks that the group serves the objects that spec.Admit admits, and returns why it doesn't
// serve others.
func (m *moment) checkServed(g *v1alpha1.LoadBalancerGroup) (refused map[string]spec.Refusal, err error) {
	bounds, claims := spec.BoundsOf(g), []spec.Claim{}
	refused = map[string]spec.Refusal{}
	for name, o := range m.objects {
		if refused[name] = (spec.Refusal{Reason: "NoAddress"}); len(m.shown[name]) > 0 {
			claims = append(claims, bounds.ClaimOf(o, nil))
		}
	}
	for i, why := range spec.Admit(map[string]spec.Bounds{g.Name: bounds}, claims) {
		refused[claims[i].Kind+" "+claims[i].Name] = why
	}
	for name, o := range m.objects {
		if got := spec.ServedBy(o); (got == g.Name) != (refused[name] == spec.Refusal{}) {
			return refused, fmt.Errorf("%s is served by %q, refused %q", name, got, refused[name])
		}
	}
	return refused, nil
}

// checkNode checks that a node serves the parts that statuses accept.
func (m *moment) checkNode(node *kube.Cache) error {
	want, got := map[string]int{}, map[string]int{}
	for name, o := range m.objects {
		b, is := o.(*v1alpha1.LoadBalancer)
		switch {
		case spec.ServedBy(o) == "":
		case !is:
			want[name] = len(m.shown[name])
		default:
			for _, l := range slices.DeleteFunc(slices.Clone(b.Status.Listeners), func(l v1alpha1.PartStatus) bool { return !l.Accepted }) {
				want[spec.ListenerName(b, l.Name)] = len(b.Spec.Pools[0].Members) - len(b.Status.Pools[0].Members)
			}
		}
	}
	node.Flush()
	for _, s := range node.Services() {
		if kind, _, name := spec.ObjectOf(s.Name); kind == "Service" {
			got[kind+" "+name]++
		} else {
			got[s.Name] = len(s.Backends)
		}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("the node serves %v, want %v; problems %v", got, want, node.Problems())
	}
	return nil
}

// checkAnswer checks the status of a load balancer in the HTTP API.
func (c *clientHistory) checkAnswer(b *v1alpha1.LoadBalancer, refused string) error {
	var got, want struct{ ProvisioningStatus, OperatingStatus, Message, Address, Group string }
	read, err := c.do(http.MethodGet, "/"+b.Name+"/status", "")
	if err := errors.Join(err, json.Unmarshal(read.body, &got)); err != nil {
		return err
	}
	want.ProvisioningStatus, want.OperatingStatus, want.Message, want.Address = "ERROR", "OFFLINE", refused, b.Status.Address
	if p := b.Spec.Pools[0]; want.Address != "" && refused == "" {
		want.Group, want.OperatingStatus = "main", got.OperatingStatus
		if want.Message = spec.NotAccepted(&b.Status); want.Message == "" {
			want.ProvisioningStatus = "ACTIVE"
		}
		if got.OperatingStatus == "OFFLINE" != (len(b.Spec.Listeners) == 0 || len(p.Members) == 0) || p.HealthCheck != nil && got.OperatingStatus == "ONLINE" {
			return fmt.Errorf("%s is %s", b.Name, got.OperatingStatus) // no node reports
		}
	}
	if allocated := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAllocated); allocated == nil {
		return fmt.Errorf("%s has no condition about its address", b.Name)
	} else if allocated.Status != metav1.ConditionTrue { // it may keep another address
		want.ProvisioningStatus, want.Message = "ERROR", allocated.Message
	}
	if got != want {
		return fmt.Errorf("%s has the status %+v, want %+v", b.Name, got, want)
	}
	return nil
}
