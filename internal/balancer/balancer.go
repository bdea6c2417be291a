// SPDX-License-Identifier: Apache-2.0

// Package balancer opens the parts of a balancer node as its configuration says, and runs the agent
// with them. The commands "agent" and "preflight" call it.
package balancer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"fairlead.io/fairlead/internal/agent"
	"fairlead.io/fairlead/internal/balancer/plane"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/speaker"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane/ipvs"
	"fairlead.io/fairlead/internal/host/bpffs"
	"fairlead.io/fairlead/internal/host/preflight"
	"fairlead.io/fairlead/internal/httpd/review"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/web"
	"fairlead.io/fairlead/internal/podroute"
	"fairlead.io/fairlead/internal/routehook"
	"fairlead.io/fairlead/internal/source/node"
	"fairlead.io/fairlead/internal/store"
)

// PinRoot has a folder for each node's data plane.
const PinRoot = "/sys/fs/bpf/fairlead"

// Options are the flags of the command "agent".
type Options struct {
	// Config and Socket are the paths of the configuration file and the control socket.
	Config, Socket string
	// PinDir is the folder of the data plane; empty: in PinRoot.
	PinDir string
	// StateDir is node.Options'.
	StateDir string
	// RemoveOnExit says that no agent will run here again after SIGTERM, as in a balancer pod.
	RemoveOnExit bool
	Kubernetes   node.KubernetesOptions
	// BalancerPods are the namespaces to whose balancer pods VIPs are led.
	BalancerPods []podroute.Share
	// MetricsSecure serves the status page and metrics over TLS, to clients that the API server
	// allows.
	MetricsSecure bool
	Log           *slog.Logger
}

// Run runs an agent until a signal ends it.
func Run(ctx context.Context, o Options) (err error) {
	started := time.Now()
	ctx, terminate, release := signalled(ctx)
	defer release()
	from, err := o.open(ctx)
	if err != nil {
		return err
	}
	claim, err := control.ClaimSocket(o.Socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Release()) }()
	conf := from.Config()
	checkSeed(conf, o.Log)
	checkForwarding(conf, preflight.NotForwarding(), o.Log)
	pins, err := o.pins(conf.Node.Name)
	if err != nil {
		return err
	}
	secure, admit, err := o.access()
	if err != nil {
		return err
	}
	page, err := web.Listen(conf.Observe.Listen, conf.Observe.Explicit, secure, o.Log)
	if err != nil {
		return err
	}
	if page != nil {
		defer page.Close() // in case it isn't served
	}
	events := observe.NewRecorder(o.Log)
	dp, err := withModule(ctx, terminate, o.Log, func() (agent.Plane, error) { return plane.Open(conf, pins, events, o.Log) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dp.Close()) }()
	kernel, _ := preflight.KernelRelease() // empty if it can't be read
	c := agent.Config{
		Started: started, Kernel: kernel, Source: from, Page: page, Admit: admit, Events: events, Log: o.Log, Plane: dp,
		Drains: store.DrainsPath(o.Socket), Verdicts: store.VerdictsPath(o.Socket),
	}
	switch from := from.(type) {
	case *node.Kubernetes:
		c.Reporter = from.Cluster
	case *node.API:
		c.Reporter = from.Server
	}
	switch {
	case conf.BGP != nil:
		c.Speaker = speaker.Open(conf.BGP.Local, o.Log)
	case conf.Routes != nil:
		if c.Hook, err = o.openHook(conf, events); err != nil {
			return err
		}
		c.Speaker = c.Hook
	}
	stopPods, err := o.routeToPods(ctx, conf, &c.Speaker)
	if err != nil {
		return err
	}
	defer stopPods()
	a := agent.New(c)
	if err := a.Run(ctx, claim, terminate); err != nil {
		return err
	}
	if a.Permanent() {
		stopPods()
		return errors.Join(dp.Close(), o.removeState(from, pins))
	}
	o.Log.Info("agent stopped, the kernel keeps balancing", "pins", pins)
	return nil
}

// moduleInterval is how often a kernel module is looked for that is missing.
const moduleInterval = 5 * time.Second

