// SPDX-License-Identifier: Apache-2.0

// Package kubernetes measures how Fairlead follows a Kubernetes cluster: how long
// a change of an EndpointSlice takes until the program decides by it, how long the
// controller and an agent take to know thousands of Services, and what they cost
// when nothing changes.
//
// In the story of DESIGN.md §1 it stands outside, as clusters and operators do: it
// writes objects into a real API server, runs the controller's and an agent's
// process (site.go), and asks the data plane what it would do with a packet
// (change.go). The pods that the objects name don't run.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/netlab"
)

// Config says what is measured.
type Config struct {
	Labs netlab.Labs
	// Name is that of the lab, and of all that is written into the cluster.
	Name string
	// Fairlead is the executable that is measured.
	Fairlead string
	// Kubeconfig is how the API server is reached, as an administrator.
	Kubeconfig *clientcmdapi.Config
	// Commit is that of this binary, for the report.
	Commit string
	// Quick measures less, in under a minute.
	Quick bool
	// Services are how many are written, with ten endpoints each, and Changes how many
	// EndpointSlices are changed.
	Services, Changes int
	// Progress, if not nil, is told in a few words what is being done.
	Progress func(line string)
}

func (c *Config) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// endpoints is how many each Service has.
const endpoints = 10

// maxServices are those that have an address, and endpoints, of their own.
const maxServices = 1 << 14

// cleanUp is how long taking everything away may take.
const cleanUp = time.Minute

// plan says for how long processes are watched at rest.
type plan struct {
	// calm is for what the last change has set off.
	calm   time.Duration
	rounds int
	round  time.Duration
}

func newPlan(quick bool) plan {
	if quick {
		return plan{calm: 3 * time.Second, rounds: 3, round: 2 * time.Second}
	}
	return plan{calm: 10 * time.Second, rounds: 6, round: 10 * time.Second}
}

// Run measures; nothing is left of it, also if it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (report *bench.Report, err error) {
	if cfg.Services < 1 || cfg.Services > maxServices {
		return nil, fmt.Errorf("%d services: want 1 to %d", cfg.Services, maxServices)
	}
	report, err = bench.NewReport("kubernetes", cfg.Commit, cfg.Quick)
	if err != nil {
		return nil, err
	}
	api, err := clientcmd.NewDefaultClientConfig(*cfg.Kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	w, err := newWorld(api, cfg.Name, cfg.Services)
	if err != nil {
		return nil, err
	}
	if err := w.check(ctx); err != nil {
		return nil, err
	}
	s, err := newSite(ctx, cfg, api)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		err = errors.Join(err, s.close(ctx), w.remove(ctx))
	}()
	return report, measure(ctx, cfg, w, s, report)
}

// measure tells the story of a cluster: it is filled, the controller and then an
// agent come, endpoints change, and at last nothing happens.
func measure(ctx context.Context, cfg Config, w *world, s *site, report *bench.Report) error {
	f := findings{services: cfg.Services}
	cfg.progress("%d Services with %d endpoints each are written", cfg.Services, endpoints)
	if err := w.fill(ctx); err != nil {
		return err
	}
	cfg.progress("the controller gives them addresses")
	addresses, err := f.synchronise(ctx, w, s)
	if err != nil {
		return err
	}
	cfg.progress("%d changes of EndpointSlices", cfg.Changes)
	if err := f.change(ctx, w, s, addresses, cfg.Changes); err != nil {
		return err
	}
	p := newPlan(cfg.Quick)
	cfg.progress("at rest, %d rounds of %s", p.rounds, p.round)
	if err := f.rest(ctx, s, p); err != nil {
		return err
	}
	f.report(report)
	return nil
}

// synchronise starts the controller and then the agent, and measures how long each
// takes to have done all that there is. It returns the addresses of the Services.
func (f *findings) synchronise(ctx context.Context, w *world, s *site) ([]netip.Addr, error) {
	began := time.Now()
	if err := s.startController(ctx, w.name); err != nil {
		return nil, err
	}
	addresses, err := w.awaitAddresses(ctx, func() error { return s.running(controllerProcess) })
	if err != nil {
		return nil, err
	}
	f.controllerSync = time.Since(began).Seconds()
	began = time.Now()
	if err := s.startAgent(ctx); err != nil {
		return nil, err
	}
	if err := s.awaitProgrammed(ctx, len(addresses)); err != nil {
		return nil, err
	}
	f.agentSync = time.Since(began).Seconds()
	return addresses, nil
}
