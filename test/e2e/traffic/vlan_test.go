// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Two tenants have the same VIPs, ports and protocols in two VLANs, and never
// meet each other's servers.
func TestVLAN(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "vlan", netlab.VLAN())
	l.checkTenants(t, "forward_l2dsr")
	t.Run("elsewhere", l.checkElsewhere)
}

// checkTenants has both tenants served, one after the other and at once.
func (l *lab) checkTenants(t *testing.T, forwarded string) {
	for _, tenant := range []string{"red", "blue"} {
		for _, vip := range []string{harness.VIP4, harness.VIP6} {
			t.Run(tenant+"/"+vip, func(t *testing.T) {
				l.CheckPackets(t, forwarded, func() { l.checkTenant(t, "client-"+tenant, "server-"+tenant, vip) })
			})
		}
	}
	t.Run("at once", func(t *testing.T) {
		l.CheckPackets(t, forwarded, func() {
			red := l.Load(t, "client-red", harness.LoadLimit, harness.Origin(harness.VIP4))
			blue := l.Load(t, "client-blue", harness.LoadLimit, "-H", "Connection: close", harness.Origin(harness.VIP4))
			l.awaitAllBalancers(t, forwarded)
			red.End(t)
			blue.End(t)
		})
	})
}

// checkTenant checks that a client's requests are answered by both of its tenant's servers
// and by no other.
func (l *lab) checkTenant(t *testing.T, client, prefix, vip string) {
	t.Helper()
	answers := l.Gets(t, client, harness.Origin(vip), 300)
	if answers[prefix+"1"] < 30 || answers[prefix+"2"] < 30 || answers[prefix+"1"]+answers[prefix+"2"] != 300 {
		t.Errorf("%s: 300 requests to %s are answered by %v", client, vip, answers)
	}
	l.checkEcho(t, client, vip, prefix)
}

// A frame for the VIP is balanced in the tenants' VLANs only.
func (l *lab) checkElsewhere(t *testing.T) {
	for vlan, exit := range map[uint16]string{100: "forward_l2dsr", 200: "forward_l2dsr", 300: "pass_not_vip", 0: "pass_not_vip"} {
		l.checkExit(t, fmt.Sprintf("VLAN %d", vlan), requestFrame(t, l.macOf("lb1"), vlan), exit)
	}
}

func (l *lab) macOf(host string) net.HardwareAddr { return l.Topology.Host(host).Interfaces[0].MAC[:] }

// checkExit sends a frame for the VIP to the first balancer, from which it must
// leave by the exit.
func (l *lab) checkExit(t *testing.T, network string, frame []byte, exit string) {
	t.Helper()
	h := l.State().Host("lb1")
	l.SettledTotals(t) // connections of an earlier load may still be closing
	before := harness.ExitsOf(t, h)
	l.send(t, "switch", h.Name, frame)
	left := func(moved harness.Exits) uint64 {
		sum := moved["pass_not_vip"]
		for name, packets := range moved {
			if strings.HasPrefix(name, "forward_") {
				sum += packets
			}
		}
		return sum
	}
	var moved harness.Exits
	harness.Until(t, "the frame has left", func() bool {
		moved = harness.ExitsOf(t, h).Minus(before)
		return left(moved) > 0
	})
	if moved[exit] != 1 || left(moved) != 1 {
		t.Errorf("a frame for the VIP in %s moves %v, want %s", network, moved, exit)
	}
}

// requestFrame is a datagram to the IPv4 service "echo", in a VLAN if that is
// not 0. Its checksum is wrong, which concerns servers only: an answer would be
// refused by its sender, which has no such socket, and the ICMP error is for the
// balancer too.
func requestFrame(t *testing.T, to net.HardwareAddr, vlan uint16) []byte {
	t.Helper()
	ethernet := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: to, EthernetType: layers.EthernetTypeIPv4}
	stack := []gopacket.SerializableLayer{ethernet}
	if vlan != 0 {
		ethernet.EthernetType = layers.EthernetTypeDot1Q
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: vlan, Type: layers.EthernetTypeIPv4})
	}
	frame := build(t, append(append(stack, datagram(t, net.IP{10, 0, 1, 2}, net.ParseIP(harness.VIP4), 7)...), gopacket.Payload("hello"))...)
	return bytes.Replace(frame, []byte("hello"), []byte("hullo"), 1)
}

// datagram is the headers of one.
func datagram(t *testing.T, from, to net.IP, port layers.UDPPort) []gopacket.SerializableLayer {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from, DstIP: to}
	udp := &layers.UDP{SrcPort: 9999, DstPort: port}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	return []gopacket.SerializableLayer{ip, udp}
}

func build(t *testing.T, stack ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// send puts a frame on the wire of a host's interface.
func (l *lab) send(t *testing.T, host, name string, frame []byte) {
	t.Helper()
	err := l.Do(host, func() error {
		device, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		return unix.Sendto(socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: device.Index})
	})
	if err != nil {
		t.Fatalf("%s: %s: %v", host, name, err)
	}
}