// withModule opens a data plane, again and again while the kernel lacks a module that it needs: once that is loaded no
// restart is needed. It gives up when ctx or terminate ends.
func withModule[P any](ctx context.Context, terminate <-chan struct{}, log *slog.Logger, open func() (P, error)) (P, error) {
	for waiting := false; ; waiting = true {
		p, err := open()
		missing, is := errors.AsType[*ipvs.MissingError](err)
		if !is {
			return p, err
		}
		if !waiting {
			log.Error("waiting for a kernel module", "module", missing.Module, "error", err)
		}
		select {
		case <-time.After(moduleInterval):
		case <-ctx.Done():
			return p, err
		case <-terminate:
			return p, err
		}
	}
}

// signalled returns an agent's context in the place of its command's: it ends on
// SIGINT, or on the second SIGTERM; the first one closes terminate. Release
// restores the default handling of signals.
func signalled(parent context.Context) (ctx context.Context, terminate <-chan struct{}, release func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, end := context.WithCancel(context.WithoutCancel(parent))
	first := make(chan struct{})
	go func() {
		defer end()
		select {
		case s := <-signals:
			if s != syscall.SIGTERM {
				return
			}
		case <-ctx.Done():
			return
		}
		close(first)
		select {
		case <-signals:
		case <-ctx.Done():
		}
	}()
	return ctx, first, func() {
		signal.Stop(signals)
		end()
	}
}

// checkSeed warns of the seed that everyone knows.
func checkSeed(conf *config.Config, log *slog.Logger) {
	if conf.Dataplane.HashSeed == 0 {
		log.Warn("hash seed 0: senders can choose their backends; set dataplane.hashSeed to a random number, the same on all nodes")
	}
}

// checkForwarding warns of settings with which the kernel drops packets that are left to it.
func checkForwarding(conf *config.Config, off []string, log *slog.Logger) {
	if conf.Dataplane.FilterPods && len(off) > 0 {
		log.Warn("the kernel doesn't forward: with dataplane.filterPods clients don't reach pods of this node", "off", off)
	}
}

// By how many percent the heap may grow until garbage is collected. Parsing a file leaves a hundred
// times its size of garbage, and little that stays: the heap grows to the size that it has anyway
// with all services programmed.
const (
	parsingGrowth  = 200
	startingGrowth = 100
)

// open follows the agent's source until ctx ends.
func (o Options) open(ctx context.Context) (agent.Source, error) {
	options := node.Options{StateDir: o.StateDir, Limits: plane.Limits(), Log: o.Log}
	if o.Kubernetes.On {
		return node.OpenKubernetes(ctx, o.Config, o.Kubernetes, options)
	}
	agent.SetHeapGrowth(parsingGrowth)
	defer agent.SetHeapGrowth(startingGrowth)
	settings, err := config.Open(o.Config, o.Log, config.Parser(options.Limits))
	if err != nil {
		return nil, err
	}
	file := node.OpenFile(settings, o.Kubernetes, o.RemoveOnExit, options)
	if settings.Config().APIServer != nil {
		return node.OpenAPI(file, options)
	}
	return file, nil
}

// access returns how the status page and metrics are served, and who may read them; nil for all.
// Probes need no token.
func (o Options) access() (*tls.Config, func(http.Handler) http.Handler, error) {
	if !o.MetricsSecure {
		return nil, nil, nil
	}
	cluster, _, err := o.Kubernetes.Load()
	if err != nil {
		return nil, nil, err
	}
	reviewer, err := review.New(cluster)
	if err != nil {
		return nil, nil, err
	}
	secure, err := review.TLS()
	return secure, func(next http.Handler) http.Handler {
		return reviewer.Require(next, o.Log, web.HealthPath, web.ReadyPath)
	}, err
}

// settleRoutes is how long an earlier agent's routes stay that no service has yet.
const settleRoutes = 30 * time.Second

// openHook opens the hook in place of a BGP speaker.
func (o Options) openHook(conf *config.Config, events *observe.Recorder) (*routehook.Hook, error) {
	return routehook.Open(routehook.Config{
		Program: conf.Routes.Hook, Timeout: conf.Routes.Timeout, Interval: conf.Routes.Interval, Node: conf.Node.Name,
		Address: func(prefix netip.Prefix) netip.Addr {
			return node.OwnAddress(conf.Node.Interfaces, prefix.Addr().Is4())
		},
		File:   filepath.Join(cmp.Or(o.StateDir, filepath.Join(node.StateRoot, conf.Node.Name)), "routes"),
		Settle: settleRoutes, Events: events, Log: o.Log,
	})
}

// ParseShares reads Options.BalancerPods; see podroute.ParseShares.
func ParseShares(texts []string) ([]podroute.Share, error) { return podroute.ParseShares(texts) }

