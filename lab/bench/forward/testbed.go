// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/wire"
)

// The network: the VIP, the backends at the tester's end of each link, and the
// clients, in the block reserved for benchmarks (RFC 2544, appendix C.2.2).
var (
	vipAddress    = netip.MustParseAddr("10.1.1.1")
	deviceAddress = netip.MustParsePrefix("10.0.2.1/24")
	firstBackend  = netip.MustParseAddr("10.0.2.21")
	lastBackend   = netip.MustParseAddr("10.0.2.36")
	podGateway    = netip.MustParsePrefix("10.244.0.1/24")
	firstPod      = netip.MustParseAddr("10.244.0.21")
	clients       = netip.MustParseAddr("198.18.0.0")
)

const (
	testerHost      = "tester"
	deviceInterface = "eth0"
	podInterface    = "veth0"
	// wireMTU leaves room for any encapsulation of the largest frame.
	wireMTU     = 1600
	downTimeout = 20 * time.Second
)

func vip(protocol lb.Protocol) lb.VIP {
	return lb.VIP{Address: vipAddress, Port: 80, Protocol: protocol}
}

// servers are the backends; all have the MAC address of the tester's end of their link.
func (d device) servers() []netip.Addr {
	var list []netip.Addr
	pod := firstPod
	for a := firstBackend; a.Compare(lastBackend) <= 0; a = a.Next() {
		if d.pods {
			list = append(list, pod)
			pod = pod.Next()
			continue
		}
		list = append(list, a)
	}
	return list
}

// routerMAC is the source of clients' frames. It isn't the servers' address, or a
// balancer would send frames back to their sender.
func routerMAC() lb.MAC { return lb.MAC{2, 0, 0, 0, 3, 1} }

// link connects the tester with one device.
type link struct {
	device               device
	testerEnd            string // interface
	testerMAC, deviceMAC lb.MAC
	podsEnd              string // interface with the pods of a device that has some
	podsMAC              lb.MAC
	sink                 *wire.Sink
	plane                dataplane.DataPlane // of a Fairlead device
}

// testbed is the network with all running devices.
type testbed struct {
	lab   *netlab.Lab
	links []*link
}

// newTestbed builds the network and starts the devices. On an error it removes
// everything.
func newTestbed(ctx context.Context, labs netlab.Labs, devices []device) (*testbed, error) {
	b := &testbed{}
	for i, d := range devices {
		b.links = append(b.links, &link{
			device: d, testerEnd: "to-" + d.name,
			testerMAC: lb.MAC{2, 0, 0, 0, 1, byte(i)}, deviceMAC: lb.MAC{2, 0, 0, 0, 2, byte(i)},
			podsEnd: "of-" + d.name, podsMAC: lb.MAC{2, 0, 0, 0, 4, byte(i)},
		})
	}
	lab, err := labs.Up(ctx, fmt.Sprintf("bench-forward-%d", os.Getpid()), b.topology())
	if err != nil {
		return nil, err
	}
	b.lab = lab
	for _, w := range b.links {
		if err := b.start(ctx, w); err != nil {
			return nil, errors.Join(fmt.Errorf("device %s: %w", w.device.name, err), b.close())
		}
	}
	return b, nil
}

func (b *testbed) topology() netlab.Topology {
	tester := netlab.Host{Name: testerHost, Role: netlab.Client, Sysctls: quiet()}
	t := netlab.Topology{Name: "bench-forward"}
	for _, w := range b.links {
		tester.Interfaces = append(tester.Interfaces, netlab.Interface{Name: w.testerEnd, MAC: w.testerMAC})
		host := netlab.Host{
			Name: w.device.host(), Role: w.device.role, Sysctls: quiet(),
			Interfaces: []netlab.Interface{{Name: deviceInterface, MAC: w.deviceMAC, Addresses: []netip.Prefix{deviceAddress}}},
		}
		towards, mac := deviceInterface, w.testerMAC
		if w.device.pods {
			towards, mac = podInterface, w.podsMAC
			w.addPods(&t, &tester, &host)
		}
		for _, address := range w.device.servers() {
			host.Neighbours = append(host.Neighbours, netlab.Neighbour{Interface: towards, Address: address, MAC: mac})
		}
		t.Hosts = append(t.Hosts, host)
		t.Links = append(t.Links, netlab.Link{
			A: netlab.End{Host: testerHost, Interface: w.testerEnd}, B: netlab.End{Host: host.Name, Interface: deviceInterface}, MTU: wireMTU,
		})
	}
	t.Hosts = append(t.Hosts, tester)
	return t
}

