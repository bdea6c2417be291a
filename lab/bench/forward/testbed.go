// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/safchain/ethtool"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/wire"
)

// The network: the VIP, the backends at the tester's end of the link, and the
// clients, in the block reserved for benchmarks (RFC 2544, appendix C.2.2).
var (
	vipAddress    = netip.MustParseAddr("10.1.1.1")
	deviceAddress = netip.MustParsePrefix("10.0.2.1/16")
	firstBackend  = netip.MustParseAddr("10.0.2.21")
	lastBackend   = netip.MustParseAddr("10.0.2.36")
	podGateway    = netip.MustParsePrefix("10.244.0.1/24")
	firstPod      = netip.MustParseAddr("10.244.0.21")
	lastPod       = netip.MustParseAddr("10.244.0.36")
	clients       = netip.MustParseAddr("198.18.0.0")
)

// MAC addresses. The source of clients' frames isn't the servers' address, or a balancer would
// send frames back to their sender.
var (
	testerMAC = lb.MAC{2, 0, 0, 0, 1, 1}
	deviceMAC = lb.MAC{2, 0, 0, 0, 2, 1}
	podsMAC   = lb.MAC{2, 0, 0, 0, 4, 1}
	routerMAC = lb.MAC{2, 0, 0, 0, 3, 1}
)

const (
	testerHost      = "tester"
	deviceHost      = "device"
	deviceInterface = "eth0"
	podInterface    = "veth0"
	// wireMTU leaves room for any encapsulation of the largest frame.
	wireMTU = 1600
	// clientVLAN is the VLAN of clients' frames in the scenarios.
	clientVLAN = 4094
)

// servers are the backends; all have the MAC address of the tester's end of their link.
func (d device) servers() (list []netip.Addr) {
	first, last := firstBackend, lastBackend
	if d.pods {
		first, last = firstPod, lastPod
	}
	for a := first; a.Compare(last) <= 0; a = a.Next() {
		list = append(list, a)
	}
	return list
}

// testbed is a tester with one device.
type testbed struct {
	device device
	lab    *netlab.Lab // nil: not built
	sink   *wire.Sink
	plane  dataplane.DataPlane // of a Fairlead device
}

// build builds the lab and starts the device, unless that has been done.
func (t *testbed) build(ctx context.Context, labs netlab.Labs) (err error) {
	if t.lab != nil {
		return nil
	}
	if t.lab, err = labs.Up(ctx, fmt.Sprintf("forward-%d-%s", os.Getpid(), t.device.name), t.device.topology()); err != nil {
		return err
	}
	if t.device.in(smallOnTwo) {
		err = t.addQueues()
	}
	host, end := testerHost, deviceInterface
	switch {
	case t.device.start == nil:
		host = deviceHost
	case t.device.pods:
		end = podInterface
	}
	if err == nil && t.device.start != nil {
		err = bench.OnInterface(t.lab, deviceHost, deviceInterface, func(dev *net.Interface) error {
			t.plane, err = t.device.start(ctx, t, dev.Index)
			return err
		})
	}
	if err == nil {
		err = bench.OnInterface(t.lab, host, end, func(dev *net.Interface) error {
			t.sink, err = wire.AttachSink(dev.Index)
			return err
		})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("device %s: %w", t.device.name, err), t.remove(context.WithoutCancel(ctx)))
	}
	return nil
}

// addQueues gives both ends of the link a queue for each of two processors. The number of sending
// queues may not exceed the other end's receiving ones.
func (t *testbed) addQueues() error {
	for _, channels := range []ethtool.Channels{{RxCount: 2, TxCount: 1}, {RxCount: 2, TxCount: 2}} {
		for _, host := range []string{testerHost, deviceHost} {
			err := t.lab.Do(host, func() error {
				tool, err := ethtool.NewEthtool()
				if err == nil {
					_, err = tool.SetChannels(deviceInterface, channels)
					tool.Close()
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: queues: %w", host, err)
			}
		}
	}
	return nil
}

// remove removes the device and the lab, if they were built.
func (t *testbed) remove(ctx context.Context) error {
	if t.lab == nil {
		return nil
	}
	var errs []error
	if t.sink != nil {
		errs = append(errs, t.sink.Close())
	}
	if t.plane != nil {
		errs = append(errs, t.plane.Close())
	}
	errs = append(errs, t.lab.Down(ctx))
	t.lab, t.sink, t.plane = nil, nil, nil
	return errors.Join(errs...)
}

// topology connects the tester with the device, and with the device's pods by a second link,
// whose end at the tester has them.
func (d device) topology() netlab.Topology {
	tester := netlab.Host{
		Name: testerHost, Role: netlab.Client, Sysctls: quiet(),
		Interfaces: []netlab.Interface{{Name: deviceInterface, MAC: testerMAC}},
	}
	host := netlab.Host{
		Name: deviceHost, Role: d.role, Sysctls: quiet(), Rules: d.rules,
		Interfaces: []netlab.Interface{{Name: deviceInterface, MAC: deviceMAC, Addresses: []netip.Prefix{deviceAddress}}},
	}
	towards := netlab.Neighbour{Interface: deviceInterface, MAC: testerMAC}
	if d.pods {
		towards = netlab.Neighbour{Interface: podInterface, MAC: podsMAC}
		tester.Interfaces = append(tester.Interfaces, netlab.Interface{Name: podInterface, MAC: podsMAC})
		host.Interfaces = append(host.Interfaces, netlab.Interface{Name: podInterface, Addresses: []netip.Prefix{podGateway}})
		host.Sysctls["net.ipv4.ip_forward"] = "1"
	}
	for _, address := range d.servers() { // servers of scenarios have their MAC addresses in services
		towards.Address = address
		host.Neighbours = append(host.Neighbours, towards)
	}
	t := netlab.Topology{Name: "bench-forward", Hosts: []netlab.Host{tester, host}}
	for _, i := range host.Interfaces {
		t.Links = append(t.Links, netlab.Link{A: netlab.End{Host: testerHost, Interface: i.Name}, B: netlab.End{Host: deviceHost, Interface: i.Name}, MTU: wireMTU})
	}
	return t
}

// quiet stops the kernel's own packets (router solicitations, redirects), which the
// sink would count.
func quiet() map[string]string {
	return map[string]string{
		"net.ipv6.conf.default.disable_ipv6":   "1",
		"net.ipv6.conf.all.disable_ipv6":       "1",
		"net.ipv4.conf.all.send_redirects":     "0",
		"net.ipv4.conf.default.send_redirects": "0",
	}
}