// routeToPods routes VIPs to the balancer pods of the node until stop is called. Their prefixes
// are announced by a speaker in the place of the given one, if there is one.
func (o Options) routeToPods(ctx context.Context, conf *config.Config, speaker *agent.Speaker) (stop func(), err error) {
	if len(o.BalancerPods) == 0 {
		return func() {}, nil
	}
	api, _, err := o.Kubernetes.Load()
	if err != nil {
		return nil, err
	}
	options := podroute.Options{API: api, Shares: o.BalancerPods, Node: conf.Node.Name, Log: o.Log}
	if conf.BGP != nil {
		options.ShutdownDelay = conf.BGP.ShutdownDelay
	}
	router, err := podroute.New(options)
	if err != nil {
		return nil, err
	}
	if *speaker != nil {
		*speaker = router.Announce(*speaker)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { router.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}, nil
}

// removeState removes all state of agents from the node.
func (o Options) removeState(from agent.Source, pins string) error {
	if err := plane.Remove(pins); err != nil {
		return err
	}
	if o.PinDir == "" {
		// Tests run several nodes on one kernel; in a pod it is mounted.
		if err := os.Remove(PinRoot); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
	for _, path := range []string{store.DrainsPath(o.Socket), store.VerdictsPath(o.Socket)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := from.Forget(); err != nil {
		return err
	}
	if len(o.BalancerPods) > 0 {
		if err := podroute.Remove(); err != nil {
			return err
		}
	}
	o.Log.Info("agent stopped and uninstalled, balancing has ended", "pins", pins)
	return nil
}

// Remove removes the data plane of a stopped agent from the kernel. It claims the control
// socket, so that no running agent loses its data plane.
func Remove(o Options) (err error) {
	name := ""
	switch {
	case o.PinDir != "":
	case o.Kubernetes.On:
		if name, err = o.Kubernetes.Node(); err != nil {
			return err
		}
	default:
		settings, err := config.Open(o.Config, o.Log, config.Parser(plane.Limits()))
		if err != nil {
			return err
		}
		name = settings.Config().Node.Name
	}
	pins, err := o.pins(name)
	if err != nil {
		return err
	}
	claim, err := control.ClaimSocket(o.Socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Release()) }()
	if err := plane.Remove(pins); err != nil {
		return err
	}
	o.Log.Info("data plane removed", "pins", pins)
	return nil
}

// PinFolder is the folder of a node's data plane, unless Options.PinDir is given.
func PinFolder(node string) string { return filepath.Join(PinRoot, bpffs.FileName(node)) }

// pins is the folder of a node's data plane.
func (o Options) pins(node string) (string, error) {
	if o.PinDir == "" {
		return PinFolder(node), nil
	}
	return filepath.Abs(o.PinDir)
}

// Needs returns the requirements of a configuration on the machine.
func Needs(conf *config.Config) preflight.Needs {
	needs := preflight.Needs{Native: conf.Dataplane.XDPMode == config.XDPNative, Forwarding: conf.Dataplane.FilterPods}
	switch conf.Dataplane.Kind {
	case config.KindAuto:
		needs.IPVS = preflight.Optional
	case config.KindIPVS:
		needs.IPVS = preflight.Required
	case config.KindXDP:
	}
	if conf.BGP != nil {
		needs.Passwords = slices.ContainsFunc(conf.BGP.Peers, func(p bgp.Peer) bool { return p.Password != (bgp.Secret{}) })
	}
	onXDP := plane.Limits().Of(string(config.KindXDP))
	for _, s := range conf.Services {
		if needs.IPVS == preflight.Required || needs.IPVS != preflight.Unused && len(onXDP.Check(&s)) > 0 {
			needs.IPVS = max(needs.IPVS, preflight.Partial)
			needs.Schedulers = append(needs.Schedulers, s.Scheduler.String())
		}
		if s.Segment == (lb.Segment{}) {
			needs.VIPs = append(needs.VIPs, s.Address)
		}
		needs.VLAN = needs.VLAN || s.Segment.Type == lb.SegmentVLAN
		needs.QUIC = needs.QUIC || s.QUIC != nil
		needs.Probes = needs.Probes || s.Health != nil && !s.Forward.Translates() && s.Address.Is4()
		for _, b := range s.Backends {
			needs.VLAN = needs.VLAN || b.Segment.Type == lb.SegmentVLAN
		}
	}
	return needs
}