// podRules let in packets that a network policy would permit.
const podRules = `table ip policy_bench {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state invalid drop
		ct state established,related accept
		ip daddr 10.244.0.0/24 udp dport 80 accept
		ip daddr 10.244.0.0/24 tcp dport 80 accept
	}
}
`

// addPods connects a device with its pods, which are at the tester.
func (w *link) addPods(t *netlab.Topology, tester, host *netlab.Host) {
	tester.Interfaces = append(tester.Interfaces, netlab.Interface{Name: w.podsEnd, MAC: w.podsMAC})
	host.Interfaces = append(host.Interfaces, netlab.Interface{Name: podInterface, Addresses: []netip.Prefix{podGateway}})
	host.Sysctls["net.ipv4.ip_forward"] = "1"
	host.Rules = podRules
	t.Links = append(t.Links, netlab.Link{
		A: netlab.End{Host: testerHost, Interface: w.podsEnd}, B: netlab.End{Host: host.Name, Interface: podInterface}, MTU: wireMTU,
	})
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

// start starts a device and its sink.
func (b *testbed) start(ctx context.Context, w *link) (err error) {
	host, end := testerHost, w.testerEnd
	if w.device.pods {
		end = w.podsEnd
	}
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
		w.sink, err = wire.AttachSink(dev.Index)
		return err
	})
}

// close removes the devices and the network.
func (b *testbed) close() error {
	var errs []error
	for _, w := range b.links {
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

// The kernel's connection table belongs to the whole machine. With its default size
// iptables and nftables would drop new flows after a second, or search long chains.
const (
	conntrackMax     = "/proc/sys/net/netfilter/nf_conntrack_max"
	conntrackBuckets = "/proc/sys/net/netfilter/nf_conntrack_buckets"

	wantedConnections = 3 * newFlows // of three devices
	wantedBuckets     = newFlows / 4
)

// widenConntrack makes the connection table large enough for new flows if a device
// uses it; restore restores its size.
func (p *plan) widenConntrack() (restore func() error, err error) {
	var undo []func() error
	restore = func() error {
		var errs []error
		for _, f := range undo {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	usesTable := slices.ContainsFunc(p.devices, func(d device) bool { return d.stateful })
	sendsNew := slices.ContainsFunc(p.cases, func(c conditions) bool { return c.flows == newFlows })
	if !usesTable || !sendsNew {
		return restore, nil
	}
	for path, wanted := range map[string]int{conntrackMax: wantedConnections, conntrackBuckets: wantedBuckets} {
		old, err := raise(path, wanted)
		if err != nil {
			return nil, errors.Join(err, restore())
		}
		if old != "" {
			undo = append(undo, func() error { return os.WriteFile(path, []byte(old), 0o644) })
		}
	}
	return restore, nil
}

// raise sets a sysctl to at least the wanted value and returns the old one; empty if
// it was large enough.
func raise(path string, wanted int) (old string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("connection tracking: %w", err)
	}
	old = strings.TrimSpace(string(text))
	value, err := strconv.Atoi(old)
	if err != nil {
		return "", fmt.Errorf("sysctl %s: %w", path, err)
	}
	if value >= wanted {
		return "", nil
	}
	if err := os.WriteFile(path, strconv.AppendInt(nil, int64(wanted), 10), 0o644); err != nil {
		return "", fmt.Errorf("sysctl %s: %w", path, err)
	}
	return old, nil
}
