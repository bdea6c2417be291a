// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The part of linux/netdev.h (generic netlink family "netdev", kernel 6.3)
// that is asked for.
const (
	netdevFamily      = "netdev"
	netdevVersion     = 1
	netdevDevGet      = 1 // NETDEV_CMD_DEV_GET
	netdevIfindex     = 1 // NETDEV_A_DEV_IFINDEX, u32
	netdevXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES, u64
)

// genlHeader is genlmsghdr of linux/genetlink.h: command, version and 16
// reserved bits, which this family wants to be zero. (nl.Genlmsg, at 1.3.1, sends
// there whatever is in memory behind it.)
type genlHeader [4]byte

func (h *genlHeader) Len() int          { return len(h) }
func (h *genlHeader) Serialize() []byte { return h[:] }

// xdpFeatures queries an interface's XDP features; nil without the netdev family
// (before 6.3).
func xdpFeatures(index int) (*uint64, error) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("generic netlink family %s: %w", netdevFamily, err)
	}
	request := nl.NewNetlinkRequest(int(family.ID), 0)
	request.AddData(&genlHeader{netdevDevGet, netdevVersion})
	request.AddData(nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(index))))
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		if len(answer) < len(genlHeader{}) {
			continue
		}
		attrs, err := nl.ParseRouteAttr(answer[len(genlHeader{}):])
		if err != nil {
			return nil, err
		}
		for _, a := range attrs {
			if a.Attr.Type == netdevXDPFeatures && len(a.Value) == 8 {
				features := binary.NativeEndian.Uint64(a.Value)
				return &features, nil
			}
		}
	}
	return nil, nil
}
