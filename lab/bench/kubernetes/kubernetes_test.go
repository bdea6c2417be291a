// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/cluster"
)

// The measurement runs from the API server to the report, in small. Where the
// cluster lacks Fairlead's kinds it says so, and it leaves nothing.
func TestAPIServerQuick(t *testing.T) {
	api := cluster.StartAPI(t)
	config, err := clientcmd.LoadFromFile(api.Kubeconfig(t, api.Config()))
	if err != nil {
		t.Fatal(err)
	}
	build(t)
	cfg := Config{
		Config: bench.Config{
			Labs: netlab.Labs{Dir: t.TempDir()}, Commit: "abc123", Quick: true,
			Progress: func(line string) { t.Log(line) },
		},
		Name: fmt.Sprintf("bench-%d", os.Getpid()), Kubeconfig: config, Services: 20, Changes: 12, Agents: 2,
	}
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "deploy/helm/fairlead/crds") {
		t.Fatalf("without Fairlead's kinds: error %v, want what to do", err)
	}
	if err := api.Define(t.Context(), "../../../deploy/helm/fairlead/crds"); err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	checkReport(t, report, cfg.Changes)
	checkNothingLeft(t, api, cfg)
	cfg.Name += "-api" // the namespace stays
	if report, err = RunAPI(t.Context(), APIConfig{cfg, []int{4, 8}}); err != nil {
		t.Fatal(err)
	}
	checkAPIReport(t, report, cfg.Changes)
	checkNothingLeft(t, api, cfg)
}

// checkAPIReport looks for all results at both numbers of load balancers.
func checkAPIReport(t *testing.T, report *bench.Report, changes int) {
	t.Helper()
	found := map[string]int{}
	for _, r := range report.Results {
		if r.Runs < 1 || r.Median <= 0 && r.Name != "answer_to_program_ms" {
			t.Errorf("%s: %+v, want something", r.Name, r)
		}
		if r.Name == "request_to_program_ms" && r.Runs != changes {
			t.Errorf("%d changes were measured, want %d", r.Runs, changes)
		}
		found[r.Name]++
	}
	for _, name := range []string{
		"create_answered", "create_programmed", "request_to_program_ms", "request_ms", "answer_to_program_ms",
		"apiserver_memory", "agent_memory", "controller_memory",
	} {
		if found[name] != 2 {
			t.Errorf("%s: %d results, want 2", name, found[name])
		}
	}
	if len(report.Verdicts) != 2 {
		t.Errorf("%d verdicts, want 2", len(report.Verdicts))
	}
}

// build puts the executable that is measured into PATH.
func build(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "fairlead.io/fairlead/cmd/fairlead")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

func checkReport(t *testing.T, report *bench.Report, changes int) {
	t.Helper()
	found := map[string]bench.Result{}
	for _, r := range report.Results {
		found[r.Name] = r
	}
	for _, name := range []string{
		"endpointslice_to_program_ms", "endpointslice_to_program_ms_excess", "endpointslice_write_ms", "endpointslice_to_program_p99_ms", "controller_sync", "agent_sync", "status_sync",
		"agent_memory", "agent_heap", "controller_memory", "controller_heap", "writes_at_rest",
		"writes_at_rest_agents", "node_loss_status", "node_loss_writes",
	} {
		if r := found[name]; r.Runs < 1 || r.Median <= 0 {
			t.Errorf("%s: %+v, want something", name, r)
		}
	}
	for _, name := range []string{"agent_rest_cores", "controller_rest_cores"} {
		if found[name].Runs < 1 {
			t.Errorf("%s: nothing", name)
		}
	}
	if r := found["endpointslice_to_program_ms"]; r.Runs != changes || r.Distribution == nil {
		t.Errorf("%d changes were measured, want %d, with their distribution", r.Runs, changes)
	}
	var judged []string
	for _, v := range report.Verdicts {
		name, _, _ := strings.Cut(v.Claim, ":")
		judged = append(judged, name)
	}
	if want := []string{"writes_at_rest", "writes_at_rest_agents", "node_loss_status", "endpointslice_to_program_p99_ms", "excess_over_alone"}; !slices.Equal(judged, want) {
		t.Errorf("verdicts on %q, want %q", judged, want)
	}
}

// checkNothingLeft looks for all that the measurement makes but its namespace, which
// Kubernetes' controllers would take away.
func checkNothingLeft(t *testing.T, api *cluster.API, cfg Config) {
	t.Helper()
	w, err := newObjects(api.Config(), cfg.Name, cfg.Services, cfg.Agents)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{
		&core.ServiceList{}, &v1alpha1.LoadBalancerList{}, &discovery.EndpointSliceList{}, &core.PodList{}, &core.NodeList{},
		&v1alpha1.AddressPoolList{}, &v1alpha1.LoadBalancerGroupList{},
	} {
		// The API server's own Service isn't the measurement's.
		if err := w.client.List(t.Context(), list, client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("metadata.name", "kubernetes")}); err != nil {
			t.Fatal(err)
		}
		if left := apimeta.LenList(list); left > 0 {
			t.Errorf("%T: %d are left", list, left)
		}
	}
	if labs, err := cfg.Labs.List(); err != nil || len(labs) > 0 {
		t.Errorf("%d labs are left, error %v", len(labs), err)
	}
}

