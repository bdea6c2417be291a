// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/frame"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// Trace decides by the interface, and refuses frames that are larger than jumbo
// frames.
func (fakePlane) Trace(_ context.Context, packet dataplane.Packet) (dataplane.Trace, error) {
	if len(packet.Frame) > 9000 {
		return dataplane.Trace{}, fmt.Errorf("frame of %d bytes: larger than can be", len(packet.Frame))
	}
	if packet.Interface == "eth1" {
		return dataplane.Trace{Exit: "pass_not_vip", Verdict: "pass", VIP: webVIP}, nil
	}
	return dataplane.Trace{Exit: "drop_no_backend", Verdict: "drop", VIP: webVIP, Found: true, Length: len(packet.Frame)}, nil
}

// Flows repeats the query.
func (fakePlane) Flows(_ context.Context, query dataplane.FlowQuery) (dataplane.Flows, error) {
	client := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), 41000)
	if query.VIP == (lb.VIP{}) {
		query.VIP = lb.VIP{Address: netip.MustParseAddr("10.1.1.9"), Port: 80, Protocol: lb.TCP}
	}
	if query.Client.IsValid() {
		client = netip.AddrPortFrom(query.Client.Addr(), uint16(query.Client.Bits()))
	}
	flow := dataplane.Flow{VIP: query.VIP, Client: client}
	return dataplane.Flows{Flows: []dataplane.Flow{flow}, Matching: query.Limit + 1, Records: 3, Capacity: 8}, nil
}

func TestTraceCommand(t *testing.T) {
	a := startAgent(t)
	const packet = "trace --from 192.0.2.7:41000 --to 10.1.1.1:80 "
	a.shows(packet, "packet   tcp 192.0.2.7:41000 > 10.1.1.1:80 syn, 60 bytes\n", "service  web (tcp 10.1.1.1:80)\n",
		"verdict  dropped: the service has no usable backend\n", "counter  drop_no_backend\n")
	a.shows(packet+"--interface eth1 --protocol udp", "passed to the kernel: no service at 10.1.1.1 tcp port 80\n")
	var list []observe.Trace
	a.decodes(packet+"--size 1500 --flags ack,psh --vlan 7", &list)
	if len(list) != 1 || list[0].Length != 1518 || list[0].Service != "web" {
		t.Errorf("%+v", list)
	}
	line := strings.Fields(packet + "--size 10000 --socket " + a.socket)
	if status, stdout, _ := command(line...); status != 1 || !strings.Contains(stdout, "error   frame of 10014 bytes") {
		t.Errorf("a packet that can't be traced: status %d, %s", status, stdout)
	}
}

// A capture has more packets than one request takes, and one that can't be
// traced among them.
func TestTraceCapture(t *testing.T) {
	a := startAgent(t)
	const packets = 2*control.MaxTracePackets + 5
	path := filepath.Join(t.TempDir(), "x.pcap")
	if err := os.WriteFile(path, capture(t, packets), 0o600); err != nil {
		t.Fatal(err)
	}
	at := captured.Local().Format("15:04:05.000000")
	a.shows("trace --pcap "+path, "\npacket   133 at "+at+": tcp 192.0.2.7:41000 > 10.1.1.1:80 syn, 60 bytes\n",
		"packet  1 at "+at+": ", "\nerror   frame of 10014 bytes",
		"PACKETS  EXIT\n133      all\n1        error\n132      drop_no_backend\n")
	var list []observe.Trace
	if a.decodes("trace --pcap "+path, &list); len(list) != packets || list[0].Error == "" || list[1].Error != "" {
		t.Errorf("%d traces, want %d and an error first", len(list), packets)
	}
}

var captured = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func capture(t *testing.T, packets int) []byte {
	t.Helper()
	var file bytes.Buffer
	w := pcapgo.NewWriter(&file)
	errs := []error{w.WriteFileHeader(65535, layers.LinkTypeEthernet)}
	for i := range packets {
		d := frame.Description{From: netip.MustParseAddrPort("192.0.2.7:41000"), To: netip.MustParseAddrPort("10.1.1.1:80"), Protocol: frame.TCP, Flags: frame.SYN}
		if i == 0 {
			d.Size = 10000
		}
		data, err := d.Build()
		errs = append(errs, err, w.WritePacket(gopacket.CaptureInfo{Timestamp: captured, CaptureLength: len(data), Length: len(data)}, data))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func TestFlowsCommand(t *testing.T) {
	a := startAgent(t)
	a.shows("flows --service web --client 192.0.2.0/24 --limit 1", "web      tcp 10.1.1.1:80  192.0.2.0:24  left     0s\n",
		"the latest 1 of 2: --limit shows more\n", "3 flows recorded, room for 8; 0 ring entries unstable\n")
	a.shows("flows --client 2001:db8::7", "[2001:db8::7]:128", "the latest 1 of 101")
	var flows observe.Flows
	if a.decodes("flows", &flows); flows.Capacity != 8 || len(flows.Flows) != 1 {
		t.Errorf("%+v", flows)
	}
	a.fails("flows --service nosuch", `"nosuch"`)
}
