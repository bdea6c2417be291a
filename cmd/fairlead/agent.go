// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/drain"
	"fairlead.io/fairlead/internal/event"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source/file"
)

const (
	defaultConfig = "/etc/fairlead/fairlead.yaml"
	// pinRoot has a folder for each node's data plane.
	pinRoot = "/sys/fs/bpf/fairlead"
)

// agentOptions are the flags of "agent".
type agentOptions struct {
	config, socket, pinDir string
	remove                 bool
	kubernetes             kubernetesOptions
	format                 logFormat
}

func newAgentCommand(e env) *cobra.Command {
	o := agentOptions{format: logText}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a balancer node",
		Long: `Run a balancer node as its configuration file says. The file is followed as it
changes; SIGHUP and "fairlead reload" read it at once. SIGTERM drains the node
and withdraws its routes: the agent ends when no more packets come, or after
node.drainTimeout; another SIGTERM, or SIGINT, ends it at once. When the agent has
ended, also by SIGKILL, packets go on being balanced, and the next agent takes
over. Routers that support graceful restart keep routes that were not withdrawn.

With --kubernetes services, peers and how addresses are announced come from the
cluster, and the file has only what is the node's own to say; it may be empty. The
last state is kept, and served by an agent that starts while the API server is
away. SIGTERM then hands over to the node's next agent, unless the node leaves: it
is in no group any more, cordoned, deleted or shutting down. When the DaemonSet of
the agents is gone the node leaves too, and nothing is left in its kernel.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", defaultConfig, "configuration file")
	flags.StringVar(&o.pinDir, "pin-dir", "", "folder in a BPF file system that keeps the data plane (default: "+pinRoot+"/NODE)")
	flags.BoolVar(&o.remove, "remove", false, "take away what a stopped agent left in the kernel, and exit")
	o.kubernetes.register(flags)
	flags.Var(&o.format, "log-format", "text or json")
	registerSocket(flags, &o.socket)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		log := o.format.logger(e.stderr)
		if o.remove {
			return o.removeDataPlane(e, log)
		}
		return o.run(cmd.Context(), e, log)
	}
	return cmd
}

// run wires an agent on the XDP data plane and runs it until a signal ends it.
func (o agentOptions) run(ctx context.Context, e env, log *slog.Logger) (err error) {
	started := time.Now()
	ctx, terminate, release := signalled(ctx)
	defer release()
	source, err := o.open(ctx, e, log)
	if err != nil {
		return err
	}
	claim, err := observe.ClaimSocket(o.socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Release()) }()
	config := source.Config()
	pins, err := o.pins(config.Node.Name)
	if err != nil {
		return err
	}
	page, err := listenPage(config.Observe, log)
	if err != nil {
		return err
	}
	if page != nil {
		defer page.Close() // if nothing comes to serving it
	}
	tell := event.NewTeller(log)
	dp, err := xdp.Open(xdp.Config{
		PinDir:     pins,
		Interfaces: config.Node.Interfaces,
		TunnelEnds: config.Node.TunnelEnds,
		Mode:       xdp.Mode(config.Dataplane.XDPMode),
		NAT: xdp.NAT{
			Addresses: config.Node.NAT.Addresses,
			FirstPort: config.Node.NAT.Ports.First,
			LastPort:  config.Node.NAT.Ports.Last,
		},
		Capacity: xdp.Capacity{Flows: config.Dataplane.Flows, Sessions: config.Dataplane.NATSessions},
		Seed:     config.Dataplane.HashSeed,
		Log:      log,
		Replaced: tell.ProgramReplaced,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dp.Close()) }()
	a := newAgent(parts{
		started: started, source: source, page: page, drains: drain.Path(o.socket), tell: tell, log: log,
		speaker: openSpeaker(config.BGP, log),
		plane: plane{
			DataPlane:   dp,
			kind:        "xdp",
			paths:       dp,
			attach:      dp.Attach,
			attachments: func() []observe.Attachment { return attachments(dp.Attachments()) },
			trace:       dp.Trace,
			flows:       dp.Flows,
			countFlows:  dp.CountFlows,
			refused:     dp.Refused(),
		},
	})
	if err := a.run(ctx, claim, terminate); err != nil {
		return err
	}
	if a.forever {
		return errors.Join(dp.Close(), o.leaveNothing(source, pins, log))
	}
	log.Info("agent stopped, the kernel goes on balancing", "pins", pins)
	return nil
}

// leaveNothing makes the node what it was before its first agent.
func (o agentOptions) leaveNothing(source source, pins string, log *slog.Logger) error {
	if err := xdp.Remove(pins); err != nil {
		return fmt.Errorf("pins %s: %w", pins, err)
	}
	if o.pinDir == "" {
		// Other nodes of this kernel, in tests, may have theirs there.
		if err := os.Remove(pinRoot); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	if err := os.Remove(drain.Path(o.socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := source.forget(); err != nil {
		return err
	}
	log.Info("agent stopped for good, nothing is balanced any more", "pins", pins)
	return nil
}

// open begins to follow where the agent learns what it is to do, until ctx ends.
func (o agentOptions) open(ctx context.Context, e env, log *slog.Logger) (source, error) {
	if o.kubernetes.on {
		return openKubernetes(ctx, e, o.config, o.kubernetes, log)
	}
	settings, err := openConfig(e, o.config, log)
	if err != nil {
		return nil, err
	}
	return fileSource{settings}, nil
}

// openConfig reads the configuration file.
func openConfig(e env, path string, log *slog.Logger) (*file.Source[*file.Config], error) {
	source, err := file.Open(path, xdp.Limits(), log)
	if err != nil {
		return nil, printedConfigError(e, err)
	}
	return source, nil
}

// printedConfigError prints all errors of a configuration file as they are: each
// begins with its place. What is not such an error is returned.
func printedConfigError(e env, err error) error {
	if wrong, ok := errors.AsType[file.Errors](err); ok {
		fmt.Fprintln(e.stderr, wrong)
		return exitError(1)
	}
	return err
}

// pins is where the data plane of a node is pinned.
func (o agentOptions) pins(node string) (string, error) {
	if o.pinDir == "" {
		return filepath.Join(pinRoot, node), nil
	}
	return filepath.Abs(o.pinDir)
}

// removeDataPlane takes away what a stopped agent left. The socket is claimed
// so that no running agent loses its data plane.
func (o agentOptions) removeDataPlane(e env, log *slog.Logger) (err error) {
	node := ""
	switch {
	case o.pinDir != "":
	case o.kubernetes.on:
		if node, err = o.kubernetes.node(); err != nil {
			return err
		}
	default:
		source, err := openConfig(e, o.config, log)
		if err != nil {
			return err
		}
		node = source.Config().Node.Name
	}
	pins, err := o.pins(node)
	if err != nil {
		return err
	}
	claim, err := observe.ClaimSocket(o.socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Release()) }()
	if err := xdp.Remove(pins); err != nil {
		return fmt.Errorf("pins %s: %w", pins, err)
	}
	log.Info("data plane removed", "pins", pins)
	return nil
}

// attachments says in observe's words to what the data plane is attached.
func attachments(list []xdp.Attachment) []observe.Attachment {
	shown := make([]observe.Attachment, len(list))
	for i, a := range list {
		shown[i] = observe.Attachment{Interface: a.Interface, Mode: string(a.Mode), Reason: a.Reason, Adopted: a.Adopted}
	}
	return shown
}
