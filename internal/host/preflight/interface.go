// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// XDP features of an interface: NETDEV_XDP_ACT_* of linux/netdev.h (6.3).
const (
	xdpBasic    = 1 << 0 // ABORTED, DROP, PASS, TX
	xdpRedirect = 1 << 1 // REDIRECT
)

// singlePageMTU is the largest MTU with which nearly every driver runs an XDP
// program: a frame, its headroom and the kernel's bookkeeping share one 4 KiB
// page (mlx5 and ena: 3498, virtio_net and veth a few bytes more).
const singlePageMTU = 3498

// driverMTU has the drivers that take less.
var driverMTU = map[string]int{"i40e": 3046, "ice": 3046, "ixgbe": 3046}

// checkInterface wants an interface that is up and, if XDP is used, can run its program.
func checkInterface(i Interface, kernel string, n Needs) []Finding {
	link := Finding{Check: "link", Result: OK, Needed: "an interface that is up"}
	switch {
	case !i.Exists:
		link.Result, link.Found, link.Fix = Fail, "no such interface", "ip link shows the names; correct node.interfaces"
	case !i.Up:
		link.Result, link.Found, link.Fix = Fail, "down", "ip link set "+i.Name+" up"
	default:
		link.Found = "up, driver " + cmp.Or(i.Driver, "none")
	}
	findings := []Finding{link}
	if i.Exists && n.IPVS != Required {
		findings = append(findings, nativeXDP(i, kernel, n), attached(i), mtu(i, n))
		if n.VLAN {
			findings = append(findings, vlanTags(i))
		}
	}
	if i.Exists && n.Probes {
		findings = append(findings, reversePath(i))
	}
	if len(n.VIPs) > 0 {
		findings = append(findings, vips(i.Networks, n.VIPs))
	}
	for k := range findings {
		findings[k].Interface = i.Name
	}
	return findings
}

// worse returns the result of a finding that only costs speed, unless native mode
// is wanted.
func worse(n Needs) Result {
	if n.Native {
		return Fail
	}
	return Warn
}

func nativeXDP(i Interface, kernel string, n Needs) Finding {
	f := Finding{Check: "xdp", Result: OK, Needed: "XDP in the driver (native); generic mode works and is slower"}
	switch {
	case i.XDPFeatures == nil:
		f.Result, f.Found = Warn, "unknown until attached: kernel "+kernel+" does not report it"
	case *i.XDPFeatures&xdpBasic == 0:
		f.Result, f.Found = worse(n), "driver "+cmp.Or(i.Driver, "none")+" has none: generic mode"
		f.Fix = "use an interface whose driver has XDP, or set dataplane.xdpMode to auto or generic"
	case *i.XDPFeatures&xdpRedirect == 0:
		f.Result, f.Found = Warn, "native, without redirect: backends must be reached through the same interface"
	default:
		f.Found = "native"
	}
	// A veth drops XDP's frames to it unless its peer receives with NAPI, and
	// the peer is out of sight in another namespace.
	if i.Driver == "veth" {
		f.Found += "; the veth's peer needs GRO (ethtool -K PEER gro on) or an XDP program"
	}
	return f
}

func attached(i Interface) Finding {
	f := Finding{Check: "xdp program", Result: OK, Found: "none", Needed: "none, or Fairlead's own"}
	if i.Program == nil {
		return f
	}
	mode := "generic"
	if i.Program.Native {
		mode = "native"
	}
	f.Found = fmt.Sprintf("id %d, %s, ", i.Program.ID, mode)
	switch {
	case i.Program.Own:
		f.Found += "held by " + strings.Join(i.Program.Holders, ", ")
	case len(i.Program.Holders) > 0:
		f.Result = Fail
		f.Found += "held by " + strings.Join(i.Program.Holders, ", ")
		f.Fix = "stop that program, or use another interface"
	default:
		f.Result = Warn
		f.Found += "held by no process"
		f.Fix = fmt.Sprintf("nothing if a stopped agent left it (it adopts it, or fairlead agent --remove); "+
			"else bpftool prog show id %d shows its owner", i.Program.ID)
	}
	return f
}

func mtu(i Interface, n Needs) Finding {
	limit, known := driverMTU[i.Driver]
	if !known {
		limit = singlePageMTU
	}
	f := Finding{
		Check: "mtu", Result: OK, Found: fmt.Sprint(i.MTU),
		Needed: fmt.Sprintf("at most about %d, with which a frame fits into one page", limit),
	}
	if i.MTU > limit && i.XDPFeatures != nil && *i.XDPFeatures&xdpBasic == 0 {
		f.Needed = "any: generic mode has no limit"
	} else if i.MTU > limit {
		f.Result, f.Fix = worse(n), fmt.Sprintf("ip link set %s mtu %d, else the driver may refuse native mode", i.Name, limit)
	}
	return f
}

func vlanTags(i Interface) Finding {
	f := Finding{Check: "vlan tags", Result: OK, Found: "left in the frame", Needed: "left in the frame, where XDP reads them"}
	if i.HidesVLAN {
		f.Result, f.Found = Warn, "taken out by rx-vlan-offload: XDP takes tagged frames for untagged ones"
		f.Fix = "ethtool -K " + i.Name + " rxvlan off"
	}
	return f
}

// reversePath warns where the answers to health checks, which have a VIP for
// their source, may be taken for forged.
func reversePath(i Interface) Finding {
	f := Finding{Check: "rp_filter", Result: OK, Found: "off (0)", Needed: "off or loose: answers to health checks come from VIPs"}
	switch i.ReversePath {
	case Strict:
		f.Result, f.Found = Warn, "strict (1): answers from VIPs whose route leads elsewhere are dropped, and their backends found dead"
		f.Fix = "sysctl -w net/ipv4/conf/" + i.Name + "/rp_filter=2" // the name may have dots
	case Loose:
		f.Found = "loose (2): a route to the VIPs, such as a default route, is enough"
	case Off:
	}
	return f
}

// vips warns of VIPs in networks of an interface: with XDP no balancer answers hosts there that look for the
// address's MAC address, with IPVS all do.
func vips(networks []netip.Prefix, all []netip.Addr) Finding {
	f := Finding{Check: "vips", Result: OK, Found: "outside of the interface's networks", Needed: "VIPs that routers lead to the balancers"}
	for _, network := range networks {
		i := slices.IndexFunc(all, func(a netip.Addr) bool { return network.Contains(a) && !network.IsSingleIP() })
		if i >= 0 {
			f.Result, f.Found = Warn, fmt.Sprintf("%s is in %s, whose hosts look for it by ARP or NDP, not by a route", all[i], network)
			f.Fix = "take VIPs of a prefix that is on no network, and have the hosts' router lead it here"
		}
	}
	return f
}
