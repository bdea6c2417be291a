// SPDX-License-Identifier: Apache-2.0

// Package follow follows the backends of a file's services, in Kubernetes and in DNS: names.go follows names, dns.go
// sends queries, and internal/source/kube follows Services. A Follower keeps the last answers, also in a file for the
// next agent. The file source of a node calls it.
package follow

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/kube"
	"fairlead.io/fairlead/internal/source/saved"
	"fairlead.io/fairlead/internal/spec"
	"fairlead.io/fairlead/internal/wait"
)

// Options configure a Follower.
type Options struct {
	// StateDir is a folder for the last answers, used by this agent of the node only.
	StateDir, Node string
	// Check returns the errors of a service on this node.
	Check func(*lb.Service) []lb.FieldError
	// Cluster returns how the API server is reached, and the node's own namespace.
	Cluster func() (*rest.Config, string, error)
	// Servers returns the addresses of DNS servers; nil: of the system's.
	Servers func() ([]netip.AddrPort, error)
	Log     *slog.Logger
}

// stateFile is the file in Options.StateDir.
const stateFile = "backends.json"

// Follower follows the backends of the services that Set was given. Its methods may be called concurrently; a nil Follower
// follows nothing.
type Follower struct {
	Options
	// Changed is signalled when there are new answers.
	Changed   chan struct{}
	saver     *saved.Saver
	saving    sync.Once
	endpoints func() (*kube.Endpoints, error)
	dns       *resolver
	running   sync.WaitGroup

	mu sync.Mutex
	// all is nil before Set.
	all map[lb.VIP]*followed
}

// followed is a service whose backends are followed.
type followed struct {
	source.Follow
	// service has the backends of the last answer; known says that there was one.
	service lb.Service
	known   bool
	state   source.FollowedBackends
	stop    context.CancelFunc
}

// New returns a Follower.
func New(o Options) *Follower {
	f := &Follower{Options: o, Changed: make(chan struct{}, 1), dns: newResolver(o.Servers)}
	f.endpoints = sync.OnceValues(func() (*kube.Endpoints, error) {
		api, namespace, err := o.Cluster()
		if err != nil {
			return nil, err
		}
		return kube.NewEndpoints(api, namespace)
	})
	f.saver = saved.Open(filepath.Join(o.StateDir, stateFile), o.Node, o.Check, f.current, o.Log)
	return f
}

// current returns the answers to save.
func (f *Follower) current() *saved.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := &saved.State{Node: f.Node}
	for _, e := range f.all {
		if e.known {
			state.Services = append(state.Services, e.service)
		}
	}
	return state
}

// Forget removes the saved answers, after Wait.
func (f *Follower) Forget() error {
	if f == nil {
		return nil
	}
	return f.saver.Forget()
}

// Wait waits for the end of all that follows, after the end of Set's context.
func (f *Follower) Wait() { f.running.Wait() }

// Set follows the backends of these services until ctx ends, and no others. The agent isn't ready before the services
// of the first call have had an answer.
func (f *Follower) Set(ctx context.Context, services []lb.Service, from map[lb.VIP]source.Follow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.all
	f.all = map[lb.VIP]*followed{}
	for i := range services {
		s := services[i]
		where, is := from[s.VIP]
		if !is {
			continue
		}
		e, was := before[s.VIP], []lb.Backend(nil)
		switch {
		case before == nil:
			was = f.earlierOf(s.VIP)
		case e != nil && e.service.Forward == s.Forward:
			was = e.service.Backends // of another name, drained unless the next one has them
		}
		if e != nil && e.Follow == where && e.service.Forward == s.Forward { // all that answers depend on, with the VIP
			s.Backends = e.service.Backends
			e.service, e.state.Service = s, s.Name
			delete(before, s.VIP)
		} else {
			e = &followed{Follow: where, service: s}
			e.state = source.FollowedBackends{Service: s.Name, From: where.String(), Awaited: before == nil}
			f.start(ctx, e, was)
		}
		f.all[s.VIP] = e
	}
	for _, e := range before {
		e.stop()
	}
}

