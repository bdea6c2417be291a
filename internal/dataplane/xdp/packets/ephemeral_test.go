// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
)

// A busy UDP flow leaves a removed backend if that doesn't exist any more, and only then.
func TestEphemeralBackends(t *testing.T) {
	p := quietPlane(t, "", program.FeatureL2DSR|program.FeatureIPIP|program.FeatureNAT|program.FeatureDSR)
	for _, forward := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.NAT, lb.DSR} {
		for _, ephemeral := range []bool{false, true} {
			t.Run(forward.String(), func(t *testing.T) {
				svc := manyBackends(vip4, 4)
				svc.Protocol, svc.Forward, svc.Ephemeral = lb.UDP, forward, ephemeral
				all := svc.Backends
				update(t, p, svc)
				send := func(client netip.AddrPort) lb.BackendID {
					id, ok := chosen(t, p, svc.VIP, client, all)
					if !ok {
						t.Fatalf("%s: no backend", client)
					}
					return id
				}
				at := map[netip.AddrPort]lb.BackendID{}
				for i := range 40 {
					client := netip.AddrPortFrom(client4.Addr(), uint16(1000+i))
					at[client] = send(client)
				}
				fewer := *svc
				fewer.Backends = all[1:]
				update(t, p, &fewer)
				stayed := 0
				for client, was := range at {
					switch is := send(client); {
					case is == all[0].ID():
						stayed++
					case was != all[0].ID() && is != was:
						t.Errorf("%s moved from %s to %s", client, was, is)
					}
				}
				// Without translation and learning, the ring moves unrecorded flows anyway.
				if want := !ephemeral && forward.Translates(); (stayed > 0) != want {
					t.Errorf("ephemeral %v: %d flows are with the removed backend", ephemeral, stayed)
				}
				remove(t, p, svc.VIP)
				endAllSessions(t, p)
			})
		}
	}
}

// podEvent is an event in the life of a service's pod.
type podEvent int

const (
	ends podEvent = iota // as it says itself
	leaves
	returns
	losesRoute // the default route takes its place
	losesAllRoutes
	hasRoute     // also if it is another pod's
	leavesUnseen // as no agent runs, with its route
)

// A pod that doesn't exist any more has no connections: their segments are reset, a SYN begins a new
// one with another pod, and the next pod with its address gets none of its packets. A pod that
// leaves its service and lives keeps its connections.
func TestPodWithoutConnections(t *testing.T) {
	for _, one := range []struct {
		name   string
		events []podEvent
		lives  bool
	}{
		{"left", []podEvent{leaves}, true},
		{"left and returned", []podEvent{leaves, returns}, true},
		{"is ending", []podEvent{ends}, true},
		{"ended", []podEvent{ends, leaves}, false},
		{"ended, address used again", []podEvent{ends, leaves, returns}, false},
		{"route lost", []podEvent{leaves, losesRoute}, false},
		{"all routes lost, then the default route", []podEvent{leaves, losesAllRoutes, losesRoute}, false},
		{"route of another pod", []podEvent{leaves, losesRoute, hasRoute}, false},
		{"route of another pod of the service", []podEvent{leaves, losesAllRoutes, hasRoute, returns}, false},
		{"route lost while no agent ran", []podEvent{leavesUnseen, losesRoute}, false},
		{"all routes lost while listed", []podEvent{losesAllRoutes, leaves, losesRoute}, false},
	} {
		for _, vip := range []netip.Addr{vip4, vip6} {
			t.Run(one.name+"/"+vip.String(), func(t *testing.T) { // each with the one plane of this process
				c := natCaseOf(vip, lb.TCP)
				c.afterPodEvents(t, one.events, func(p *xdp.Unattached) {
					verdict, exit := exitOf(t, p, c.fromClient(tcpACK).build())
					if !one.lives && (verdict != xdpTX || exit != "answer_reset") || one.lives && exit != "forward_nat_handover" {
						t.Errorf("a segment has exit %s", exit)
					}
					if _, exit = exitOf(t, p, c.fromClient(tcpSYN).build()); exit != "forward_nat_handover" {
						t.Errorf("a SYN has exit %s", exit)
					}
				})
			})
		}
	}
	c := natCaseOf(vip4, lb.TCP)
	c.keep = true
	c.afterPodEvents(t, []podEvent{losesRoute}, func(p *xdp.Unattached) {
		if _, exit := exitOf(t, p, c.fromClient(tcpSYN).build()); exit != "forward_nat_handover" {
			t.Errorf("DSR, the default route in place of a listed pod's: a SYN has exit %s", exit)
		}
	})
}

// exitOf returns the verdict and the exit of a frame.
func exitOf(t *testing.T, p *xdp.Unattached, frame []byte) (verdict uint32, exit string) {
	t.Helper()
	for name := range exits(t, p, func() { verdict, _ = run(t, p, frame) }) {
		exit = name
	}
	return verdict, exit
}

// afterPodEvents opens a connection to a pod, and calls check once events have happened to the pod,
// each reported twice, and another pod is there.
func (c natCase) afterPodEvents(t *testing.T, events []podEvent, check func(*xdp.Unattached)) {
	t.Helper()
	p, hops := newTestPlane(t)
	pins := ""
	if slices.Contains(events, leavesUnseen) {
		pins = testPins(t)
		p = openQuietPlane(t, pins, hops)
	}
	inNamespace(t, func() error {
		device, err := net.InterfaceByName("fl1")
		if err != nil {
			return err
		}
		hops.handover = device.Index
		svc := c.service()
		pod, listed := svc.Backends[0], true
		update := func() error {
			next := *svc
			next.Backends = []lb.Backend{pod, {Address: pod.Address.Next(), Port: pod.Port, Weight: 1}}
			if !listed {
				next.Backends = next.Backends[1:]
			}
			_, err := p.Update(t.Context(), &next)
			return err
		}
		if _, err := p.Update(t.Context(), svc); err != nil {
			return err
		}
		wantHandover(t, p, c, device.Index)
		for _, event := range events {
			switch event {
			case ends:
				pod.Ending, pod.Weight = true, 0
			case leaves:
				listed = false
			case leavesUnseen:
				listed, hops.noRoute = false, pod.Address
				must(t, p.Close())
				p = openQuietPlane(t, pins, hops)
			case returns:
				listed, pod.Ending, pod.Weight = true, false, 1
			case losesRoute:
				hops.noRoute, hops.byDefault = netip.Addr{}, pod.Address
			case losesAllRoutes:
				hops.noRoute = pod.Address
			case hasRoute:
				hops.noRoute, hops.byDefault = netip.Addr{}, netip.Addr{}
			}
			if err := errors.Join(update(), update()); err != nil {
				return err
			}
		}
		check(p)
		return nil
	})
}
