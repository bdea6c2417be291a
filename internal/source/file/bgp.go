// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"net/netip"
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
			required("routerID", identifier(&c.RouterID, "router id")),
			required("peers", peers(&c.Peers)),
			optional("announce", policies(&c.Policies)),
			shutdownDelay(c),
		)
		for i := range c.Peers {
			checkMultihop(v.at(fmt.Sprintf("peers[%d]", i)), &c.Peers[i], c.Local, v.broken("asn"))
		}
		*to = c
	}
}

func shutdownDelay(c *bgp.Config) field {
	return optional("shutdownDelay", checked(duration(&c.ShutdownDelay), func() error {
		if c.ShutdownDelay < 0 || c.ShutdownDelay > maxShutdownDelay {
			return lb.OutOfRange(c.ShutdownDelay, time.Duration(0), maxShutdownDelay)
		}
		return nil
	}))
}

// identifier reads what tells speakers apart, or clusters of them: it has the form
// of an IPv4 address (RFC 6286, RFC 4456 §8).
func identifier(to *netip.Addr, what string) reader {
	return checked(address(to), func() error {
		if !to.Is4() || to.IsUnspecified() {
			return fmt.Errorf("bad %s %s: want an IPv4 address that is not 0.0.0.0", what, to)
		}
		return nil
	})
}

// checkMultihop refuses what iBGP has no use for: its peers may be any number of
// hops away. Whether a peer is external can't be told where an ASN is broken.
func checkMultihop(v value, p *bgp.Peer, local bgp.Local, broken bool) {
	if p.Multihop == 0 || p.External(local) || broken || v.broken("asn") {
		return
	}
	v.at("multihop").failf("only with eBGP, this peer is of the node's own AS: it may be any number of hops away")
}
