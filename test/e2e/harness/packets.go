// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
)

// packetCounts has the kernels' counters of TCP and UDP on some hosts, both
// families together.
type packetCounts struct {
	sent, received uint64 // packets; the sent ones include repetitions
	repeated       uint64 // TCP segments that were sent again
	badChecksums   uint64
}

// Totals are all packet counters between clients and servers. Reading them takes some
// milliseconds: they agree only while no packet is in flight.
type Totals struct {
	clients, servers packetCounts
	balancers        map[string]Exits
	// lost counts the frames that each interface of each host has dropped.
	lost map[string]uint64
}

// Totals reads the counters of all hosts.
func (l *Lab) Totals(t *testing.T) Totals {
	t.Helper()
	b := Totals{balancers: map[string]Exits{}, lost: map[string]uint64{}}
	b.clients, b.servers = l.ends(t)
	for _, h := range l.State().Hosts {
		for name, frames := range Frames(t, l, h.Name) {
			b.lost[h.Name+" "+name] = frames.dropped
		}
		if h.Role == netlab.Balancer {
			b.balancers[h.Name] = ExitsOf(t, &h)
			if host := l.Topology.Host(h.Name); len(host.Overlays) > 0 || len(host.Interfaces) > 1 || host.Agent.BGP != nil {
				delete(b.balancers[h.Name], "pass_not_vip") // tunnel packets, those for pods, and BGP
			}
		}
	}
	return b
}

// ends reads the kernels' counters of clients and servers.
func (l *Lab) ends(t *testing.T) (clients, servers packetCounts) {
	t.Helper()
	for _, h := range l.State().Hosts {
		switch h.Role { //nolint:exhaustive // other hosts only forward
		case netlab.Client:
			clients.add(Kernel(t, l, h.Name))
		case netlab.Server:
			servers.add(Kernel(t, l, h.Name))
			servers.received -= carrierPackets(t, l, h.Name)
		}
	}
	return clients, servers
}

// CheckPackets runs traffic and compares the counters of senders, XDP and receivers,
// which must agree to a packet: every packet of the client was forwarded by one
// balancer and received by a server, and every answer came back. Without NAT no answer
// passed a balancer (pass_not_vip); with NAT each one was translated.
//
// A retransmission alone does not fail the test: on a busy machine a late answer causes
// it. It is reported.
func (l *Lab) CheckPackets(t *testing.T, forwarded string, traffic func()) {
	t.Helper()
	before := l.SettledTotals(t)
	traffic()
	var b Totals
	settled := await.Holds(func() bool {
		b = l.Totals(t).Minus(before)
		return b.balanced(forwarded)
	})
	if !settled {
		t.Errorf("packets are missing: sent, %s and received don't agree:\n%s", forwarded, b)
	}
	b.CheckClean(t)
	if again := b.clients.repeated + b.servers.repeated; again > 0 {
		Retried(t, "%d TCP segments were retransmitted", again)
	}
	for name, e := range b.balancers {
		if e.Sum(forwarded) == 0 {
			t.Errorf("%s took no part:\n%s", name, b)
		}
	}
}

// CheckClean reports packets that were damaged, dropped or not balanced.
func (b Totals) CheckClean(t *testing.T) {
	t.Helper()
	if b.clients.badChecksums+b.servers.badChecksums > 0 {
		t.Errorf("wrong checksums:\n%s", b)
	}
	if len(b.lost) > 0 {
		t.Errorf("interfaces dropped frames:\n%s", b)
	}
	for name, e := range b.balancers {
		for exit, packets := range e {
			if packets > 0 && (strings.HasPrefix(exit, "drop_") || exit == "pass_not_vip") {
				t.Errorf("%s: %d packets left by %s", name, packets, exit)
			}
		}
	}
}

// carrierPackets is the number of received datagrams that carried a frame of a segment:
// the kernel counts them in addition to the packets inside.
func carrierPackets(t *testing.T, l *Lab, host string) uint64 {
	t.Helper()
	sum := uint64(0)
	for _, o := range l.Topology.Host(host).Overlays {
		sum += Frames(t, l, host)[o.Name].Received
	}
	return sum
}

// settledReadings is the number of equal readings in a row after which no packet is
// assumed to be in flight: a connection of an earlier test may still be closing.
const settledReadings = 20

// SettledTotals reads the totals when no packet is in flight.
func (l *Lab) SettledTotals(t *testing.T) Totals {
	t.Helper()
	lastClients, lastServers := l.ends(t)
	alike := 0
	quiet := await.Holds(func() bool {
		clients, servers := l.ends(t)
		alike++
		if clients != lastClients || servers != lastServers {
			alike = 0
		}
		lastClients, lastServers = clients, servers
		return alike == settledReadings
	})
	if !quiet {
		t.Fatal("clients and servers don't stop to send")
	}
	return l.Totals(t)
}