// All endpoints have addresses of their own, in the networks that lead to their
// workers.
func TestPodAddresses(t *testing.T) {
	seen := map[netip.Addr]bool{}
	lab := topology(1)
	balancer := lab.Host(balancerHost)
	for n := range endpoints {
		for service := range maxServices {
			a := podAddress(n, service)
			if seen[a] || !balancer.Routes[n].Destination.Contains(a) {
				t.Fatalf("endpoint %d of service %d: %s, again or beyond %s", n, service, a, balancer.Routes[n].Destination)
			}
			seen[a] = true
		}
	}
}

// TestObjects reads the templates without an API server.
func TestObjects(t *testing.T) {
	const services, agents = 20, 2
	o, err := newObjects(&rest.Config{Host: "https://127.0.0.1:1"}, "bench-1", services, agents)
	if err != nil {
		t.Fatal(err)
	}
	for template, want := range map[string]int{"fixtures": 1 + agents + endpoints + 3, "agent": 1, "service": 2, "excess": 1 + 2 + 10 + 2} {
		all, err := o.render(template, 5, 10)
		if err != nil || len(all) != want {
			t.Fatalf("%s: %d objects, %v, want %d", template, len(all), err, want)
		}
		for _, object := range all {
			switch is := object.(type) {
			case *core.Node:
				if len(is.Status.Addresses) != 1 || len(is.Status.Conditions) != 1 {
					t.Errorf("node %s: %+v", is.Name, is.Status)
				}
			case *core.Service:
				ports, ranges := 1, 0
				switch {
				case is.Name == "ports":
					ports = 1000
				case strings.HasPrefix(is.Name, "ranges-"):
					ranges = 4000
				}
				if len(is.Spec.Ports) != ports || len(is.Spec.LoadBalancerSourceRanges) != ranges || is.Spec.LoadBalancerClass == nil || is.Labels["fairlead.io/bench"] != "bench-1" {
					t.Errorf("service %s: %d ports, %d ranges", is.Name, len(is.Spec.Ports), len(is.Spec.LoadBalancerSourceRanges))
				}
			case *discovery.EndpointSlice:
				addresses := map[string]bool{}
				for _, e := range is.Endpoints {
					addresses[e.Addresses[0]] = *e.Conditions.Ready
				}
				if want := map[bool]int{true: endpoints, false: 1000}[template == "service"]; len(addresses) != want {
					t.Errorf("slice %s: %d addresses, want %d", is.Name, len(addresses), want)
				}
			}
		}
	}
}

func TestSumOf(t *testing.T) {
	const metrics = `# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",verb="POST"} 3
apiserver_request_total{code="200",verb="PATCH",version="v1"} 4
apiserver_request_total{code="200",verb="WATCH"} 50
go_memstats_heap_inuse_bytes 1.048576e+06
Rss:  7 kB
Pss:            2048 kB
`
	for line, want := range map[*regexp.Regexp]float64{writeRequests: 7, heapInUse: 1 << 20, proportionalSize: 2048} {
		if got, err := sumOf(metrics, line); err != nil || got != want {
			t.Errorf("%s: %g, %v, want %g", line, got, err, want)
		}
		if _, err := sumOf("", line); err == nil {
			t.Errorf("%s: no error without a line", line)
		}
	}
}

// TestProxy checks that processes of each balancer reach the API server by the kubeconfig, and that
// the proxy's credentials are the cluster's.
func TestProxy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL.Path, " ", r.Header.Get("Authorization"))
	}))
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	api := &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: authority}}
	bed := &testbed{}
	cfg := Config{Config: bench.Config{Labs: netlab.Labs{Dir: t.TempDir()}}, Name: fmt.Sprintf("proxy-%d", os.Getpid()), Agents: 2}
	err := bed.up(t.Context(), cfg, api)
	if bed.Lab != nil {
		t.Cleanup(func() {
			if err := bed.Down(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	access, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil || access.Host != "http://"+proxyAddress {
		t.Fatalf("kubeconfig: %+v, %v", access, err)
	}
	for _, b := range append(bed.others, bed.balancer) {
		if page, err := bed.get(t.Context(), b.host.Name, proxyAddress+"/version"); err != nil || page != "/version Bearer secret" {
			t.Errorf("%s: %q, %v", b.host.Name, page, err)
		}
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}
}
