// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/sink"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// The network: the VIP, the backends behind the tester's end of each wire, and
// the clients, from the block that is set aside for benchmarks (RFC 2544,
// appendix C.2.2).
var (
	vipAddress    = netip.MustParseAddr("10.1.1.1")
	deviceAddress = netip.MustParsePrefix("10.0.2.1/24")
	firstBackend  = netip.MustParseAddr("10.0.2.21")
	lastBackend   = netip.MustParseAddr("10.0.2.36")
	clients       = netip.MustParseAddr("198.18.0.0")
)

const (
	testerHost      = "tester"
	deviceInterface = "eth0"
	// wireMTU leaves room for any encapsulation of the largest frame.
	wireMTU     = 1600
	downTimeout = 20 * time.Second
)

func vip(protocol lb.Protocol) lb.VIP {
	return lb.VIP{Address: vipAddress, Port: 80, Protocol: protocol}
}

// servers are what a device chooses from; they all have the MAC address of the
// tester's end of the wire.
func servers() []netip.Addr {
	var list []netip.Addr
	for a := firstBackend; a.Compare(lastBackend) <= 0; a = a.Next() {
		list = append(list, a)
	}
	return list
}

// routerMAC is where clients' frames come from: another station than the
// servers, or a balancer would send frames back to their sender.
func routerMAC() lb.MAC { return lb.MAC{2, 0, 0, 0, 3, 1} }

// wire joins the tester with one device.
type wire struct {
	device               device
	testerEnd            string // interface
	testerMAC, deviceMAC lb.MAC
	sink                 *sink.Sink
	plane                *xdp.Plane // of a Fairlead device
}

// testbed is the network with all devices at work.
type testbed struct {
	lab   *netlab.Lab
	wires []*wire
}

// newTestbed builds the network and starts the devices. On an error nothing is
// left.
func newTestbed(ctx context.Context, labs netlab.Labs, devices []device) (*testbed, error) {
	b := &testbed{}
	for i, d := range devices {
		b.wires = append(b.wires, &wire{
			device: d, testerEnd: "to-" + d.name,
			testerMAC: lb.MAC{2, 0, 0, 0, 1, byte(i)}, deviceMAC: lb.MAC{2, 0, 0, 0, 2, byte(i)},
		})
	}
	lab, err := labs.Up(ctx, fmt.Sprintf("bench-forward-%d", os.Getpid()), b.topology())
	if err != nil {
		return nil, err
	}
	b.lab = lab
	for _, w := range b.wires {
		if err := b.begin(ctx, w); err != nil {
			return nil, errors.Join(fmt.Errorf("device %s: %w", w.device.name, err), b.close())
		}
	}
	return b, nil
}

func (b *testbed) topology() netlab.Topology {
	tester := netlab.Host{Name: testerHost, Role: netlab.Client, Sysctls: quiet()}
	t := netlab.Topology{Name: "bench-forward"}
	for _, w := range b.wires {
		tester.Interfaces = append(tester.Interfaces, netlab.Interface{Name: w.testerEnd, MAC: w.testerMAC})
		host := netlab.Host{
			Name: w.device.host(), Role: w.device.role, Sysctls: quiet(),
			Interfaces: []netlab.Interface{{Name: deviceInterface, MAC: w.deviceMAC, Addresses: []netip.Prefix{deviceAddress}}},
		}
		for _, address := range servers() {
			host.Neighbours = append(host.Neighbours, netlab.Neighbour{Interface: deviceInterface, Address: address, MAC: w.testerMAC})
		}
		t.Hosts = append(t.Hosts, host)
		t.Links = append(t.Links, netlab.Link{
			A: netlab.End{Host: testerHost, Interface: w.testerEnd}, B: netlab.End{Host: host.Name, Interface: deviceInterface}, MTU: wireMTU,
		})
	}
	t.Hosts = append(t.Hosts, tester)
	return t
}

// quiet keeps the kernel from sending anything by itself (router solicitations,
// redirects), which the sink would count.
func quiet() map[string]string {
	return map[string]string{
		"net.ipv6.conf.default.disable_ipv6":   "1",
		"net.ipv6.conf.all.disable_ipv6":       "1",
		"net.ipv4.conf.all.send_redirects":     "0",
		"net.ipv4.conf.default.send_redirects": "0",
	}
}

// begin starts a device, and the sink at the end of its packets' way.
func (b *testbed) begin(ctx context.Context, w *wire) (err error) {
	host, end := testerHost, w.testerEnd
	if w.device.start == nil {
		host, end = w.device.host(), deviceInterface
	} else if w.plane, err = w.device.start(ctx, b.lab); err != nil {
		return err
	}
	return b.lab.Do(host, func() error {
		dev, err := net.InterfaceByName(end)
		if err != nil {
			return err
		}
		w.sink, err = sink.Attach(dev.Index)
		return err
	})
}

// close frees the devices and removes the network with all that is pinned in it, also when the run's context
// has ended.
func (b *testbed) close() error {
	var errs []error
	for _, w := range b.wires {
		if w.sink != nil {
			errs = append(errs, w.sink.Close())
		}
		if w.plane != nil {
			errs = append(errs, w.plane.Close())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	return errors.Join(append(errs, b.lab.Down(ctx))...)
}
