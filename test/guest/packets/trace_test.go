//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"net/netip"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// checkTrace lets this kernel load the program a second time and trace a packet
// of the service.
func checkTrace(t *testing.T, lab *netlab.Lab, host string, b balancer, svc *lb.Service) {
	t.Helper()
	from := netip.MustParseAddr("192.0.2.7")
	if svc.Address.Is6() {
		from = netip.MustParseAddr("2001:db8::7")
	}
	packet, err := frame.Description{
		From: netip.AddrPortFrom(from, 41000), To: netip.AddrPortFrom(svc.Address, svc.Port),
		Protocol: frame.Protocol(svc.Protocol.String()), Flags: frame.SYN,
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	within(t, lab, host, func() error {
		said, err := b.Trace(t.Context(), dataplane.Packet{Frame: packet})
		if err == nil && (said.Exit != "forward_"+svc.Forward.String() || said.Verdict != "transmit" || said.VIP != svc.VIP) {
			t.Errorf("vip %s: a trace says %+v", svc.VIP, said)
		}
		return err
	})
}
