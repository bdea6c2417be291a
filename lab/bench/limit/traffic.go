// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/lb"
)

// Bytes of a frame (table C.3). The overhead is preamble, frame check sequence and gap.
const etherHeader, shortestFrame, overhead = 14, 60, 8 + 4 + 12

// Directions of packets.
const request, answer = "request", "answer"

// count is a number of packets and their bytes on the wire.
type count struct{ Packets, Bytes int }

// traffic is the packets of a connection of perConnection requests, by direction and kind: the
// rows of tables C.1 and C.2, of which the header and the file of an answer are one.
type traffic map[string]map[string]count

// each is the number of packets and bytes of a direction for one request.
func (t traffic) each(direction string) (packets, bytes float64) {
	for _, c := range t[direction] {
		packets, bytes = packets+float64(c.Packets)/perConnection, bytes+float64(c.Bytes)/perConnection
	}
	return packets, bytes
}

// capture collects the traffic of the first connection to an address that is used: wrk opens one
// before it starts.
type capture struct {
	server  netip.Addr
	client  layers.TCPPort
	traffic traffic
}

// see records a frame, which may be cut behind its headers.
func (c *capture) see(frame []byte) {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	ip, ok1 := packet.NetworkLayer().(*layers.IPv4)
	tcp, ok2 := packet.TransportLayer().(*layers.TCP)
	if !ok1 || !ok2 {
		return
	}
	direction, client := request, tcp.SrcPort
	if ip.SrcIP.Equal(c.server.AsSlice()) {
		direction, client = answer, tcp.DstPort
	}
	if tcp.SYN && direction == request && c.traffic[request]["data"].Packets == 0 {
		c.client, c.traffic = client, traffic{request: {}, answer: {}}
	}
	if client != c.client {
		return
	}
	kind := "ack"
	switch {
	case tcp.SYN:
		kind = "syn"
	case int(ip.Length) > 4*int(ip.IHL)+4*int(tcp.DataOffset):
		kind = "data"
	case tcp.FIN, tcp.RST:
		kind = "fin"
	}
	seen := c.traffic[direction][kind]
	c.traffic[direction][kind] = count{seen.Packets + 1, seen.Bytes + max(etherHeader+int(ip.Length), shortestFrame) + overhead}
}

// link is one direction of a machine's link, with the device that sends into it, and the bytes
// that a request and its answer take. Without a host it can't be shaped.
type link struct {
	name, host, device string
	bytes              float64
	// perSecond is how many requests a second the link carries while it is shaped: few enough for
	// two processors that run all hosts.
	perSecond float64
}

// answers is the most bytes a second of answers over a shaped link.
const answers = 100e6 / 8

// links returns the links of client, balancer and server. XDP sends past the queues of a device, so
// the balancer's packets are shaped behind the switch, unless they have two destinations.
func (t traffic) links(mode lb.Forward) []link {
	const most = 1500                                                // requests a second
	outer := map[lb.Forward]float64{lb.IPIP: 20, lb.GUE: 20 + 8 + 4} // headers that a balancer adds
	packets, there := t.each(request)
	_, back := t.each(answer)
	in, out, host, rate := there, there+packets*outer[mode], "switch", min(most, answers/back)
	if mode.Translates() {
		in, out, host = there+back, there+back, ""
	}
	return []link{
		{"client in", "router", "eth0", back, rate}, {"balancer in", "switch", "lb1", in, rate},
		{"balancer out", host, "server1", out, rate}, {"server out", "server1", "eth0", back, rate},
	}
}

// rate is the link's while it is shaped, in bits a second.
func (l link) rate() float64 { return l.perSecond * l.bytes * 8 }
