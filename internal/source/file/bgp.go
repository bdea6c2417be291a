// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/lb"
)

// Default and bound of bgp.Config.ShutdownDelay: routers have chosen other
// routes within some hundred milliseconds, over many hops within minutes.
const (
	defaultShutdownDelay = 500 * time.Millisecond
	maxShutdownDelay     = 10 * time.Minute
)

// announcing reads to whom VIPs are announced, and how.
func announcing(to **bgp.Config) reader {
	return func(v value) {
		c := &bgp.Config{ShutdownDelay: defaultShutdownDelay}
		v.readFields(
			required("asn", number(&c.ASN, 1, bgp.MaxASN)),
			required("routerID", checked(address(&c.RouterID), func() error {
				if !c.RouterID.Is4() || c.RouterID.IsUnspecified() {
					return fmt.Errorf("bad router id %s: want an IPv4 address that is not 0.0.0.0", c.RouterID)
				}
				return nil
			})),
			required("peers", peers(&c.Peers)),
			optional("announce", policies(&c.Policies)),
			optional("shutdownDelay", checked(duration(&c.ShutdownDelay), func() error {
				if c.ShutdownDelay < 0 || c.ShutdownDelay > maxShutdownDelay {
					return lb.OutOfRange(c.ShutdownDelay, time.Duration(0), maxShutdownDelay)
				}
				return nil
			})),
		)
		checkMultihop(v, c)
		*to = c
	}
}

// checkMultihop refuses what iBGP has no use for: its peers may be any number of
// hops away.
func checkMultihop(v value, c *bgp.Config) {
	for i := range c.Peers {
		peer := v.at(fmt.Sprintf("peers[%d]", i))
		if c.Peers[i].Multihop == 0 || c.Peers[i].External(c.Local) || v.broken("asn") || peer.broken("asn") {
			continue
		}
		peer.at("multihop").failf("only with eBGP, this peer is of the node's own AS: it may be any number of hops away")
	}
}
