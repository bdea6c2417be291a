// SPDX-License-Identifier: Apache-2.0

// Package plane opens the data plane of a balancer node, and removes the remains of others. Package balancer
// calls it.
package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"fairlead.io/fairlead/internal/agent"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/choose"
	"fairlead.io/fairlead/internal/dataplane/ipvs"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/observe"
)

// Limits returns the limits of services, for all kinds of data plane together:
// dataplane.Limits.Of selects one kind.
func Limits() dataplane.Limits {
	limits := xdp.Limits()
	limits.Or = []dataplane.Limits{ipvs.Limits()}
	return limits
}

// TryXDP is xdp.Try.
func TryXDP(quic bool) error { return xdp.Try(quic) }

// Open opens the data plane that the configuration selects.
func Open(conf *config.Config, pins string, events *observe.Recorder, log *slog.Logger) (agent.Plane, error) {
	p := &chosenPlane{interfaces: conf.Node.Interfaces}
	onXDP := choose.Option{
		Limits: xdp.Limits(),
		Open: func() (dataplane.DataPlane, error) {
			plane, err := openXDP(conf, pins, events, log)
			p.xdp = xdpPlane{plane, conf.Dataplane.FilterPods}
			return plane, err
		},
		Used: func() bool { return attachedXDP(pins) },
	}
	onIPVS := choose.Option{
		Limits: ipvs.Limits(),
		Open:   func() (dataplane.DataPlane, error) { return openIPVS(conf, log) },
		Used:   loadedIPVS,
	}
	var err error
	switch conf.Dataplane.Kind {
	case config.KindXDP:
		plane, err := openXDP(conf, pins, events, log)
		return alone{xdpPlane{plane, conf.Dataplane.FilterPods}, removeIPVS, log}, err
	case config.KindIPVS:
		p.Plane, err = choose.Open(log, onIPVS)
		return alone{p, func() error {
			if !attachedXDP(pins) {
				return nil
			}
			return removeXDP(pins)
		}, log}, err
	default:
		p.Plane, err = choose.Open(log, onXDP, onIPVS)
		return p, err
	}
}

func openXDP(conf *config.Config, pins string, events *observe.Recorder, log *slog.Logger) (*xdp.Plane, error) {
	plane, err := xdp.Open(xdp.Config{
		PinDir:      pins,
		Interfaces:  conf.Node.Interfaces,
		TunnelEnds:  conf.Node.TunnelEnds,
		TunnelPeers: conf.Node.TunnelPeers,
		FilterPods:  conf.Dataplane.FilterPods,
		Mode:        xdp.Mode(conf.Dataplane.XDPMode),
		NAT: xdp.NAT{
			Addresses: conf.Node.NAT.Addresses,
			FirstPort: conf.Node.NAT.Ports.First,
			LastPort:  conf.Node.NAT.Ports.Last,
		},
		Capacity: xdp.Capacity{
			Services: conf.Dataplane.Services, Backends: conf.Dataplane.Backends,
			Flows: conf.Dataplane.Flows, Sessions: conf.Dataplane.NATSessions,
		},
		Seed:       conf.Dataplane.HashSeed,
		Log:        log,
		Replaced:   events.ProgramReplaced,
		Unrecorded: events.FlowsUnrecorded,
	})
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w (fairlead preflight says what this process may not do)", err)
	}
	return plane, err
}

// openIPVS opens IPVS. The node becomes a router for services of its own file, or if the operator has chosen
// IPVS, and not for services of others.
func openIPVS(conf *config.Config, log *slog.Logger) (*ipvs.Plane, error) {
	return ipvs.Open(ipvs.Config{Log: log, Forwarding: conf.Dataplane.Kind == config.KindIPVS || len(conf.Services) > 0})
}

// attachedXDP reports whether an agent has left programs attached.
func attachedXDP(pins string) bool { return len(program.LinkPins(pins)) > 0 }

// loadedIPVS reports whether the kernel has IPVS, without which an agent left nothing in it.
func loadedIPVS() bool {
	_, err := os.Stat("/proc/thread-self/net/ip_vs")
	return err == nil
}

// Remove removes the data planes of former agents from the kernel.
func Remove(pins string) error { return errors.Join(removeXDP(pins), removeIPVS()) }

// removeXDP removes the pins of the XDP data plane.
func removeXDP(pins string) error {
	if err := xdp.Remove(pins); err != nil {
		return fmt.Errorf("pins %s: %w", pins, err)
	}
	return nil
}

// removeIPVS removes the IPVS services of earlier agents.
func removeIPVS() error {
	if !loadedIPVS() {
		return nil
	}
	return ipvs.Remove()
}

// xdpPlane is the XDP data plane of an agent.
type xdpPlane struct {
	*xdp.Plane
	filterPods bool
}

// Describe implements agent.Plane.
func (p xdpPlane) Describe() observe.DataPlane {
	d := observe.DataPlane{Kind: "xdp", Attachments: []observe.Attachment{}, FilterPods: p.filterPods}
	for _, a := range p.Attachments() {
		d.Attachments = append(d.Attachments, observe.Attachment{
			Interface: a.Interface, Mode: string(a.Mode), Reason: a.Reason, Adopted: a.Adopted,
		})
	}
	return d
}

// chosenPlane gives each service to a data plane that can serve it.
type chosenPlane struct {
	*choose.Plane
	interfaces []string
	// xdp is the zero xdpPlane if that isn't open.
	xdp xdpPlane
}

// Describe implements agent.Plane. Without XDP packets reach the data plane through the network
// stack, from all interfaces.
func (p *chosenPlane) Describe() (d observe.DataPlane) {
	if p.xdp.Plane != nil {
		d = p.xdp.Describe()
	} else {
		for _, name := range p.interfaces {
			d.Attachments = append(d.Attachments, observe.Attachment{Interface: name, Mode: "stack"})
		}
	}
	kinds, missing := p.Kinds()
	d.Kind = strings.Join(kinds, ", ")
	if missing != nil {
		d.Reason = missing.Error()
	}
	return d
}

// alone is a data plane in the place of any others that earlier agents used: these are
// removed once this one gets packets.
type alone struct {
	agent.Plane
	removeOthers func() error
	log          *slog.Logger
}

// Attach implements dataplane.Attacher.
func (p alone) Attach(ctx context.Context) error {
	if err := p.Plane.Attach(ctx); err != nil {
		return err
	}
	if err := p.removeOthers(); err != nil {
		p.log.Warn("data plane of an earlier agent not removed", slog.Any("error", err))
	}
	return nil
}
