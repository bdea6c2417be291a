// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/test/browser"
)

// cachedCluster stands in for the caches.
type cachedCluster struct {
	client.Client
	groups    []v1alpha1.LoadBalancerGroup
	nodes     []corev1.Node
	pods      []corev1.Pod
	reports   []v1alpha1.BalancerNode
	services  []corev1.Service
	balancers []v1alpha1.LoadBalancer
}

func (c *cachedCluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.LoadBalancerGroupList:
		l.Items = c.groups
	case *corev1.NodeList:
		l.Items = c.nodes
	case *corev1.PodList:
		l.Items = c.pods
	case *v1alpha1.BalancerNodeList:
		l.Items = c.reports
	case *corev1.ServiceList:
		l.Items = c.services
	case *v1alpha1.LoadBalancerList:
		l.Items = c.balancers
	}
	return nil
}

// cachedNodes is the cache of the nodes' cluster.
type cachedNodes struct {
	cache.Cache
	cluster client.Reader
}

func (c cachedNodes) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.cluster.List(ctx, list, options...)
}

// markup is a text that a page must show as it is.
const markup = `<b onclick="alert(1)">bold</b>`

// exampleCluster has two nodes of a group, of which one has problems, a node whose agent isn't
// ready, and a spare one.
func exampleCluster() *cachedCluster {
	c := &cachedCluster{}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		c.nodes = append(c.nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		pod := corev1.Pod{ObjectMeta: named("agent-" + name), Spec: corev1.PodSpec{NodeName: name}}
		if name != "n3" {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		c.pods = append(c.pods, pod)
	}
	report := v1alpha1.BalancerNodeStatus{
		DataPlane: "xdp", Services: v1alpha1.ServiceCounts{Total: 2, Programmed: 2}, Backends: v1alpha1.BackendCounts{Total: 4, InUse: 4},
		Routes: v1alpha1.RouteCounts{Announced: 2, Sessions: 1}, Peers: []v1alpha1.NodePeer{{Address: "172.30.0.254", Established: true}},
	}
	c.reports = append(c.reports, v1alpha1.BalancerNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: report})
	report.Backends.Unhealthy, report.Unhealthy = 1, []v1alpha1.UnhealthyBackend{{Service: "default/web/80", Backend: "10.0.0.21:80", Message: "refused"}}
	report.Problems = []v1alpha1.NodeProblem{{Object: "LoadBalancer default/web", Message: markup}}
	c.reports = append(c.reports, v1alpha1.BalancerNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Status: report})
	c.reports = append(c.reports, v1alpha1.BalancerNode{ObjectMeta: metav1.ObjectMeta{Name: "n3"}, Status: report})

	c.groups = []v1alpha1.LoadBalancerGroup{{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Status: v1alpha1.LoadBalancerGroupStatus{
		Size: 3, Nodes: []v1alpha1.GroupNode{{Name: "n1", Ready: true}, {Name: "n2", Ready: true}, {Name: "n3"}}, ReadyNodes: 2, Services: 2, Addresses: 2,
		Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, false, reasonSomeNodes, "2 of 3 nodes")},
	}}}

	served := corev1.Service{ObjectMeta: named("web")}
	served.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
	served.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.ConditionServiceAllocated, true, "Allocated", ""), condition(v1alpha1.ConditionServiceServed, true, reasonServed, "default"),
		condition(v1alpha1.ConditionServiceBackendsHealthy, false, reasonBackendsDead, "10.0.0.21:80 on n2: refused"),
		condition("example.com/Other", false, "Other", "another controller's"),
	}
	waiting := corev1.Service{ObjectMeta: named("waiting")}
	waiting.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionServiceAllocated, false, "PoolExhausted", "pool public: no free address")}
	foreign := corev1.Service{ObjectMeta: named("foreign")}
	foreign.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	c.services = []corev1.Service{served, waiting, foreign}
	c.balancers = []v1alpha1.LoadBalancer{{
		ObjectMeta: named("web"), Spec: v1alpha1.LoadBalancerSpec{Listeners: []v1alpha1.Listener{{Name: "web", Port: 80}}},
		Status: v1alpha1.LoadBalancerStatus{Address: "203.0.113.9", Group: "default", Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionProgrammed, false, reasonNotProgrammed, "n2: "+markup),
		}},
	}}
	return c
}

