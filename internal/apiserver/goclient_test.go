// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/api/client"
	"fairlead.io/fairlead/test/golden"
)

// The guide shows this function.
func createShop(ctx context.Context, api *client.Client) error {
	if _, _, err := api.PutLoadBalancer(ctx, "web", "shop", client.LoadBalancer{
		Forward: client.LoadBalancerForwardL2DSR,
		Pools: []client.Pool{{
			Name:        "servers",
			HealthCheck: &client.HealthCheck{Type: client.HealthCheckTypeHTTP, Path: "/healthz"},
			Members:     []client.Member{{Address: "10.0.0.21", Port: 80}},
		}},
		Listeners: []client.Listener{{Name: "http", Port: 80, Pool: "servers"}},
	}); err != nil {
		return err
	}
	// Drain a member, unless another client has changed it in the meantime.
	member, etag, err := api.GetMember(ctx, "web", "shop", "servers", "10.0.0.21:80")
	if err != nil {
		return err
	}
	member.Weight = new(int32(0))
	_, _, err = api.PutMember(ctx, "web", "shop", "servers", "10.0.0.21:80", *member, client.IfMatch(etag))
	if problem, ok := errors.AsType[*client.Error](err); ok && problem.Status == http.StatusPreconditionFailed {
		return errors.New("another client has changed the member")
	}
	return err
}

