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
func addRoutes(t *testing.T, device *net.Interface) error {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		if err := os.WriteFile("/proc/sys/net/"+family+"/conf/all/forwarding", []byte("1"), 0); err != nil {
			return err
		}
	}
	for _, gateway := range []net.IP{net.IPv4(169, 254, 0, 1), net.ParseIP("fe80::1")} {
		if err := netlink.NeighSet(&netlink.Neigh{
			LinkIndex: device.Index, IP: gateway, State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr(nextRouter[:]),
		}); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: device.Index, Gw: gateway, Flags: int(netlink.FLAG_ONLINK)}); err != nil {
			return err
		}
	}
	return nil
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
	if err != nil {
		t.Fatal(err)
	}
	return verdict, options.DataOut
}

// With DSR a client's packet may come from another node: an answer to it takes the
// node's own route to the client, and goes back only if there is none. With NAT it
// always goes back.
func TestAnswersTakeRoutes(t *testing.T) {
	p, _ := newTestPlane(t)
	p.Programs.Recount(0, program.FeatureNAT|program.FeatureDSR|program.FeatureReject)
	inNamespace(t, func() error {
		device, err := net.InterfaceByName("fl0")
		if err != nil {
			return err
		}
		relayed := func(c natCase, flags uint8) []byte {
			f := c.fromClient(flags)
			f.source = macOf(node4)
			return f.build()
		}
		answers := func(keep bool) (all [][]byte) {
			for _, c := range natCases() {
				c.keep = keep
				svc := c.service()
				if _, err := p.Update(t.Context(), svc); err != nil {
					t.Error(err)
				}
				ask := func(in []byte) {
					verdict, out := runAt(t, p, device.Index, in)
					if verdict != xdpTX {
						t.Errorf("%s: verdict %d", c.vip, verdict)
					}
					all = append(all, out)
				}
				if c.vip.Protocol == lb.TCP {
					ask(relayed(c, tcpACK)) // of no connection
				}
				large := c
				large.payload = string(bytes.Repeat([]byte("large"), 300))
				ask(relayed(large, tcpSYN))
				refusing := *svc
				refusing.Backends, refusing.Unavailable = nil, lb.Reject
				if _, err := p.Update(t.Context(), &refusing); err != nil {
					t.Error(err)
				}
				other := c
				other.client = clientOf(c.vip.Address, 42000)
				ask(relayed(other, tcpSYN))
				if err := p.Delete(t.Context(), c.vip); err != nil {
					t.Error(err)
				}
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
		if err := addRoutes(t, device); err != nil {
			return err
		}
		want("dsr", answers(true), back, nextRouter[:], device.HardwareAddr)
		want("nat", answers(false), back, node[:], own[:])
		return nil
	})
}
