// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// The lab: the first balancer, which runs agent and controller, and one host for all
// workers. Pods of the nth worker are in 10.(128+n).0.0/16. Each further balancer, with an
// agent, has such a host for itself.
const (
	balancerHost      = "balancer"
	workersHost       = "workers"
	device            = "eth0"
	agentProcess      = "agent"
	controllerProcess = "controller"
	socketFile        = "agent.sock"
	kubeconfigFile    = "kubeconfig"
	configFile        = "fairlead.yaml"
	agentPage         = "127.0.0.1:9571"
	controllerPage    = "127.0.0.1:9573"
	// proxyAddress is where processes reach the API server, which only the host's namespace does.
	proxyAddress = "127.0.0.1:6443"
)

// kubeconfig is the processes' access to the API server, by the proxy's credentials.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: bench, cluster: {server: "http://` + proxyAddress + `"}}]
contexts: [{name: bench, context: {cluster: bench}}]
current-context: bench
`

func balancerAddress(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 2, byte(100 + n)}) }

func workerAddress(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 2, byte(11 + n)}) }

// podAddress is the address of the nth worker's pod of a Service.
func podAddress(n, service int) netip.Addr {
	service += 256 // not the first addresses
	return netip.AddrFrom4([4]byte{10, byte(128 + n), byte(service >> 8), byte(service)})
}

// numbered is the name of a balancer's host, or of its workers'.
func numbered(name string, n int) string {
	if n == 0 {
		return name
	}
	return fmt.Sprint(name, n)
}

// topology is the lab with so many balancers, without its processes.
func topology(balancers int) netlab.Topology {
	t := netlab.Topology{Name: "bench-kubernetes"}
	for b := range balancers {
		balancer := netlab.Host{
			Name: numbered(balancerHost, b), Role: netlab.Balancer, Socket: socketFile,
			Interfaces: []netlab.Interface{{Name: device, Addresses: []netip.Prefix{netip.PrefixFrom(balancerAddress(b), 24)}}},
			Files:      map[string]string{configFile: "observe: {listen: \"" + agentPage + "\"}\n", kubeconfigFile: kubeconfig},
		}
		workers := netlab.Host{Name: numbered(workersHost, b), Role: netlab.Client, Interfaces: []netlab.Interface{{Name: device}}}
		for n := range endpoints {
			at := workerAddress(n)
			workers.Interfaces[0].Addresses = append(workers.Interfaces[0].Addresses, netip.PrefixFrom(at, 24))
			balancer.Routes = append(balancer.Routes, netlab.Route{
				Destination: netip.PrefixFrom(podAddress(n, 0), 16).Masked(), Gateways: []netip.Addr{at},
			})
		}
		t.Hosts = append(t.Hosts, balancer, workers)
		t.Links = append(t.Links, netlab.Link{
			A: netlab.End{Host: balancer.Name, Interface: device}, B: netlab.End{Host: workers.Name, Interface: device},
		})
	}
	return t
}

// balancer is a host with an agent.
type balancer struct {
	host  *netlab.HostState
	node  string
	agent *control.Client
	// close ends the proxy.
	close func() error
}

// testbed is the running lab, and the objects in the cluster.
type testbed struct {
	*netlab.Lab
	*balancer
	// others are the further balancers.
	others  []*balancer
	objects *objects
}

// up builds the lab, whose processes reach the API server through a proxy on their loopback
// interface.
func (t *testbed) up(ctx context.Context, cfg Config, api *rest.Config) (err error) {
	transport, err := rest.TransportFor(api)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	server, err := url.Parse(api.Host)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if t.Lab, err = cfg.Labs.Up(ctx, cfg.Name, topology(cfg.Agents)); err != nil {
		return err
	}
	state := t.State()
	for n := range cfg.Agents {
		b := &balancer{host: state.Host(numbered(balancerHost, n)), node: balancerNode(cfg.Name, n)}
		b.agent = control.Dial(b.host.Socket)
		proxy := httputil.NewSingleHostReverseProxy(server)
		proxy.Transport = transport
		proxy.ErrorLog = log.New(io.Discard, "", 0) // of requests of processes that end
		if b.close, err = bench.Serve(t.Lab, b.host.Name, proxyAddress, proxy); err != nil {
			return err
		}
		if n == 0 {
			t.balancer = b
		} else {
			t.others = append(t.others, b)
		}
	}
	return nil
}

// down removes the lab and the objects.
func (t *testbed) down(ctx context.Context) error {
	var errs []error
	if t.Lab != nil {
		errs = append(errs, t.Down(ctx))
	}
	if t.balancer != nil {
		for _, b := range append(t.others, t.balancer) {
			errs = append(errs, b.close())
		}
	}
	return errors.Join(append(errs, t.objects.remove(ctx))...)
}

func (t *testbed) startController(ctx context.Context, namespace string) error {
	return t.Start(ctx, balancerHost, netlab.Process{Name: controllerProcess, Args: []string{
		"fairlead", "controller", "--kubeconfig", kubeconfigFile, "--namespace", namespace,
		"--metrics-address", controllerPage, "--health-address", "",
	}})
}

func (t *testbed) startAgent(ctx context.Context, b *balancer) error {
	return t.Start(ctx, b.host.Name, netlab.Process{Name: agentProcess, Args: []string{
		"fairlead", "agent", "--kubernetes", "--kubeconfig", kubeconfigFile, "--node-name", b.node,
		"--config", configFile, "--socket", socketFile, "--pin-dir", "bpf/fairlead", "--state-dir", "state",
	}})
}

// syncTimeout bounds a synchronisation.
const syncTimeout = 5 * time.Minute

// awaitProgrammed waits until an agent is ready and has programmed so many services, or more, with
// all their backends; the first ones may have to wait for neighbour entries.
func (t *testbed) awaitProgrammed(ctx context.Context, b *balancer, services int) error {
	return bench.Await(ctx, syncTimeout, 20*time.Millisecond, func(ctx context.Context) error {
		if err := b.host.Check(*t.State().Host(b.host.Name).Process(agentProcess)); err != nil {
			return netlab.Permanent{Err: err}
		}
		if _, err := t.get(ctx, b.host.Name, agentPage+"/readyz"); err != nil {
			return err
		}
		return b.checkProgrammed(ctx, services)
	})
}

// get returns a page of a process on a host.
func (t *testbed) get(ctx context.Context, host, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return t.Get(ctx, host, "http://"+url)
}

// checkProgrammed returns an error unless so many services, or more, are programmed.
func (b *balancer) checkProgrammed(ctx context.Context, services int) error {
	status, err := netlab.Decode[observe.Status](b.agent.Status(ctx))
	if err != nil {
		return err
	}
	if int(status.Services.Programmed) < services || int(status.Backends.InUse) < services*endpoints {
		return fmt.Errorf("agent of %s: %d services are programmed and %d backends in use: want %d and %d",
			b.node, status.Services.Programmed, status.Backends.InUse, services, services*endpoints)
	}
	return nil
}

// process returns one that was started.
func (t *testbed) process(name string) netlab.ProcessState {
	return *t.State().Host(balancerHost).Process(name)
}

// running returns an error with the end of its log if a process has ended.
func (t *testbed) running(process string) error { return t.host.Check(t.process(process)) }

// memory measures the memory of a process: its proportional set size (proc_pid_smaps(5)), and the
// heap in use by its metrics.
func (t *testbed) memory(ctx context.Context, process, page string) (u usage, err error) {
	const kib, mib = 1 << 10, 1 << 20
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", t.process(process).PID))
	if err != nil {
		return u, fmt.Errorf("%s: %w", process, err)
	}
	metrics, err := t.get(ctx, balancerHost, page+"/metrics")
	if err != nil {
		return u, fmt.Errorf("%s: %w", process, err)
	}
	size, errSize := sumOf(string(text), proportionalSize)
	heap, errHeap := sumOf(metrics, heapInUse)
	if err := errors.Join(errSize, errHeap); err != nil {
		return u, fmt.Errorf("%s: %w", process, err)
	}
	return usage{Memory: size * kib / mib, Heap: heap / mib}, nil
}

// Lines of smaps_rollup, and of metrics.
var (
	proportionalSize = regexp.MustCompile(`(?m)^Pss:\s+(\d+) kB$`)
	heapInUse        = regexp.MustCompile(`(?m)^go_memstats_heap_inuse_bytes (\S+)$`)
	writeRequests    = regexp.MustCompile(`(?m)^apiserver_request_total\{.*\bverb="(?:APPLY|PATCH|POST|PUT|DELETE|DELETECOLLECTION)".*\} (\S+)$`)
)

// sumOf adds the numbers of all lines that match; none is an error.
func sumOf(text string, line *regexp.Regexp) (sum float64, err error) {
	found := line.FindAllStringSubmatch(text, -1)
	if found == nil {
		return 0, fmt.Errorf("no line matches %s", line)
	}
	for _, match := range found {
		number, failed := strconv.ParseFloat(match[1], 64)
		sum, err = sum+number, errors.Join(err, failed)
	}
	return sum, err
}
