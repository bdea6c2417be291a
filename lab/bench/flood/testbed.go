// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/wire"
)

// The two services are ports of one address.
const (
	flooded uint16 = 8081
	other   uint16 = 8082
)

var (
	vip = netip.MustParseAddr("10.1.1.1")
	// forged is the first of the flood's source addresses, in the block reserved for
	// benchmarks (RFC 2544, appendix C.2.2).
	forged = netip.MustParseAddr("198.18.0.0")
)

const (
	servers = 2
	// flows is the number of the flood's flows, more than it has SYNs.
	flows = 1 << 24
	// limit of new flows a second of a limited service.
	limit = 1000
)

// subject is a balancer that is flooded.
type subject struct {
	name    string
	forward lb.Forward
	// tracking of both services; with lb.TrackingFull all flows are recorded.
	tracking lb.Tracking
	// limited is set if the flooded service has a limit of new flows.
	limited bool
	// datagrams is set if the flood is of datagrams, which the servers answer.
	datagrams bool
	// kernel is set if the kernel translates in Fairlead's place.
	kernel bool
}

// floodedVIP is the service that is flooded.
func (s *subject) floodedVIP() lb.VIP {
	v := lb.VIP{Address: vip, Port: flooded, Protocol: lb.TCP}
	if s.datagrams {
		v.Protocol = lb.UDP
	}
	return v
}

// opens are the services to which clients open connections.
func (s *subject) opens() []uint16 {
	if s.datagrams {
		return []uint16{other}
	}
	return []uint16{other, flooded}
}

func subjects() []subject {
	return []subject{
		{name: "nat", forward: lb.NAT},
		{name: "nat with a limit", forward: lb.NAT, limited: true},
		{name: "nat, answered datagrams", forward: lb.NAT, datagrams: true},
		{name: "dsr", forward: lb.DSR},
		{name: "dsr, answered datagrams", forward: lb.DSR, datagrams: true},
		{name: "l2dsr with records", forward: lb.L2DSR, tracking: lb.TrackingFull},
		{name: "kernel", forward: lb.NAT, kernel: true},
	}
}

// testbed is a lab with one balancer, which has two servers.
type testbed struct {
	*netlab.Lab // nil: not built
	of          subject
	silent      []net.Conn
}

// draw is "nodes" for pods of the balancer's own node, else "ecmp".
func draw(of subject) (topology netlab.Topology, err error) {
	if of.forward == lb.DSR {
		topology, err = netlab.Nodes(netlab.NodesOptions{Nodes: 1, Forward: lb.DSR})
	} else {
		topology, err = netlab.ECMP(netlab.ECMPOptions{Forward: of.forward, Balancers: 1, Servers: servers})
	}
	if err != nil {
		return topology, err
	}
	web := topology.Services[0]
	var services []lb.Service
	for _, at := range []lb.VIP{of.floodedVIP(), {Address: vip, Port: other, Protocol: lb.TCP}} {
		s := lb.Service{
			Name: fmt.Sprint("port", at.Port), VIP: at,
			Forward: of.forward, Tracking: of.tracking, MinHealthy: 1,
		}
		if of.limited && at.Port == flooded {
			s.Limits.NewFlows = limit
		}
		for _, b := range web.Backends {
			b.Port = at.Port
			s.Backends = append(s.Backends, b)
		}
		services = append(services, s)
	}
	topology.SetServices(services)
	topology.Probes = nil
	n := 0
	for i := range topology.Hosts {
		h := &topology.Hosts[i]
		if h.Role != netlab.Server {
			continue
		}
		at := web.Backends[n].Address
		if !of.forward.Translates() {
			at = vip
		}
		h.Processes = []netlab.Process{{Name: "echo", Args: []string{
			"fairlab", "lab", "echo", "--name", h.Name,
			"--listen", netip.AddrPortFrom(at, flooded).String(), "--listen", netip.AddrPortFrom(at, other).String(),
		}}}
		n++
	}
	if of.kernel {
		topology.KubeProxy(services)
	}
	return topology, nil
}

// step is the time in which a portion of the flood is sent, minRate the rate at which a
// portion is as large as wire.Sender wants it.
const (
	step    = 50 * time.Millisecond
	minRate = wire.MinFrames * int(time.Second/step)
)

// flood sends SYNs or datagrams from the router to the balancer and returns their rate.
func (t *testbed) flood(ctx context.Context, rate int, duration time.Duration) (achieved float64, err error) {
	var balancer net.HardwareAddr
	err = bench.OnInterface(t.Lab, "lb1", "eth0", func(dev *net.Interface) error {
		balancer = dev.HardwareAddr
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = bench.OnInterface(t.Lab, "router", "eth1", func(dev *net.Interface) error {
		sender, err := wire.NewSender(dev.Index, wire.Load{
			Destination: lb.MAC(balancer), Source: lb.MAC(dev.HardwareAddr), Client: forged,
			VIP: t.of.floodedVIP(), VIPs: 1, Flows: flows, Size: 64, SYN: true,
		})
		if err != nil {
			return err
		}
		achieved, err = send(ctx, sender, rate, duration)
		return errors.Join(err, sender.Close())
	})
	return achieved, err
}

// send sends a portion in each step, or as fast as it can.
func send(ctx context.Context, sender *wire.Sender, rate int, duration time.Duration) (achieved float64, err error) {
	tick := time.NewTicker(step)
	defer tick.Stop()
	begin := time.Now()
	for time.Since(begin) < duration {
		if _, err := sender.Send(rate / int(time.Second/step)); err != nil {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
	sent, err := sender.Sent()
	return float64(sent) / time.Since(begin).Seconds(), err
}