func TestOverview(t *testing.T) {
	c := exampleCluster()
	o := &deps{Client: c, nodes: cachedNodes{cluster: c}}
	shown, err := o.overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []addressOverview{
		{Object: "Service default/waiting", AnnouncedBy: []string{}, Problems: []string{"pool public: no free address"}},
		{Address: "203.0.113.9", Object: "LoadBalancer default/web", Group: "default", AnnouncedBy: []string{"n1"}, Problems: []string{"n2: " + markup}},
		{Address: "203.0.113.10", Object: "Service default/web", Group: "default", AnnouncedBy: []string{"n1", "n2"},
			Problems: []string{"10.0.0.21:80 on n2: refused"}},
	}
	if diff := cmp.Diff(want, shown.Addresses); diff != "" {
		t.Error(diff)
	}
	var nodes []string
	for _, n := range shown.Nodes {
		nodes = append(nodes, strings.Join(append([]string{n.Name, n.Group}, n.Problems...), "|"))
	}
	wantNodes := []string{
		"n1|default", "n2|default|backends unhealthy: 1|LoadBalancer default/web: " + markup, "n3|default|not ready, or without a ready agent", "n4||no report",
	}
	if diff := cmp.Diff(wantNodes, nodes); diff != "" {
		t.Error(diff)
	}
	if g := shown.Groups; len(g) != 1 || g[0].ReadyNodes != 2 || g[0].Size != 3 || len(g[0].Problems) != 1 || g[0].Problems[0] != "2 of 3 nodes" {
		t.Errorf("groups: %+v", g)
	}
}

// servePage serves the page of a cluster until the test ends, and returns its address.
func servePage(t *testing.T, c client.Client) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := newDeps(Options{Log: slog.New(slog.DiscardHandler)})
	o.Client, o.nodes = c, cachedNodes{cluster: c}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- httpd.ServePage(ctx, listener, o.pages(), o.log) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// The page shows names as they are, and only to clients that name a local host and read.
func TestPage(t *testing.T) {
	address := servePage(t, exampleCluster())
	get := func(method, host, path string) (status int, policy, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header.Get("Content-Security-Policy"), string(text)
	}
	status, policy, body := get(http.MethodGet, "localhost", "/")
	if status != http.StatusOK || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("status %d, policy %q", status, policy)
	}
	for _, want := range []string{`<tr data-name="203.0.113.10 Service default/web">`, ">n1, n2</td>", "&lt;b onclick=", ">follower<"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
	if strings.Contains(body, "<b ") {
		t.Errorf("a name is markup:\n%s", body)
	}
	var data overview
	if _, _, body := get(http.MethodGet, "localhost", "/api/v1/cluster"); json.Unmarshal([]byte(body), &data) != nil || len(data.Addresses) != 3 {
		t.Errorf("the data is %s", body)
	}
	for _, test := range []struct {
		method, host, path string
		want               int
	}{
		{http.MethodGet, "localhost", "/assets/style.css", http.StatusOK},
		{http.MethodGet, "localhost", "/assets/none", http.StatusNotFound},
		{http.MethodGet, "attacker.example", "/", http.StatusMisdirectedRequest},
		{http.MethodPost, "localhost", "/", http.StatusMethodNotAllowed},
	} {
		if status, _, _ := get(test.method, test.host, test.path); status != test.want {
			t.Errorf("%s %s%s: status %d, want %d", test.method, test.host, test.path, status, test.want)
		}
	}
}

// changingCluster stands in for caches that change.
type changingCluster struct {
	client.Client
	now atomic.Pointer[cachedCluster]
}

func (c *changingCluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.now.Load().List(ctx, list, options...)
}

