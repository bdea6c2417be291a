// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"bytes"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/reflector"
	"fairlead.io/fairlead/test/await"
)

// watchRoute counts from now on how often the kernel's route to a prefix changes.
func watchRoute(t *testing.T, prefix string) (changes func() int) {
	t.Helper()
	updates, done := make(chan netlink.RouteUpdate, 1000), make(chan struct{})
	if err := netlink.RouteSubscribe(updates, done); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(done) })
	return func() int {
		n := 0
		for {
			select {
			case u := <-updates:
				if u.Dst != nil && u.Dst.String() == prefix {
					t.Logf("change: %v", u.Route)
					n++
				}
			default:
				return n
			}
		}
	}
}

// state is how a peer is doing; false if there is none.
func state(r *reflector.Reflector, address netip.Addr) (bgp.PeerState, bool) {
	for _, p := range r.Peers() {
		if p.Address == address {
			return p, true
		}
	}
	return bgp.PeerState{}, false
}

func established(r *reflector.Reflector, address netip.Addr) bool {
	p, _ := state(r, address)
	return p.State == bgp.Established
}

// awaitSaved waits until the file has that many clients: routes may be passed on before it has.
func awaitSaved(t *testing.T, path string, clients int) {
	t.Helper()
	await.True(t, "clients are saved", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && bytes.Count(text, []byte("routerID")) == clients
	})
}
