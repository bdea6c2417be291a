// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// The lab: the balancer, on which the agent and the controller run, and one host
// that stands for all workers. Pods of the nth worker are in 10.(128+n).0.0/16.
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
)

var balancerAddress = netip.AddrFrom4([4]byte{10, 0, 2, 1})

func workerAddress(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 2, byte(11 + n)}) }

// podAddress is that of the nth worker's pod of a Service.
func podAddress(n, service int) netip.Addr {
	service += 256 // not the first addresses
	return netip.AddrFrom4([4]byte{10, byte(128 + n), byte(service >> 8), byte(service)})
}

// topology is the lab without its processes.
func topology() netlab.Topology {
	balancer := netlab.Host{
		Name: balancerHost, Role: netlab.Balancer, Socket: socketFile,
		Interfaces: []netlab.Interface{{Name: device, Addresses: []netip.Prefix{netip.PrefixFrom(balancerAddress, 24)}}},
		Files:      map[string]string{configFile: "observe: {listen: \"" + agentPage + "\"}\n"},
	}
	workers := netlab.Host{Name: workersHost, Role: netlab.Client, Interfaces: []netlab.Interface{{Name: device}}}
	for n := range endpoints {
		at := workerAddress(n)
		workers.Interfaces[0].Addresses = append(workers.Interfaces[0].Addresses, netip.PrefixFrom(at, 24))
		balancer.Routes = append(balancer.Routes, netlab.Route{
			Destination: netip.PrefixFrom(podAddress(n, 0), 16).Masked(), Gateways: []netip.Addr{at},
		})
	}
	return netlab.Topology{
		Name: "bench-kubernetes", Hosts: []netlab.Host{balancer, workers},
		Links: []netlab.Link{{A: netlab.End{Host: balancerHost, Interface: device}, B: netlab.End{Host: workersHost, Interface: device}}},
	}
}

// site is the lab at work.
type site struct {
	*netlab.Lab
	host     *netlab.HostState
	relay    *relay
	fairlead string
	node     string
	// page asks the processes over HTTP.
	page  http.Client
	agent *observe.Client
}

// newSite brings the lab up. Processes in it reach the API server by a relay on their
// loopback interface. On an error nothing is left.
func newSite(ctx context.Context, cfg Config, api *rest.Config) (*site, error) {
	lab, err := cfg.Labs.Up(ctx, cfg.Name, topology())
	if err != nil {
		return nil, err
	}
	state := lab.State()
	s := &site{Lab: lab, host: state.Host(balancerHost), fairlead: cfg.Fairlead, node: cfg.Name + "-lb"}
	s.agent = observe.Dial(s.host.Socket)
	s.page = http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return lab.Dial(ctx, balancerHost, network, address)
		}},
	}
	if err := s.connect(cfg, api); err != nil {
		return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// connect starts the relay and writes how the API server is reached by it.
func (s *site) connect(cfg Config, api *rest.Config) (err error) {
	err = s.Do(balancerHost, func() error {
		s.relay, err = newRelay(api)
		return err
	})
	if err != nil {
		return err
	}
	text, err := s.relay.kubeconfig(cfg.Kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return s.host.ReplaceFile(kubeconfigFile, string(text))
}

func (s *site) close(ctx context.Context) error {
	err := s.Down(ctx)
	if s.relay != nil {
		s.relay.close()
	}
	return err
}

func (s *site) startController(ctx context.Context, namespace string) error {
	return s.Start(ctx, balancerHost, netlab.Process{Name: controllerProcess, Args: []string{
		s.fairlead, "controller", "--kubeconfig", kubeconfigFile, "--namespace", namespace,
		"--metrics-address", controllerPage, "--health-address", "",
	}})
}

func (s *site) startAgent(ctx context.Context) error {
	return s.Start(ctx, balancerHost, netlab.Process{Name: agentProcess, Args: []string{
		s.fairlead, "agent", "--kubernetes", "--kubeconfig", kubeconfigFile, "--node-name", s.node,
		"--config", configFile, "--socket", socketFile, "--pin-dir", "bpf/fairlead", "--state-dir", "state",
	}})
}

// syncTimeout is for how long the agent is waited for.
const syncTimeout = 5 * time.Minute

// awaitProgrammed waits until the agent is ready and its data plane has so many
// services with all their backends: the first ones may be tried before the way to
// their workers is known.
func (s *site) awaitProgrammed(ctx context.Context, services int) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	const pause = 20 * time.Millisecond
	for {
		err := s.ready(ctx)
		if err == nil {
			err = s.checkProgrammed(ctx, services)
		}
		if err == nil {
			return nil
		}
		if err := s.running(agentProcess); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// ready returns an error unless the agent says that all services have been tried.
func (s *site) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+agentPage+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := s.page.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("agent: readyz: %s", response.Status)
	}
	return nil
}

// checkProgrammed returns an error unless the data plane has so many services.
func (s *site) checkProgrammed(ctx context.Context, services int) error {
	text, err := s.agent.Status(ctx)
	if err != nil {
		return err
	}
	var status observe.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("agent: status: %w", err)
	}
	if status.Services.Programmed != services || status.Backends.InUse != services*endpoints {
		return fmt.Errorf("agent: %d services are programmed and %d backends in use: want %d and %d",
			status.Services.Programmed, status.Backends.InUse, services, services*endpoints)
	}
	return nil
}