// shownRows is a JavaScript expression that holds if a table shows these rows, with "|" between cells.
func shownRows(table string, rows ...string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#%s tbody tr')].map((row) => [...row.children].filter((c) => c.getClientRects().length).
		map((c) => c.innerText.replace(/\s+/g, ' ').trim()).join('|')).join('\n') === %q`, table, strings.Join(rows, "\n"))
}

// insideWindow is a JavaScript expression that holds if all text is inside the width of the window.
const insideWindow = `(() => {
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	const range = document.createRange()
	while (texts.nextNode()) {
		range.selectNodeContents(texts.currentNode)
		if (range.getBoundingClientRect().right > innerWidth) return false
	}
	return document.documentElement.scrollWidth <= innerWidth
})()`

// The page in a real browser shows groups, nodes, and addresses with their announcers and problems, takes
// no name for markup, can be read on a phone, and follows the cluster.
func TestPageInBrowser(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	first := exampleCluster()
	first.nodes[3].Name, first.pods[3].Spec.NodeName, first.services[1].Name = markup, markup, markup
	first.groups = append(first.groups, v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: markup}})
	long := first.services[0].DeepCopy()
	long.Namespace, long.Name = "department-of-applications", "a_service_with_quite_a_long_name"
	long.Status.LoadBalancer.Ingress[0].IP = "2001:db8:1234:5678:9abc:def0:1234:5678"
	long.Status.Conditions[2].Status = metav1.ConditionTrue
	first.services = append(first.services, *long)
	caches := &changingCluster{}
	caches.now.Store(first)
	origin := "http://" + servePage(t, caches) + "/"

	const width, height = 1280, 800
	b.SetView("light", width, height)
	b.Do(chromedp.Navigate(origin))
	for _, width := range []int64{1280, 1001, 1000, 360} {
		b.SetView("light", width, height)
		b.Until("groups are shown", shownRows("groups", markup+"|0|0||0|0|ok", "default|3|2|n1, n2, n3|2|2|2 of 3 nodes"))
		b.Until("nodes are shown", shownRows("nodes", markup+"|–|–|–|–|–|–|no report", "n1|default|xdp|2/2|4/4|1/1|2|ok",
			"n2|default|xdp|2/2|4/4|1/1|2|backends unhealthy: 1 LoadBalancer default/web: "+markup, "n3|default|–|–|–|–|–|not ready, or without a ready agent"))
		b.Until("addresses are shown, those with a problem first", shownRows("addresses", "–|Service default/"+markup+"|–|–|pool public: no free address",
			"203.0.113.9|LoadBalancer default/web|default|n1|n2: "+markup, "203.0.113.10|Service default/web|default|n1, n2|10.0.0.21:80 on n2: refused",
			"2001:db8:1234:5678:9abc:def0:1234:5678|Service department-of-applications/a_service_with_quite_a_long_name|default|n1, n2|ok"))
		b.Until(fmt.Sprintf("all text is inside %d pixels", width), insideWindow)
	}
	b.Until("values have labels on a phone", `getComputedStyle(document.querySelector('#nodes td'), '::before').content === '"Group"'`)
	b.Until("nothing is made of a name", "!document.querySelector('main b')")
	for _, scheme := range []string{"light", "dark"} {
		b.Picture(scheme, width, height)
		b.Picture(scheme, 360, 740)
	}

	caches.now.Store(repairedCluster())
	const ok = "|default|xdp|2/2|4/4|1/1|2|ok"
	b.Until("groups are followed", shownRows("groups", "default|3|3|n1, n2, n3|2|2|ok"))
	b.Until("nodes are followed", shownRows("nodes", "n1"+ok, "n2"+ok, "n3"+ok, "n4|–|–|–|–|–|–|no report"))
	b.Until("addresses are followed", shownRows("addresses", "203.0.113.10|Service default/web|default|n1, n2, n3|ok"))
	b.CheckQuiet(origin)
}

// repairedCluster is the example once all nodes serve the Service without problems.
func repairedCluster() *cachedCluster {
	c := exampleCluster()
	c.pods[2].Status.Conditions = c.pods[0].Status.Conditions
	for i := range c.reports {
		c.reports[i].Status = c.reports[0].Status
	}
	group := &c.groups[0].Status
	group.ReadyNodes, group.Conditions, group.Nodes[2].Ready = 3, nil, true
	c.services, c.balancers = c.services[:1], nil
	c.services[0].Status.Conditions[2].Status = metav1.ConditionTrue
	return c
}

func TestPageAddress(t *testing.T) {
	for text, valid := range map[string]bool{
		"127.0.0.1:9577": true, "[::1]:9577": true, "0.0.0.0:9577": false, "[::]:9577": false, "10.0.0.1:9577": false, ":9577": false, "localhost:9577": false,
	} {
		if err := checkPageAddress(text); (err == nil) != valid {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := Run(t.Context(), &rest.Config{}, Options{PageAddress: "0.0.0.0:9575"}); err == nil || !strings.Contains(err.Error(), "want a loopback address") {
		t.Errorf("a controller with a page for others: %v", err)
	}
}