func TestClientGuide(t *testing.T) {
	api := goClients(t, newAPI(t, 1))["web"]
	if err := createShop(t.Context(), api); err != nil {
		t.Fatal(err)
	}
	member, _, err := api.GetMember(t.Context(), "web", "shop", "servers", "10.0.0.21:80")
	if err != nil || member.Weight == nil || *member.Weight != 0 {
		t.Errorf("got %+v, %v, want a member of weight 0", member, err)
	}
	source, err := os.ReadFile("goclient_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "\n// The guide shows this function.\n")
	code, _, _ = strings.Cut(code, "\n}\n")
	golden.Parts(t, "../../docs/guides/api.md", "<!-- made by go test ./internal/apiserver -run TestClientGuide -update -->\n", "```go\n"+code+"\n}\n```\n")
}

// goClients returns clients of the first server by the IDs of their tokens.
func goClients(t *testing.T, a *api) map[string]*client.Client {
	server := httptest.NewTLSServer(a.servers[0])
	t.Cleanup(server.Close)
	all := map[string]*client.Client{"": {URL: server.URL, HTTP: server.Client()}}
	for id, token := range a.tokens {
		all[id] = &client.Client{URL: server.URL + "/", Token: token, HTTP: server.Client()}
	}
	return all
}

// requests are a Go client's requests for one load balancer, lb of the project web.
type requests struct {
	*testing.T
	*client.Client
	etag string // of the answer before
}

// ok returns the body of an answer that is a success.
func ok[T any](body *T, etag string, err error) func(*requests) *T {
	return func(r *requests) *T {
		r.Helper()
		if err != nil {
			r.Fatal(err)
		}
		if etag == "" {
			r.Errorf("%+v has no entity tag", body)
		}
		r.etag = etag
		return body
	}
}

func TestClientPackage(t *testing.T) {
	const v6 = "[2001:db8::1]:80"
	clients, ctx := goClients(t, newAPI(t, 1)), t.Context()
	r := &requests{T: t, Client: clients["web"]}

	ok(r.PutLoadBalancer(ctx, "web", "lb", client.LoadBalancer{Forward: client.LoadBalancerForwardNAT, Labels: map[string]string{"tier": "front"}}, client.IfNoneMatch("*")))(r)
	ok(r.PutPool(ctx, "web", "lb", "servers", client.Pool{SessionAffinity: client.PoolSessionAffinityClientIP}))(r)
	ok(r.PutHealthCheck(ctx, "web", "lb", "servers", client.HealthCheck{Type: client.HealthCheckTypeDNS, DNS: &client.DNSQuery{Name: "example."}}))(r)
	ok(r.PutListener(ctx, "web", "lb", "http", client.Listener{Port: 80, Pool: "servers", Enabled: new(false), Limits: &client.FlowLimits{NewFlows: 7}}))(r)
	ok(r.PutMember(ctx, "web", "lb", "servers", v6, client.Member{Weight: new(int32(0))}))(r)
	created := r.etag

	member := ok(r.GetMember(ctx, "web", "lb", "servers", v6))(r)
	if want := (client.Member{Address: "2001:db8::1", Port: 80, Weight: new(int32(0))}); !reflect.DeepEqual(*member, want) || r.etag != created {
		t.Errorf("member %+v with the entity tag %s, want %+v and %s", *member, r.etag, want, created)
	}
	listener := ok(r.GetListener(ctx, "web", "lb", "http"))(r)
	if listener.Enabled == nil || *listener.Enabled || listener.Limits == nil || listener.Limits.NewFlows != 7 {
		t.Errorf("listener %+v, want a disabled one with limits", listener)
	}
	if check := ok(r.GetHealthCheck(ctx, "web", "lb", "servers"))(r); check.DNS == nil || check.DNS.Name != "example." {
		t.Errorf("health check %+v, want the query", check)
	}
	listeners := ok(r.GetListenerList(ctx, "web", "lb"))(r)
	pools := ok(r.GetPoolList(ctx, "web", "lb"))(r)
	if len(listeners.Items) != 1 || listeners.Items[0].Name != "http" || len(pools.Items) != 1 || len(pools.Items[0].Members) != 1 {
		t.Errorf("listeners %+v and pools %+v, want one of each and one member", listeners, pools)
	}
	if none := ok(r.PutMemberList(ctx, "web", "lb", "servers", client.MemberList{Items: []client.Member{}}))(r); len(none.Items) > 0 {
		t.Errorf("members %+v, want none", none)
	}
	members := ok(r.PutMemberList(ctx, "web", "lb", "servers", client.MemberList{Items: []client.Member{*member, {Address: "192.0.2.1", Port: 80}}}))(r)
	if len(members.Items) != 2 || !reflect.DeepEqual(members, ok(r.GetMemberList(ctx, "web", "lb", "servers"))(r)) {
		t.Errorf("members %+v, want two", members)
	}

	status := ok(r.GetLoadBalancerStatus(ctx, "web", "lb", client.GetLoadBalancerStatusParams{Wait: 5}, client.IfNoneMatch(`"old"`)))(r)
	if len(status.Listeners) != 1 || status.Listeners[0].OperatingStatus != client.OperatingStatusOFFLINE || len(status.Pools) != 1 || len(status.Pools[0].Members) != 2 {
		t.Errorf("status %+v, want a listener that is disabled and two members", status)
	}
	changes := ok(r.ListStatuses(ctx, client.ListStatusesParams{Holder: "a"}))(r)
	if !changes.Complete || len(changes.Items) != 1 || changes.Items[0].Status == nil || len(changes.Items[0].Status.Listeners) != 1 {
		t.Errorf("changes %+v, want the load balancer", changes)
	}
	statistics := ok(r.GetLoadBalancerStatistics(ctx, "web", "lb"))(r)
	if statistics.Name != "lb" || len(statistics.Listeners) != 1 || !statistics.OldestReport.IsZero() {
		t.Errorf("statistics %+v, want a listener and no report", statistics)
	}

	ok(r.PutLoadBalancer(ctx, "web", "lb2", client.LoadBalancer{Forward: client.LoadBalancerForwardNAT}))(r)
	page := ok(r.ListLoadBalancers(ctx, "web", client.ListLoadBalancersParams{Limit: 1}))(r)
	rest := ok(r.ListLoadBalancers(ctx, "web", client.ListLoadBalancersParams{Limit: 1, Continue: page.Continue}))(r)
	selected := ok(r.ListLoadBalancers(ctx, "web", client.ListLoadBalancersParams{LabelSelector: "tier=front,tier!=back"}))(r)
	if got := fmt.Sprint(namesIn(page), namesIn(rest), namesIn(selected), rest.Continue == ""); got != "[lb] [lb2] [lb] true" {
		t.Errorf("pages and selection %s", got)
	}

	ok(r.GetLoadBalancer(ctx, "web", "lb"))(r)
	for _, test := range []struct {
		name string
		err  func() error
		want string // prefix of the error
	}{
		{"changed since", func() error {
			_, _, err := r.PutMember(ctx, "web", "lb", "servers", v6, client.Member{}, client.IfMatch(`"old"`))
			return err
		}, "412 Precondition Failed: "},
		{"is there", func() error {
			_, _, err := r.PutLoadBalancer(ctx, "web", "lb", client.LoadBalancer{}, client.IfNoneMatch("*"))
			return err
		}, "412 Precondition Failed: "},
		{"not changed", func() error {
			_, _, err := r.GetLoadBalancer(ctx, "web", "lb", client.IfNoneMatch(r.etag))
			return err
		}, "304 Not Modified"},
		{"a field", func() error {
			_, _, err := r.PutListener(ctx, "web", "lb", "http", client.Listener{})
			return err
		}, "422 Unprocessable Entity: the load balancer is invalid; port: "},
		{"no list", func() error {
			_, _, err := r.PutMemberList(ctx, "web", "lb", "servers", client.MemberList{})
			return err
		}, "422 Unprocessable Entity: the load balancer is invalid; items: "},
		{"used pool", func() error { return r.DeletePool(ctx, "web", "lb", "servers") }, "409 Conflict: "},
		{"no name", func() error { return r.DeleteMember(ctx, "web", "lb", "servers", "") }, `member "": can't be a name`},
		{"parent", func() error { return r.DeleteMember(ctx, "web", "lb", "servers", "..") }, `member "..": can't be a name`},
		{"slash", func() error { return r.DeletePool(ctx, "web", "lb", "servers/members") }, "400 Bad Request: "},
		{"others' project", func() error { return clients["other"].DeleteLoadBalancer(ctx, "web", "lb") }, "404 Not Found: "},
		{"no token", func() error { return clients[""].DeleteLoadBalancer(ctx, "web", "lb") }, "401 Unauthorized: "},
	} {
		if err := test.err(); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %s", test.name, err, test.want)
		}
	}

	for name, err := range map[string]error{
		"listener":      r.DeleteListener(ctx, "web", "lb", "http"),
		"member":        r.DeleteMember(ctx, "web", "lb", "servers", v6),
		"health check":  r.DeleteHealthCheck(ctx, "web", "lb", "servers"),
		"pool":          r.DeletePool(ctx, "web", "lb", "servers"),
		"load balancer": r.DeleteLoadBalancer(ctx, "web", "lb", client.IfMatch("*")),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := r.GetLoadBalancer(ctx, "web", "lb"); err == nil || !strings.HasPrefix(err.Error(), "404 Not Found: ") {
		t.Errorf("deleted load balancer: error %v, want 404", err)
	}
}

// namesIn returns the names of a list's load balancers.
func namesIn(list *client.LoadBalancerList) (all []string) {
	for _, b := range list.Items {
		all = append(all, b.Name)
	}
	return all
}

// A proxy may answer without a problem.
func TestClientOfProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		http.Error(w, "<html>", http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	_, _, err := (&client.Client{URL: server.URL}).GetPool(t.Context(), "web", "lb", "servers")
	problem, ok := errors.AsType[*client.Error](err)
	if !ok || problem.Status != 503 || problem.RetryAfter != 3*time.Second || problem.Error() != "503 Service Unavailable" {
		t.Errorf("got %#v, want 503 and 3s", err)
	}
}
