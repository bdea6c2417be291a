// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// RunAPI measures how changes through the HTTP API reach the program, by API server, Kubernetes
// and agent; it leaves nothing, also if it fails or ctx ends.
func RunAPI(ctx context.Context, cfg APIConfig) (report *bench.Report, err error) {
	if !slices.IsSorted(cfg.Sizes) || len(cfg.Sizes) == 0 {
		return nil, fmt.Errorf("%d load balancers: want increasing numbers", cfg.Sizes)
	}
	cfg.Services, cfg.Agents = cfg.Sizes[len(cfg.Sizes)-1], 1
	return run(ctx, "api", cfg.Config, func(o *objects, t *testbed, report *bench.Report) error {
		return measureAPI(ctx, cfg, o, t, report)
	})
}

func measureAPI(ctx context.Context, cfg APIConfig, o *objects, t *testbed, report *bench.Report) error {
	if err := o.fillFixtures(ctx); err != nil {
		return err
	}
	c, err := t.startAPI(ctx, o.name)
	if err != nil {
		return err
	}
	if err := errors.Join(t.startController(ctx, o.name), t.startAgent(ctx, t.balancer)); err != nil {
		return err
	}
	present := 0
	for _, size := range cfg.Sizes {
		if err := c.measure(ctx, cfg, o, t, report, present, size); err != nil {
			return err
		}
		present = size
	}
	return nil
}

// measure creates load balancers until there are size, and changes their members.
func (c *apiClient) measure(ctx context.Context, cfg APIConfig, o *objects, t *testbed, report *bench.Report, present, size int) error {
	labels := map[string]string{"loadbalancers": fmt.Sprint(size), "members": fmt.Sprint(size * endpoints)}
	cfg.Log("creating %d load balancers with %d members each", size-present, endpoints)
	began := time.Now()
	if err := c.fill(ctx, o, present, size); err != nil {
		return err
	}
	answered := time.Since(began).Seconds()
	if err := t.awaitProgrammed(ctx, t.balancer, size); err != nil {
		return err
	}
	programmed := time.Since(began).Seconds()
	addresses, err := o.awaitBalancers(ctx, size, func() error { return t.running(agentProcess) })
	if err != nil {
		return err
	}
	report.Add("create_answered", "s", bench.Runs{answered}, labels)
	report.Add("create_programmed", "s", bench.Runs{programmed}, labels)
	cfg.Log("%d changes of members", cfg.Changes)
	all := changes{pause: apiTracePause}
	if err := all.change(ctx, t, addresses, cfg.Changes, c.setMember); err != nil {
		return err
	}
	report.AddDistribution("request_to_program_ms", "ms", all.decided, labels)
	report.AddDistribution("request_ms", "ms", all.written, labels)
	report.AddDistribution("answer_to_program_ms", "ms", all.followed, labels)
	for process, page := range map[string]string{apiProcess: apiPage, agentProcess: agentPage, controllerProcess: controllerPage} {
		var used usage
		if err := used.measureMemory(ctx, t, process, page); err != nil {
			return err
		}
		report.Add(process+"_memory", "MiB", used.memory, labels)
	}
	slow, most := all.decided.Percentile(99), float64(manyTarget)
	if size <= fewBalancers {
		most = fewTarget
	}
	report.Judge(fmt.Sprintf("request_to_program_ms, %d load balancers: 99 of 100 changes of members are decided by within so many milliseconds", size),
		bench.Documented, bench.AtMost(most), slow)
	return nil
}

// apiClient sends requests to the API server as a client of one project.
type apiClient struct {
	http  http.Client
	token string
	// base is the URL of the project's load balancers.
	base string
}

// startAPI starts the API server for a project, which is the namespace of its name.
func (t *testbed) startAPI(ctx context.Context, project string) (*apiClient, error) {
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
	for {
		if _, err = t.get(ctx, balancerHost, apiPage+"/readyz"); err == nil {
			break
		}
		if ended := errors.Join(t.running(apiProcess), netlab.Sleep(ctx, 20*time.Millisecond)); ended != nil {
			return nil, errors.Join(ended, err)
		}
	}
	return &apiClient{
		http: http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: writers,
			DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
				return t.Dial(ctx, balancerHost, network, address)
			},
		}},
		token: token, base: "http://" + apiAddress + "/v1/projects/" + project + "/loadbalancers/",
	}, nil
}

// do sends a request, which has to succeed.
func (c *apiClient) do(ctx context.Context, method, path string, body map[string]any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: status %s: %s", method, path, response.Status, answer)
	}
	return err
}

// fill creates the load balancers from the number present up to size.
func (c *apiClient) fill(ctx context.Context, o *objects, present, size int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for n := present; n < size; n++ {
		group.Go(func() error {
			members := []v1alpha1.Member{}
			for i := range endpoints {
				members = append(members, v1alpha1.Member{Address: v1alpha1.IPAddress(podAddress(i, n).String()), Port: servicePort})
			}
			return c.do(ctx, http.MethodPut, fmt.Sprintf(serviceName, n), map[string]any{
				"labels": o.labels(), "forward": "ipip",
				"listeners": []any{map[string]any{"name": "http", "port": servicePort, "pool": "servers"}},
				"pools":     []any{map[string]any{"name": "servers", "members": members}},
			})
		})
	}
	return group.Wait()
}

// setMember creates or deletes a member of the nth load balancer.
func (c *apiClient) setMember(ctx context.Context, n int, member netip.Addr, in bool) error {
	method := http.MethodDelete
	if in {
		method = http.MethodPut
	}
	return c.do(ctx, method, fmt.Sprintf(serviceName+"/pools/servers/members/%s", n, netip.AddrPortFrom(member, servicePort)), map[string]any{})
}

// awaitBalancers waits until so many load balancers say that they are programmed, after which the
// API server is at rest, and returns their addresses by number. An error of alive ends the wait.
func (o *objects) awaitBalancers(ctx context.Context, count int, alive func() error) ([]netip.Addr, error) {
	for {
		var list v1alpha1.LoadBalancerList
		if err := o.client.List(ctx, &list, client.InNamespace(o.name)); err != nil {
			return nil, err
		}
		addresses, programmed := make([]netip.Addr, count), 0
		for _, b := range list.Items {
			var n int
			if _, err := fmt.Sscanf(b.Name, serviceName, &n); err != nil || n >= count {
				continue
			}
			address, err := netip.ParseAddr(b.Status.Address)
			if err == nil && apimeta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionProgrammed) {
				addresses[n] = address
				programmed++
			}
		}
		if programmed == count {
			return addresses, nil
		}
		if err := errors.Join(alive(), netlab.Sleep(ctx, time.Second)); err != nil {
			return nil, fmt.Errorf("%d of %d load balancers are programmed: %w", programmed, count, err)
		}
	}
}
