// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/netlab"
)

// tally is what the kernels of some hosts have counted of TCP and UDP, both
// families together.
type tally struct {
	sent, received uint64 // packets; the sent ones include repetitions
	repeated       uint64 // TCP segments that were sent again
	badChecksums   uint64
}

// books are all counters between client and servers at one time. Reading them
// takes some milliseconds: they agree only when nothing is on its way.
type books struct {
	clients, servers tally
	balancers        map[string]exits
	// lost counts what interfaces dropped, in all hosts.
	lost uint64
}

func (l *lab) books(t *testing.T) books {
	t.Helper()
	b := books{balancers: map[string]exits{}}
	for _, h := range l.State().Hosts {
		counters, lost := l.kernel(t, h.Name)
		b.lost += lost
		switch h.Role {
		case netlab.Client:
			b.clients.add(counters)
		case netlab.Server:
			b.servers.add(counters)
			b.servers.received -= l.carriers(t, h.Name)
		case netlab.Balancer:
			b.balancers[h.Name] = exitsOf(t, &h)
			if host := l.topology.Host(h.Name); len(host.Overlays) > 0 || len(host.Interfaces) > 1 || host.Agent.BGP != nil {
				delete(b.balancers[h.Name], "pass_not_vip") // what carries the overlay, is for pods, or tells of routes
			}
		}
	}
	return b
}

// carriers is how many datagrams a host has received that only carried a frame of
// a segment: the kernel counts them beside what was in them.
func (l *lab) carriers(t *testing.T, host string) uint64 {
	t.Helper()
	sum := uint64(0)
	for _, o := range l.topology.Host(host).Overlays {
		sum += l.frames(t, host)[o.Name].received
	}
	return sum
}

// quiet is how many readings in a row have to be alike before nothing is taken
// to be on its way: a connection of an earlier test may still be closing.
const quiet = 10

// quietBooks reads the books when nothing is on its way.
func (l *lab) quietBooks(t *testing.T) books {
	t.Helper()
	last, alike := l.books(t), 0
	until(t, "the lab is quiet", func() bool {
		b := l.books(t)
		alike++
		if b.clients != last.clients || b.servers != last.servers {
			alike = 0
		}
		last = b
		return alike == quiet
	})
	return last
}

func (b books) minus(before books) books {
	diff := books{
		clients: b.clients.minus(before.clients), servers: b.servers.minus(before.servers),
		balancers: map[string]exits{}, lost: b.lost - before.lost,
	}
	for name, e := range b.balancers {
		diff.balancers[name] = e.minus(before.balancers[name])
	}
	return diff
}

// exit sums an exit over all balancers; several are joined by "+".
func (b books) exit(names string) uint64 {
	sum := uint64(0)
	for _, e := range b.balancers {
		sum += e.sum(names)
	}
	return sum
}

// balanced reports whether every packet of the clients was forwarded once and
// arrived, and every packet of the servers arrived; with NAT through a balancer.
func (b books) balanced(forwarded string) bool {
	if strings.HasPrefix(forwarded, "forward_nat") && b.exit("forward_nat_reply") != b.servers.sent {
		return false
	}
	return b.clients.sent == b.exit(forwarded) && b.exit(forwarded) == b.servers.received &&
		b.servers.sent == b.clients.received
}

func (b books) String() string {
	text := fmt.Sprintf("clients %+v\nservers %+v\nlost    %d\n", b.clients, b.servers, b.lost)
	for _, name := range slices.Sorted(maps.Keys(b.balancers)) {
		text += fmt.Sprintf("%s     %v\n", name, b.balancers[name])
	}
	return text
}

// add counts a host. A kernel counts repeated segments apart, but resets and
// the like among the others.
func (a *tally) add(c map[string]uint64) {
	a.sent += c["TcpOutSegs"] + c["TcpRetransSegs"] + c["UdpOutDatagrams"] + c["Udp6OutDatagrams"]
	a.received += c["TcpInSegs"] + c["UdpInDatagrams"] + c["Udp6InDatagrams"]
	a.repeated += c["TcpRetransSegs"]
	a.badChecksums += c["TcpInCsumErrors"] + c["UdpInCsumErrors"] + c["Udp6InCsumErrors"]
}

func (a tally) minus(b tally) tally {
	return tally{
		a.sent - b.sent, a.received - b.received, a.repeated - b.repeated, a.badChecksums - b.badChecksums,
	}
}

// kernel reads the protocol counters of a host by the names that nstat(8) gives
// them, and how many frames its interfaces have dropped.
func (l *lab) kernel(t *testing.T, host string) (counters map[string]uint64, lost uint64) {
	t.Helper()
	counters = map[string]uint64{}
	parseSNMP(counters, l.procNet(t, host, "snmp"))
	parseSNMP6(counters, l.procNet(t, host, "snmp6"))
	for _, name := range []string{"TcpInSegs", "UdpInDatagrams", "Udp6InDatagrams"} {
		if _, ok := counters[name]; !ok {
			t.Fatalf("%s: the kernel doesn't count %s", host, name)
		}
	}
	for _, frames := range l.frames(t, host) {
		lost += frames.dropped
	}
	return counters, lost
}

// frames returns what the interfaces of a host have counted.
func (l *lab) frames(t *testing.T, host string) map[string]frames {
	t.Helper()
	return parseDev(l.procNet(t, host, "dev"))
}

// procNet reads a file of a host's /proc/net.
func (l *lab) procNet(t *testing.T, host, file string) string {
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

// frames counts an interface's.
type frames struct{ received, sent, dropped uint64 }

// parseDev reads the interfaces of /proc/net/dev: bytes, packets, errors, drops
// and four more numbers, received and then sent.
func parseDev(text string) map[string]frames {
	interfaces := map[string]frames{}
	for line := range strings.Lines(text) {
		name, rest, found := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if !found || len(fields) != 16 {
			continue // a heading
		}
		interfaces[strings.TrimSpace(name)] = frames{
			received: number(fields[1]), sent: number(fields[9]),
			dropped: number(fields[2]) + number(fields[3]) + number(fields[10]) + number(fields[11]),
		}
	}
	return interfaces
}

// number is 0 for what is none, such as the -1 that stands for no limit.
func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
