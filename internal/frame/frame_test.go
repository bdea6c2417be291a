// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

var (
	from4, to4 = netip.MustParseAddrPort("192.0.2.7:41000"), netip.MustParseAddrPort("10.1.1.1:80")
	from6, to6 = netip.MustParseAddrPort("[2001:db8::7]:41000"), netip.MustParseAddrPort("[fd00::1]:80")
)

// A decoder finds the described packet, down to the checksums.
func TestBuild(t *testing.T) {
	for _, tt := range []struct {
		d    Description
		want string
	}{
		{Description{From: from4, To: to4, Protocol: TCP, Flags: SYN}, "tcp 192.0.2.7:41000 > 10.1.1.1:80 syn, 60 bytes"},
		{Description{From: from4, To: to4, Protocol: TCP, Flags: PSH | ACK, Size: 1500}, "tcp 192.0.2.7:41000 > 10.1.1.1:80 psh,ack, 1514 bytes"},
		{Description{From: from4, To: to4, Protocol: UDP, VLAN: 100}, "vlan 100 udp 192.0.2.7:41000 > 10.1.1.1:80, 60 bytes"},
		{Description{From: from4, To: to4, Protocol: ICMP}, "ICMPv4 192.0.2.7 > 10.1.1.1, 60 bytes"},
		{Description{From: from6, To: to6, Protocol: TCP, Flags: ACK}, "tcp [2001:db8::7]:41000 > [fd00::1]:80 ack, 74 bytes"},
		{Description{From: from6, To: to6, Protocol: UDP, Size: 100, VLAN: 7}, "vlan 7 udp [2001:db8::7]:41000 > [fd00::1]:80, 118 bytes"},
		{Description{From: from6, To: to6, Protocol: ICMP, TTL: 3}, "ICMPv6Echo 2001:db8::7 > fd00::1, 62 bytes"},
	} {
		frame, err := tt.d.Build()
		if err != nil {
			t.Errorf("%+v: %v", tt.d, err)
			continue
		}
		if got := Summary(frame); got != tt.want {
			t.Errorf("%+v is %q, want %q", tt.d, got, tt.want)
		}
		packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		for _, layer := range packet.Layers() {
			if l, ok := layer.(interface {
				SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
			}); ok {
				if err := l.SetNetworkLayerForChecksum(packet.NetworkLayer()); err != nil {
					t.Error(err)
				}
			}
		}
		if wrong, mismatches := packet.VerifyChecksums(); wrong != nil || len(mismatches) > 0 {
			t.Errorf("%+v: checksums %v, %v", tt.d, wrong, mismatches)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	for want, d := range map[string]Description{
		"from an address": {To: to4, Protocol: TCP},
		"families differ": {From: from4, To: to6, Protocol: TCP},
		"tcp needs ports": {From: netip.AddrPortFrom(from4.Addr(), 0), To: to4, Protocol: TCP},
		"headers alone":   {From: from4, To: to4, Protocol: TCP, Size: 39},
		"at most 65535":   {From: from4, To: to4, Protocol: TCP, Size: 65536},
		"at most 4094":    {From: from4, To: to4, Protocol: TCP, VLAN: 4095},
	} {
		if _, err := d.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", d, err, want)
		}
	}
}

func TestFlags(t *testing.T) {
	var f Flags
	if err := f.Set("ack,syn"); err != nil || f != SYN|ACK || f.String() != "syn,ack" {
		t.Errorf("%v, %v", f, err)
	}
	if err := f.Set("syn,"); err == nil {
		t.Error("a flag without a name was taken")
	}
}

// Summary takes whatever a capture holds.
func FuzzSummary(f *testing.F) {
	for _, d := range []Description{
		{From: from4, To: to4, Protocol: TCP, Flags: SYN}, {From: from4, To: to4, Protocol: UDP},
		{From: from6, To: to6, Protocol: ICMP, VLAN: 1},
	} {
		frame, err := d.Build()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
		f.Add(frame[:16])
		f.Add(frame[:len(frame)-3])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if Summary(frame) == "" {
			t.Error("no summary")
		}
	})
}

