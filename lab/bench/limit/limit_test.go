// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"encoding/json"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
)

// dissertation is the traffic of tables C.1 and C.2 with answers of 13 bytes.
func dissertation() traffic {
	return traffic{
		request: {"syn": {1, 98}, "ack": {102, 9180}, "data": {100, 13400}, "fin": {1, 90}},
		answer:  {"syn": {1, 98}, "ack": {2, 180}, "data": {200, 34400 + 10300}, "fin": {1, 90}},
	}
}

// The model has the dissertation's limits: 184,267 requests a second through a balancer with NAT
// and a link of 1 Gbit/s, and 4.66 and 4.27 million that a balancer with 10 Gbit/s sends in
// tunnels.
func TestLinks(t *testing.T) {
	const gigabyte = 1e9 / 8
	for _, test := range []struct {
		mode lb.Forward
		link string
		want float64 // bytes
	}{
		{lb.NAT, "balancer in", gigabyte / 184267},
		{lb.NAT, "balancer out", gigabyte / 184267},
		{lb.NAT, "client in", 450.68},
		{lb.L2DSR, "balancer in", 227.68},
		{lb.L2DSR, "balancer out", 227.68},
		{lb.L2DSR, "server out", 450.68},
		{lb.IPIP, "balancer in", 227.68},
		{lb.IPIP, "balancer out", 10 * gigabyte / 4.66e6},
		{lb.GUE, "balancer out", 10 * gigabyte / 4.27e6},
	} {
		for _, l := range dissertation().links(test.mode) {
			if l.name == test.link && math.Abs(l.bytes/test.want-1) > 0.002 {
				t.Errorf("%s, %s: %.2f bytes, want %.2f", test.mode, l.name, l.bytes, test.want)
			}
			if l.host == "" && (test.mode != lb.NAT || l.name != "balancer out") {
				t.Errorf("%s, %s: not shaped", test.mode, l.name)
			}
		}
	}
}

// segment is a TCP packet between client and server, cut as a tap cuts it.
type segment struct {
	fromServer    bool
	port          layers.TCPPort // the client's
	syn, fin, rst bool
	payload       int
}

func (s segment) frame(t *testing.T, server netip.Addr) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{10, 0, 1, 2}, DstIP: server.AsSlice()}
	tcp := &layers.TCP{SrcPort: s.port, DstPort: 80, SYN: s.syn, FIN: s.fin, RST: s.rst}
	if s.fromServer {
		ip.SrcIP, ip.DstIP, tcp.SrcPort, tcp.DstPort = ip.DstIP, ip.SrcIP, tcp.DstPort, tcp.SrcPort
	}
	if !s.rst { // time stamps
		tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}}
	}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6), DstMAC: make(net.HardwareAddr, 6), EthernetType: layers.EthernetTypeIPv4},
		ip, tcp, gopacket.Payload(make([]byte, s.payload)))
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()[:min(len(b.Bytes()), 128)]
}

// A capture counts the first connection that has a request.
func TestCapture(t *testing.T) {
	c := capture{server: netip.MustParseAddr("10.1.1.1")}
	c.see([]byte("no packet"))
	for _, s := range []segment{
		{port: 1, syn: true}, {fromServer: true, port: 1, syn: true}, {port: 1}, {port: 1, fin: true},
		{port: 2, syn: true}, {fromServer: true, port: 2, syn: true}, {port: 2},
		{port: 2, payload: 44},
		{fromServer: true, port: 2, payload: 250},
		{port: 3, syn: true}, {fromServer: true, port: 3, payload: 10},
		{fromServer: true, port: 2, payload: 1000, fin: true},
		{port: 2, rst: true},
	} {
		c.see(s.frame(t, c.server))
	}
	want := traffic{
		request: {"syn": {1, 90}, "ack": {1, 90}, "data": {1, 134}, "fin": {1, 84}},
		answer:  {"syn": {1, 90}, "data": {2, 90 + 250 + 90 + 1000}},
	}
	got, err1 := json.Marshal(c.traffic)
	wanted, err2 := json.Marshal(want)
	if err1 != nil || err2 != nil || string(got) != string(wanted) {
		t.Errorf("seen %s, want %s (%v, %v)", got, wanted, err1, err2)
	}
}

// The report compares the median of the runs with the prediction, and has the tables.
func TestReport(t *testing.T) {
	r, err := bench.NewReport("limit", "", false)
	if err != nil {
		t.Fatal(err)
	}
	near := sample{Size: 13, Traffic: dissertation(), Rates: map[string]bench.Runs{"balancer in": {500, 1500 * 1.02, 2000}}}
	far := sample{Size: 13, Traffic: dissertation(), Rates: map[string]bench.Runs{"server out": {1400}}}
	if err := report(r, bench.Found[[]sample]{"nat": {{near}}, "l2dsr": {{far}}}); err != nil {
		t.Fatal(err)
	}
	if d := r.Ratios["nat_deviation"]; math.Abs(d-0.02) > 0.001 {
		t.Errorf("deviation %.3f, want 0.02", d)
	}
	if len(r.Verdicts) != 2 || r.Verdicts[0].Holds || !r.Verdicts[1].Holds {
		t.Errorf("verdicts %+v, want that only nat's holds", r.Verdicts)
	}
	captured := 0.0
	for _, result := range r.Results {
		switch {
		case result.Name == "captured_bytes" && result.Labels["direction"] == request:
			captured += result.Median
		case result.Name == "allowed" && result.Labels["mode"] == "nat" && result.Labels["gigabit"] == "10" && math.Abs(result.Median-1842670) > 10:
			t.Errorf("10 Gbit/s allow %.0f requests a second, want 1842670", result.Median)
		case strings.Contains(result.Unit, "per Gbit/s") && result.Labels["link"] == "balancer out" && result.Name == "measured":
			t.Error("a link that isn't shaped is measured")
		}
	}
	if captured != 22768 {
		t.Errorf("100 requests have %.0f bytes, want 22768", captured)
	}
}
