// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"net/netip"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// Keys are the passwords of those who may call from prefixes.
type Keys map[netip.Prefix]string

// Add reads the password of those in a prefix, if they have one.
func (k Keys) Add(from netip.Prefix, password bgp.Secret) error {
	if password == (bgp.Secret{}) {
		return nil
	}
	key, err := password.Read()
	if err == nil {
		k[from] = key
	}
	return err
}

// Host is the prefix that has one address.
func Host(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// rereading is how often the passwords of those who call are read anew: the kernel
// has to know them before they do.
const rereading = 2 * time.Second

// Reread has listeners given new keys, again and again until ctx ends.
func Reread(ctx context.Context, rekey func()) {
	tick := time.NewTicker(rereading)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			rekey()
		case <-ctx.Done():
			return
		}
	}
}
