// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/observe/web"
)

// The agent doesn't start without an address that was asked for; the default one
// it can do without.
func TestTakenAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := netip.MustParseAddrPort(taken.Addr().String())
	var said syncBuffer
	log := slog.New(slog.NewTextHandler(&said, nil))

	page, err := web.Listen(address, true, nil, log)
	if want := "observe.listen " + address.String() + ": bind: address already in use"; page != nil || err == nil || err.Error() != want {
		t.Errorf("chosen: error %v, want %s", err, want)
	}
	page, err = web.Listen(address, false, nil, log)
	if page != nil || err != nil {
		t.Errorf("default: %v, error %v, want neither", page, err)
	}
	if !strings.Contains(said.String(), "level=WARN") || !strings.Contains(said.String(), address.String()) {
		t.Errorf("the log says %q", said.String())
	}
	page, err = web.Listen(netip.AddrPort{}, false, nil, log)
	if page != nil || err != nil {
		t.Errorf("none: %v, error %v, want neither", page, err)
	}
}