// start follows the backends of a service, which had others before.
func (f *Follower) start(ctx context.Context, e *followed, was []lb.Backend) {
	f.saving.Do(func() {
		_ = os.MkdirAll(f.StateDir, 0o700) // saving fails without
		f.running.Go(func() { f.saver.Run(ctx) })
	})
	s := e.service
	following, stop := context.WithCancel(ctx)
	e.stop = stop
	report := func(backends []lb.Backend, problems []string, err error) { f.answered(e, backends, problems, err) }
	f.running.Go(func() {
		if e.DNS != "" {
			newNames(e.Follow, s, f.dns.ask, was).follow(following, report)
		} else if endpoints, err := f.endpoints(); err != nil {
			report(nil, nil, err)
		} else {
			endpoints.Follow(following, e.Follow, &s, report)
		}
	})
}

// earlierOf returns the backends that an earlier agent had for a VIP; nil for none.
func (f *Follower) earlierOf(vip lb.VIP) []lb.Backend {
	if f.saver.Earlier != nil {
		for i := range f.saver.Earlier.Services {
			if s := &f.saver.Earlier.Services[i]; s.VIP == vip {
				return s.Backends
			}
		}
	}
	return nil
}

// answered takes an answer.
func (f *Follower) answered(e *followed, backends []lb.Backend, problems []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.Log.With("service", e.state.Service, "from", e.state.From)
	failed := e.state.Error
	if err != nil {
		if e.state.Error = strings.ReplaceAll(err.Error(), "\n", "; "); e.state.Error != failed {
			log.Warn("backends not followed", "error", e.state.Error)
		}
		return
	}
	next := e.service
	next.Backends = lb.SortBackends(backends)
	next, found, _ := spec.Servable(next, f.Check)
	for _, err := range found {
		problems = append(problems, err.Error())
	}
	if failed != "" {
		log.Info("backends followed again")
	}
	if len(problems) > 0 && !slices.Equal(problems, e.state.Problems) {
		log.Warn("backends not used", "problems", problems)
	}
	e.state = source.FollowedBackends{Service: e.state.Service, From: e.state.From, Problems: problems, Answered: time.Now()}
	if !e.known || !slices.Equal(e.service.Backends, next.Backends) {
		e.known, e.service = true, next
		f.saver.Changed()
		wait.Signal(f.Changed)
	}
}

// Await waits until all services have had an answer, at most for a time: then others have the backends of an earlier agent,
// if there was one.
func (f *Follower) Await(ctx context.Context, most time.Duration) {
	if !source.Await(ctx, f.Changed, time.Now().Add(most), f.allAnswered) {
		f.restore()
	}
}

// allAnswered reports whether all services have had an answer.
func (f *Follower) allAnswered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.all {
		if !e.known {
			return false
		}
	}
	return true
}

// restore gives services without an answer the backends of an earlier agent.
func (f *Follower) restore() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for vip, e := range f.all {
		if backends := f.earlierOf(vip); !e.known && backends != nil {
			e.known, e.service.Backends, e.state.Awaited, e.state.Answered = true, backends, false, f.saver.Earlier.At
			f.Log.Warn("no answer yet, serving the saved backends", "service", e.state.Service, "saved", f.saver.Earlier.At)
		}
	}
}

// Complete returns services with the backends of followed ones. A service without an answer has them as applied;
// incomplete says that one isn't applied either, and left out.
func (f *Follower) Complete(services, applied []lb.Service) (all []lb.Service, incomplete bool) {
	if f == nil {
		return services, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) == 0 {
		return services, false
	}
	all = make([]lb.Service, 0, len(services))
	for i := range services {
		s := services[i]
		if e := f.all[s.VIP]; e != nil && e.known {
			s.Backends = slices.Clone(e.service.Backends) // services with the same slice count as equal
		} else if e != nil {
			at := slices.IndexFunc(applied, func(a lb.Service) bool { return a.VIP == s.VIP })
			if at < 0 {
				incomplete = true
				continue
			}
			s.Backends = slices.Clone(applied[at].Backends)
			s, _, _ = spec.Servable(s, f.Check)
		}
		all = append(all, s)
	}
	return all, incomplete
}

// State returns the state of the services, sorted.
func (f *Follower) State() (all []source.FollowedBackends) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.all {
		state := e.state
		state.Backends = len(e.service.Backends)
		all = append(all, state)
	}
	slices.SortFunc(all, func(a, b source.FollowedBackends) int { return cmp.Compare(a.Service, b.Service) })
	return all
}