var moment = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

// classic is a pcap file with one packet of which only a part was captured.
func classic(t testing.TB, link layers.LinkType, data []byte, length int) []byte {
	t.Helper()
	var file bytes.Buffer
	w := pcapgo.NewWriter(&file)
	err := errors.Join(w.WriteFileHeader(65535, link),
		w.WritePacket(gopacket.CaptureInfo{Timestamp: moment, CaptureLength: len(data), Length: length}, data))
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func nextGeneration(t testing.TB, data []byte) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := pcapgo.NewNgWriter(&file, layers.LinkTypeEthernet)
	if err == nil {
		err = w.WritePacket(gopacket.CaptureInfo{Timestamp: moment, CaptureLength: len(data), Length: len(data)}, data)
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// Whatever stands before the IP header in a capture, the frame carries the same
// packet.
func TestCapture(t *testing.T) {
	frame, err := Description{From: from6, To: to6, Protocol: UDP, Size: 200}.Build()
	if err != nil {
		t.Fatal(err)
	}
	sll := append(make([]byte, 14), frame[12:]...)
	sll2 := append(append(append([]byte{}, frame[12:14]...), make([]byte, 18)...), frame[14:]...)
	for name, file := range map[string][]byte{
		"pcap":      classic(t, layers.LinkTypeEthernet, frame, len(frame)),
		"truncated": classic(t, layers.LinkTypeEthernet, frame[:96], len(frame)),
		"raw":       classic(t, linkRaw, frame[14:], len(frame)-14),
		"sll":       classic(t, linkLinuxSLL, sll, len(sll)),
		"sll2":      classic(t, linkLinuxSLL2, sll2, len(sll2)),
		"pcapng":    nextGeneration(t, frame),
	} {
		c, err := NewCapture(bytes.NewReader(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := c.Next()
		if err != nil || !bytes.Equal(got.Frame, frame) || !got.Time.Equal(moment) {
			t.Errorf("%s: %v, %s % x, want % x", name, err, got.Time, got.Frame, frame)
		}
		if _, err := c.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: after the last packet: error %v", name, err)
		}
	}
}

func TestCaptureRefuses(t *testing.T) {
	if _, err := NewCapture(strings.NewReader("no capture at all")); err == nil {
		t.Error("text was taken for a capture")
	}
	if _, err := NewCapture(strings.NewReader("")); err == nil {
		t.Error("an empty file was taken for a capture")
	}
	c, err := NewCapture(bytes.NewReader(classic(t, layers.LinkTypeIEEE802_11, make([]byte, 60), 60)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Next(); err == nil || !strings.Contains(err.Error(), "link type") {
		t.Errorf("a wireless frame: error %v", err)
	}
}

// FuzzCapture checks that a damaged capture ends with an error, and that no frame is
// larger than a packet can be.
func FuzzCapture(f *testing.F) {
	frame, err := Description{From: from4, To: to4, Protocol: TCP, Flags: SYN}.Build()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(classic(f, layers.LinkTypeEthernet, frame, len(frame)))
	f.Add(classic(f, linkLinuxSLL2, frame, 1500))
	f.Add(nextGeneration(f, frame))
	for _, link := range []layers.LinkType{linkRaw, linkRawBSD, linkLinuxSLL, linkLinuxSLL2, layers.LinkTypeIEEE802_11} {
		f.Add(classic(f, link, frame[14:], len(frame)))
	}
	f.Add(classic(f, linkRaw, []byte{0x60}, 1))
	f.Add(classic(f, linkLinuxSLL, frame[:15], 15))
	f.Add(classic(f, layers.LinkTypeEthernet, frame, len(frame))[:30]) // cut off
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := NewCapture(bytes.NewReader(file))
		for err == nil {
			var p Captured
			if p, err = c.Next(); len(p.Frame) > len(file)+1<<16+14 {
				t.Errorf("packet of %d bytes in a file of %d", len(p.Frame), len(file))
			}
		}
	})
}
