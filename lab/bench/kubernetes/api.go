// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/apiserver"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// APIConfig configures the measurement of the HTTP API.
type APIConfig struct {
	Config
	// Sizes are the numbers of load balancers at which changes are measured, each larger than
	// the one before. Services and Agents aren't used.
	Sizes []int
}

const (
	apiProcess = "apiserver"
	apiAddress = "127.0.0.1:9575"
	apiPage    = "127.0.0.1:9576"
	tokensFile = "tokens.yaml"
	// memberNetworks contains the members' addresses.
	memberNetworks = "10.128.0.0/9"
)

// Targets are the 99th percentiles of the milliseconds from a request to the program's
// decision, at up to fewBalancers load balancers and at more.
const (
	fewBalancers = 1000
	fewTarget    = 100
	manyTarget   = 200
)

// apiSeen is the findings at a number of load balancers.
type apiSeen struct {
	// Answered and Programmed are the seconds of the creation of load balancers.
	Answered, Programmed float64
	Changes              changes
	Memory               map[string]usage // by process name
}

// RunAPI measures how changes through the HTTP API reach the program, by API server, Kubernetes
// and agent; it leaves nothing, also if it fails or ctx ends.
func RunAPI(ctx context.Context, cfg APIConfig) (*bench.Report, error) {
	if !slices.IsSorted(cfg.Sizes) || len(cfg.Sizes) == 0 {
		return nil, fmt.Errorf("%d load balancers: want increasing numbers", cfg.Sizes)
	}
	cfg.Services, cfg.Agents = cfg.Sizes[len(cfg.Sizes)-1], 1
	t := &testbed{}
	var c *apiClient
	b := bench.Bench[apiSeen]{Name: "api", Report: cfg.report}
	for _, size := range cfg.Sizes {
		b.Groups = append(b.Groups, bench.Single(bench.Cell[apiSeen]{
			Name: sizeName(size), Measure: func(ctx context.Context) (apiSeen, error) { return c.measure(ctx, t, size, cfg.Changes) },
		}))
	}
	return run(ctx, cfg.Config, t, b, func(ctx context.Context) (err error) {
		if err := t.objects.write(ctx, "fixtures", 0, 1); err != nil {
			return err
		}
		if c, err = t.startAPI(ctx); err != nil {
			return err
		}
		return errors.Join(t.startController(ctx, t.objects.name), t.startAgent(ctx, t.balancer))
	})
}

func sizeName(size int) string { return fmt.Sprint(size, " load balancers") }

// measure creates load balancers until there are size, and changes their members.
func (c *apiClient) measure(ctx context.Context, t *testbed, size, count int) (s apiSeen, err error) {
	began := time.Now()
	if err := c.fill(ctx, t.objects, size); err != nil {
		return s, err
	}
	s.Answered = time.Since(began).Seconds()
	if err := t.awaitProgrammed(ctx, t.balancer, size); err != nil {
		return s, err
	}
	s.Programmed = time.Since(began).Seconds()
	// Then the API server is at rest.
	addresses, err := t.objects.awaitAddresses(ctx, &v1alpha1.LoadBalancerList{}, size, func() error { return t.running(agentProcess) },
		func(object runtime.Object) (name, address string, is bool) {
			b := object.(*v1alpha1.LoadBalancer)
			return b.Name, b.Status.Address, apimeta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionProgrammed)
		})
	if err != nil {
		return s, err
	}
	if s.Changes, err = t.change(ctx, addresses, count, apiTracePause, c.setMember); err != nil {
		return s, err
	}
	s.Memory = map[string]usage{}
	for process, page := range map[string]string{apiProcess: apiPage, agentProcess: agentPage, controllerProcess: controllerPage} {
		if s.Memory[process], err = t.memory(ctx, process, page); err != nil {
			return s, err
		}
	}
	return s, nil
}

