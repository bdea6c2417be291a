// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"net"
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
)

// A busy UDP flow leaves a removed backend if that doesn't exist any more, and only then.
func TestEphemeralBackends(t *testing.T) {
	p := quietPlane(t, testPins(t), program.FeatureL2DSR|program.FeatureIPIP|program.FeatureNAT|program.FeatureDSR)
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

// A pod that has gone leaves the default route to its address: its connections are reset.
func TestLostRouteOfAPod(t *testing.T) {
	p, hops := newTestPlane(t)
	inNamespace(t, func() error {
		device, err := net.InterfaceByName("fl1")
		if err != nil {
			return err
		}
		for _, vip := range []netip.Addr{vip4, vip6} {
			c := natCaseOf(vip, lb.TCP)
			hops.handover = device.Index
			svc := c.service()
			if _, err := p.Update(t.Context(), svc); err != nil {
				return err
			}
			wantHandover(t, p, c, device.Index)
			next := *svc
			next.Backends = []lb.Backend{svc.Backends[0]}
			next.Backends[0].Address = next.Backends[0].Address.Next()
			if _, err := p.Update(t.Context(), &next); err != nil {
				return err
			}
			wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpPass, "forward_nat_handover")
			hops.handover = 0
			if _, err := p.Update(t.Context(), &next); err != nil {
				return err
			}
			wantVerdict(t, p, c.fromClient(tcpACK).build(), xdpTX, "answer_reset")
		}
		return nil
	})
}