// Minus returns the counts since before.
func (b Totals) Minus(before Totals) Totals {
	diff := Totals{
		clients: b.clients.minus(before.clients), servers: b.servers.minus(before.servers),
		balancers: map[string]Exits{}, lost: map[string]uint64{},
	}
	for name, frames := range b.lost {
		if frames > before.lost[name] {
			diff.lost[name] = frames - before.lost[name]
		}
	}
	for name, e := range b.balancers {
		diff.balancers[name] = e.Minus(before.balancers[name])
	}
	return diff
}

// Exit sums an exit over all balancers; several are joined by "+".
func (b Totals) Exit(names string) uint64 {
	sum := uint64(0)
	for _, e := range b.balancers {
		sum += e.Sum(names)
	}
	return sum
}

// balanced reports whether every packet of the clients was forwarded once and
// arrived, and every packet of the servers arrived; with NAT through a balancer.
func (b Totals) balanced(forwarded string) bool {
	if strings.HasPrefix(forwarded, "forward_nat") && b.Exit("forward_nat_reply") != b.servers.sent {
		return false
	}
	return b.clients.sent == b.Exit(forwarded) && b.Exit(forwarded) == b.servers.received &&
		b.servers.sent == b.clients.received
}

func (b Totals) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "clients %+v\nservers %+v\nlost    %v\n", b.clients, b.servers, b.lost)
	for _, name := range slices.Sorted(maps.Keys(b.balancers)) {
		fmt.Fprintf(&text, "%s     %v\n", name, b.balancers[name])
	}
	return text.String()
}

// add counts a host. A kernel counts repeated segments apart, but resets and
// the like among the others.
func (a *packetCounts) add(c map[string]uint64) {
	a.sent += c["TcpOutSegs"] + c["TcpRetransSegs"] + c["UdpOutDatagrams"] + c["Udp6OutDatagrams"]
	a.received += c["TcpInSegs"] + c["UdpInDatagrams"] + c["Udp6InDatagrams"]
	a.repeated += c["TcpRetransSegs"]
	a.badChecksums += c["TcpInCsumErrors"] + c["UdpInCsumErrors"] + c["Udp6InCsumErrors"]
}

func (a packetCounts) minus(b packetCounts) packetCounts {
	return packetCounts{
		a.sent - b.sent, a.received - b.received, a.repeated - b.repeated, a.badChecksums - b.badChecksums,
	}
}

// Kernel reads the protocol counters of a host by the names that nstat(8) gives
// them.
func Kernel(t *testing.T, l *Lab, host string) map[string]uint64 {
	t.Helper()
	counters := map[string]uint64{}
	parseSNMP(counters, procNet(t, l, host, "snmp"))
	parseSNMP6(counters, procNet(t, l, host, "snmp6"))
	for _, name := range []string{"TcpInSegs", "UdpInDatagrams", "Udp6InDatagrams"} {
		if _, ok := counters[name]; !ok {
			t.Fatalf("%s: the kernel doesn't count %s", host, name)
		}
	}
	return counters
}

// Frames returns the counters of a host's interfaces.
func Frames(t *testing.T, l *Lab, host string) map[string]InterfaceCounts {
	t.Helper()
	return parseDev(procNet(t, l, host, "dev"))
}

// procNet reads a file of a host's /proc/net.
func procNet(t *testing.T, l *Lab, host, file string) string {
	t.Helper()
	var text []byte
	err := l.Do(host, func() (err error) {
		// The thread's, not the process's: only the thread is in the namespace.
		text, err = os.ReadFile(filepath.Join("/proc/thread-self/net", file))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// parseSNMP reads pairs of lines: names behind a prefix, and values behind the
// same one.
func parseSNMP(counters map[string]uint64, text string) {
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j := 1; j < len(names) && j < len(values); j++ {
			counters[strings.TrimSuffix(names[0], ":")+names[j]] = number(values[j])
		}
	}
}

// parseSNMP6 reads lines of a name and a value.
func parseSNMP6(counters map[string]uint64, text string) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 {
			counters[fields[0]] = number(fields[1])
		}
	}
}

// InterfaceCounts are the frames that an interface has counted.
type InterfaceCounts struct{ Received, sent, dropped uint64 }

// parseDev reads the interfaces of /proc/net/dev: bytes, packets, errors, drops
// and four more numbers, received and then sent.
func parseDev(text string) map[string]InterfaceCounts {
	interfaces := map[string]InterfaceCounts{}
	for line := range strings.Lines(text) {
		name, rest, found := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if !found || len(fields) != 16 {
			continue // a heading
		}
		interfaces[strings.TrimSpace(name)] = InterfaceCounts{
			Received: number(fields[1]), sent: number(fields[9]),
			dropped: number(fields[2]) + number(fields[3]) + number(fields[10]) + number(fields[11]),
		}
	}
	return interfaces
}

// number returns 0 for a text that is not a number of that kind, such as the -1
// that stands for no limit.
func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