// report adds the results and the verdicts.
func (cfg *APIConfig) report(r *bench.Report, found bench.Found[apiSeen]) error {
	for _, size := range cfg.Sizes {
		for _, s := range found[sizeName(size)] { // one, if it was measured
			labels := map[string]string{"loadbalancers": fmt.Sprint(size), "members": fmt.Sprint(size * endpoints)}
			r.Add("create_answered", "s", bench.Runs{s.Answered}, labels)
			r.Add("create_programmed", "s", bench.Runs{s.Programmed}, labels)
			r.AddDistribution("request_to_program_ms", "ms", s.Changes.Decided, labels)
			r.AddDistribution("request_ms", "ms", s.Changes.Written, labels)
			r.AddDistribution("answer_to_program_ms", "ms", s.Changes.Followed, labels)
			for _, process := range slices.Sorted(maps.Keys(s.Memory)) {
				r.Add(process+"_memory", "MiB", bench.Runs{s.Memory[process].Memory}, labels)
			}
			most := float64(manyTarget)
			if size <= fewBalancers {
				most = fewTarget
			}
			r.Judge(fmt.Sprintf("request_to_program_ms, %d load balancers: 99 of 100 changes of members are decided by within so many milliseconds", size),
				bench.Documented, bench.AtMost(most), s.Changes.Decided.Percentile(99))
		}
	}
	return nil
}

// apiClient sends requests to the API server as a client of one project.
type apiClient struct {
	bench.Client
	// present is the number of load balancers.
	present int
}

// startAPI starts the API server for a project, which is the namespace of the objects' name.
func (t *testbed) startAPI(ctx context.Context) (*apiClient, error) {
	project := t.objects.name
	token, entry, err := apiserver.NewToken(apiserver.Token{ID: "bench", Projects: []string{project}})
	if err != nil {
		return nil, err
	}
	if err := t.host.ReplaceFile(tokensFile, entry.Line()); err != nil {
		return nil, err
	}
	err = t.Start(ctx, balancerHost, netlab.Process{Name: apiProcess, Args: []string{
		"fairlead", "apiserver", "--kubeconfig", kubeconfigFile, "--namespace-prefix", "", "--tokens", tokensFile,
		"--listen", apiAddress, "--metrics-address", apiPage, "--rate", "1000000",
	}})
	if err != nil {
		return nil, err
	}
	c := &apiClient{Client: bench.Client{
		HTTP: http.Client{Transport: bench.Transport(t.Lab, balancerHost)}, Token: token,
		Base: "http://" + apiAddress + "/v1/projects/" + project + "/loadbalancers/",
	}}
	return c, bench.Await(ctx, syncTimeout, 20*time.Millisecond, func(ctx context.Context) error {
		if err := t.running(apiProcess); err != nil {
			return netlab.Permanent{Err: err}
		}
		_, err := t.get(ctx, balancerHost, apiPage+"/readyz")
		return err
	})
}

// fill creates load balancers until there are size.
func (c *apiClient) fill(ctx context.Context, o *objects, size int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for n := c.present; n < size; n++ {
		group.Go(func() error {
			members := []v1alpha1.Member{}
			for i := range endpoints {
				members = append(members, v1alpha1.Member{Address: v1alpha1.IPAddress(podAddress(i, n).String()), Port: servicePort})
			}
			_, err := c.Do(ctx, http.MethodPut, fmt.Sprintf(serviceName, n), map[string]any{
				"labels": map[string]string{"fairlead.io/bench": o.name}, "forward": "ipip",
				"listeners": []any{map[string]any{"name": "http", "port": servicePort, "pool": "servers"}},
				"pools":     []any{map[string]any{"name": "servers", "members": members}},
			})
			return err
		})
	}
	c.present = size
	return group.Wait()
}

// setMember creates or deletes a member of the nth load balancer.
func (c *apiClient) setMember(ctx context.Context, n int, member netip.Addr, in bool) error {
	method := http.MethodDelete
	if in {
		method = http.MethodPut
	}
	_, err := c.Do(ctx, method, fmt.Sprintf(serviceName+"/pools/servers/members/%s", n, netip.AddrPortFrom(member, servicePort)), map[string]any{})
	return err
}
