// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"
)

// sizedConfig is a file of services with so many backends each, all different, and with
// room for that many backends in the data plane.
func sizedConfig(services, backends, room int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "node: {name: size, interfaces: [fl0]}\ndataplane: {backends: %d}\nservices:\n", room)
	address := netip.MustParseAddr("10.1.0.0")
	for s := range services {
		vip := netip.AddrFrom4([4]byte{172, 16, byte(s >> 8), byte(s)})
		fmt.Fprintf(&b, "  - name: s%d\n    address: %s\n    port: 80\n    forward: l2dsr\n    backends:\n", s, vip)
		for range backends {
			address = address.Next()
			a := address.As4()
			fmt.Fprintf(&b, "      - {address: %s, mac: \"02:00:%02x:%02x:%02x:%02x\"}\n", address, a[0], a[1], a[2], a[3])
		}
	}
	return b.Bytes()
}

// A file of many backends is served: 512,000 with FAIRLEAD_FUZZ.
func TestManyBackends(t *testing.T) {
	services, backends := 8, 500
	if os.Getenv("FAIRLEAD_FUZZ") != "" {
		services, backends = 128, 4000
	}
	file := sizedConfig(services, backends, services*backends+backends)
	begun := time.Now()
	a, _ := startOnXDP(t, file)
	t.Logf("%d bytes, %d services with %d backends each, ready in %s", len(file), services, backends, time.Since(begun).Round(time.Millisecond))
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range bytes.Lines(status) {
			if bytes.HasPrefix(line, []byte("VmHWM")) || bytes.HasPrefix(line, []byte("RssAnon")) {
				t.Logf("%s", bytes.TrimSpace(line))
			}
		}
	}
	for _, s := range a.store.Snapshot().Statuses() {
		if s.Error != "" || s.Programmed == 0 {
			t.Errorf("service %s: %q, programmed %d", s.Name, s.Error, s.Programmed)
		}
	}
}
