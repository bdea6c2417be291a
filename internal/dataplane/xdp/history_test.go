// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	builder "fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fuzzrand"
)

// balanced is a plane with one service whose clock the test sets. It should decide
// like the model of dataplanetest.History.
type balanced struct {
	t       *testing.T
	dir     string
	hops    lossyHops
	plane   *Plane
	program *ebpf.Program
	service lb.Service
	clients []netip.AddrPort
	ids     map[lb.MAC]lb.BackendID
	// syns are the sequence numbers of the flows' latest SYNs that were sent to a backend.
	syns map[int]uint32
	// sent counts the packets to all backends, and to each since it has a slot.
	sent     uint64
	sentTo   map[lb.BackendID]uint64
	compared int
}

// newBalanced returns a balancer of a service whose clients and backends are to
// be set.
func newBalanced(t *testing.T, svc lb.Service) *balanced {
	b := &balanced{t: t, dir: testPins(t), hops: lossyHops{lost: map[netip.Addr]bool{}}, service: svc, ids: map[lb.MAC]lb.BackendID{}, syns: map[int]uint32{}, sentTo: map[lb.BackendID]uint64{}}
	b.open()
	return b
}

// open opens a plane that adopts the tables, with a program that is not replaced.
// As no packet is under way while tables change, its grace periods take no time.
func (b *balanced) open() {
	p := openQuietPlane(b.t, b.dir, b.hops)
	loaded, err := p.programs.Load(program.FeatureL2DSR)
	if err != nil {
		b.t.Fatal(err)
	}
	b.plane, b.program = p, loaded
}

// Update implements dataplanetest.Subject.
func (b *balanced) Update(backends []dataplanetest.Backend, reachable func(netip.AddrPort) bool) error {
	_, err := b.plane.Update(context.Background(), b.serve(backends, reachable))
	return err
}

// serve returns the service with these backends, and makes the others unreachable.
func (b *balanced) serve(backends []dataplanetest.Backend, reachable func(netip.AddrPort) bool) *lb.Service {
	svc := b.service
	svc.Backends = nil
	for _, one := range backends {
		svc.Backends = append(svc.Backends, lb.Backend{Address: one.ID.Addr(), Port: one.ID.Port(), Weight: one.Weight})
	}
	for _, id := range b.ids {
		b.hops.lost[id.Addr()] = !reachable(id)
	}
	return &svc
}

