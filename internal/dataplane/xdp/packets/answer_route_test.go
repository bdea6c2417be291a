// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/lb"
)

// nextRouter is where the routes of addRoutes lead.
var nextRouter = lb.MAC{2, 0, 0, 0, 0, 0xfe}

// addRoutes makes the namespace forward, and gives fl0 default routes to nextRouter.
func addRoutes(t *testing.T, device *net.Interface) {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		must(t, os.WriteFile("/proc/sys/net/"+family+"/conf/all/forwarding", []byte("1"), 0))
	}
	for _, gateway := range []net.IP{net.IPv4(169, 254, 0, 1), net.ParseIP("fe80::1")} {
		must(t, netlink.NeighSet(&netlink.Neigh{
			LinkIndex: device.Index, IP: gateway, State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr(nextRouter[:]),
		}))
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: device.Index, Gw: gateway, Flags: int(netlink.FLAG_ONLINK)}))
	}
}

// atDevice runs fn in a network namespace with a device that has no addresses.
func atDevice(t *testing.T, fn func(device *net.Interface)) {
	t.Helper()
	inNamespace(t, func() error {
		device, err := net.InterfaceByName("fl0")
		must(t, err)
		fn(device)
		return nil
	})
}

// runAt puts a frame in that came by an interface.
func runAt(t *testing.T, p *xdp.Unattached, index int, in []byte) (verdict uint32, out []byte) {
	t.Helper()
	type xdpMD struct{ Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32 }
	options := &ebpf.RunOptions{
		Data: in, DataOut: make([]byte, len(in)+256),
		Context: xdpMD{DataEnd: uint32(len(in)), IngressIfindex: uint32(index)},
	}
	verdict, err := programOf(t, p).Run(options)
	must(t, err)
	return verdict, options.DataOut
}

// With DSR a client's packet may come from another node: an answer to it takes the
// node's own route to the client, and goes back only if there is none. With NAT it
// always goes back.
func TestAnswerRoutes(t *testing.T) {
	p, _ := newTestPlane(t)
	p.Programs.Recount(0, program.FeatureNAT|program.FeatureDSR|program.FeatureReject)
	atDevice(t, func(device *net.Interface) {
		answers := func(keep bool) (all [][]byte) {
			for _, c := range natCases() {
				c.keep, c.via = keep, macOf(node4)
				ask := func(c natCase, flags uint8) {
					verdict, out := runAt(t, p, device.Index, c.fromClient(flags).build())
					if verdict != xdpTX {
						t.Errorf("%s: verdict %d", c.vip, verdict)
					}
					all = append(all, out)
				}
				svc := c.service()
				update(t, p, svc)
				if c.vip.Protocol == lb.TCP {
					ask(c, tcpACK) // of no connection
				}
				large := c
				large.payload = string(bytes.Repeat([]byte("large"), 300))
				ask(large, tcpSYN)
				refusing := *svc
				refusing.Backends, refusing.Unavailable = nil, lb.Reject
				update(t, p, &refusing)
				other := c
				other.client = clientOf(c.vip.Address, 42000)
				ask(other, tcpSYN)
				remove(t, p, c.vip)
			}
			return all
		}
		want := func(what string, got, before [][]byte, to, from []byte) {
			for i := range got {
				if wanted := slices.Concat(to, from, before[i][12:]); !bytes.Equal(got[i], wanted) {
					t.Errorf("%s: answer %d differs:\n%s", what, i, cmp.Diff(dump(wanted), dump(got[i])))
				}
			}
		}
		node, own := macOf(node4), balancerMAC
		back := answers(true)
		want("no route", back, back, node[:], own[:])
		addRoutes(t, device)
		want("dsr", answers(true), back, nextRouter[:], device.HardwareAddr)
		want("nat", answers(false), back, node[:], own[:])
	})
}