// Pass implements dataplanetest.Subject: it moves all timestamps into the past.
func (b *balanced) Pass(d time.Duration) error {
	b.plane.epoch = b.plane.epoch.Add(-d)
	for _, flows := range []*ebpf.Map{b.plane.tables.Maps.Flows, b.plane.tables.Maps.FlowsPending} {
		seen := map[uint64]table.BalancerFlow{}
		err := table.EachRecord(flows, func(key uint64, flow *table.BalancerFlow) { seen[key] = *flow })
		for key, flow := range seen {
			flow.Seen -= uint32(d >> table.FlowTimeShift)
			err = errors.Join(err, flows.Update(key, flow, ebpf.UpdateExist))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Sweep implements dataplanetest.Subject: a change has to be over for it.
func (b *balanced) Sweep() error {
	if s := b.plane.services[b.service.VIP]; s != nil {
		if err := b.plane.tables.Grace.Wait(b.t.Context(), s.Flipped); err != nil {
			return err
		}
	}
	return b.plane.sweeper.sweep(b.plane.clock())
}

// Restart implements dataplanetest.Subject: one agent ends, the next adopts its tables.
func (b *balanced) Restart() error {
	err := b.plane.tables.Grace.Wait(b.t.Context(), b.plane.tables.Grace.Now())
	if err = errors.Join(err, b.plane.sweeper.retireTraffic(), b.plane.Close()); err != nil {
		return err
	}
	b.open()
	return nil
}

// Send implements dataplanetest.Subject.
func (b *balanced) Send(flow int, phase dataplanetest.Phase) (id netip.AddrPort, ok bool, err error) {
	syn := b.syns[flow]
	if phase == dataplanetest.Opening {
		syn += 1 << 20
	}
	in, err := phasePacket(b.service.VIP, b.clients[flow], phase, syn)
	if err != nil {
		return id, false, err
	}
	verdict, frame, err := testRun(b.program, in)
	switch {
	case err != nil || verdict == xdpDrop:
		return id, false, err
	case verdict != xdpTX:
		return id, false, fmt.Errorf("verdict %d", verdict)
	}
	b.syns[flow] = syn
	id, ok = b.ids[lb.MAC(frame[:6])]
	if !ok {
		err = fmt.Errorf("frame for an unknown backend: % x", frame[:14])
	}
	b.sent++
	b.sentTo[id]++
	return id, ok, err
}

// compareTraffic compares counters with the packets sent, also while counters of backends
// that left, or whose counters moved, are not retired yet.
func (b *balanced) compareTraffic() error {
	s := b.plane.services[b.service.VIP]
	slots := slotNumbers(s.now.slots)
	for id := range b.sentTo {
		if _, found := slots[id]; !found {
			delete(b.sentTo, id)
		}
	}
	if b.compared++; b.compared%3 != 0 {
		return nil
	}
	stats, err := b.plane.Stats(b.t.Context())
	if err != nil {
		return err
	}
	all := stats.Services[b.service.VIP]
	if all.Packets != b.sent {
		return fmt.Errorf("%d packets are counted, %d were sent", all.Packets, b.sent)
	}
	for i, one := range all.Backends {
		if got, want := all.Shares[i].Packets, b.sentTo[one.ID()]; got != want {
			return fmt.Errorf("%d packets are counted for %s, %d were sent", got, one.ID(), want)
		}
	}
	return nil
}

// State implements dataplanetest.Subject.
func (b *balanced) State() (dataplanetest.State, error) {
	s := b.plane.services[b.service.VIP]
	state := dataplanetest.State{Unstable: s.now.ring.Unstable(), Seats: len(slotNumbers(s.now.slots))}
	stats, err := b.plane.tables.ReadFlowStats()
	if err != nil {
		return state, err
	}
	if err := b.compareTraffic(); err != nil {
		return state, err
	}
	one := stats[s.Number.Base]
	state.Counts = dataplanetest.Counts{Hits: one.Hits, Misses: one.Misses, Inserts: one.Inserts}
	return state, b.plane.tables.EachFlow(func(uint64, *table.BalancerFlow) { state.Recorded++ })
}

// phasePacket is a flow's packet of a phase. A segment follows the SYN of that number.
func phasePacket(vip lb.VIP, client netip.AddrPort, phase dataplanetest.Phase, syn uint32) ([]byte, error) {
	packet := builder.Description{From: client, To: netip.AddrPortFrom(vip.Address, vip.Port), Protocol: builder.UDP}
	if vip.Protocol == lb.TCP {
		packet.Protocol = builder.TCP
		packet.Flags = map[dataplanetest.Phase]builder.Flags{dataplanetest.Opening: builder.SYN, dataplanetest.Open: builder.ACK}[phase]
	}
	frame, err := packet.Build()
	copy(frame, selfTestHop.Source[:])
	if vip.Protocol == lb.TCP && err == nil {
		if phase == dataplanetest.Open {
			syn++
		}
		seq := 14 + 20 + 4 // Ethernet, IPv4, ports
		if vip.Address.Is6() {
			seq += 20
		}
		binary.BigEndian.PutUint32(frame[seq:], syn)
	}
	return frame, err
}

// shape returns the dimensions of the histories of a balancer's service.
func (b *balanced) shape(flows, backends int) dataplanetest.Shape {
	svc := &b.service
	shape := dataplanetest.Shape{Datagrams: svc.Protocol == lb.UDP, Learn: svc.Learn, Full: svc.Tracking == lb.TrackingFull}
	for i := range flows {
		client := client4
		if svc.Address.Is6() {
			client = client6
		}
		client = netip.AddrPortFrom(client.Addr(), uint16(2000+i))
		for range i % 10 { // other sources, for affinity to the client
			client = netip.AddrPortFrom(client.Addr().Next(), client.Port())
		}
		b.clients = append(b.clients, client)
		shape.Flows = append(shape.Flows, dataplanetest.Flow{
			Key:   dataplanetest.FlowHash(1, svc.VIP, client, lb.AffinityFlow),
			Place: uint32(dataplanetest.FlowHash(1, svc.VIP, client, svc.Affinity) >> 32),
		})
	}
	for i := range backends {
		id := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 2, byte(21 + i)}), svc.Port)
		b.ids[selfTestMAC(id.Addr())] = id
		shape.Backends = append(shape.Backends, id)
	}
	return shape
}

// historyServices are services of every kind that tracking distinguishes.
func historyServices() map[string]lb.Service {
	all := map[string]lb.Service{}
	for family, vip := range map[string]netip.Addr{"ipv4": vip4, "ipv6": vip6} {
		for _, affinity := range []lb.Affinity{lb.AffinityFlow, lb.AffinityClient} {
			for _, tracking := range []lb.Tracking{lb.TrackingMinimal, lb.TrackingFull} {
				for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
					svc := lb.Service{
						Name: "web", VIP: lb.VIP{Address: vip, Port: 80, Protocol: protocol},
						Forward: lb.L2DSR, Affinity: affinity, Tracking: tracking, IdleTimeout: dataplanetest.Idle, MinHealthy: 1,
					}
					if protocol == lb.UDP {
						svc.Learn = dataplanetest.Learn
					}
					all[fmt.Sprintf("%s/%s/%s/%s", family, protocol, affinity, tracking)] = svc
				}
			}
		}
	}
	return all
}

// The program and the agent agree with the model in every packet and count over
// random histories, including restarts of the agent, and keep the guarantees to
// clients.
func TestHistories(t *testing.T) {
	const steps = 150
	services := historyServices()
	for name, svc := range services {
		t.Run(name, func(t *testing.T) {
			seed := fuzzrand.Seed(t)
			b := newBalanced(t, svc)
			shape := b.shape(24, 7)
			must(t, dataplanetest.NewHistory(rand.New(rand.NewPCG(seed, 0)), shape, b).Run(steps))
		})
	}
	fuzzrand.Covered(t, len(services), len(services)*steps)
}
