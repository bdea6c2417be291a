// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// As with kube-proxy, a removed backend keeps its TCP connections and loses its UDP flows, with an
// answer that is on its way; one of weight 0 keeps both.
func TestKubeProxy(t *testing.T) {
	labs := newLabs(t)
	topology := drawn(t, ECMP, ECMPOptions{Forward: lb.NAT, Balancers: 1, Servers: 2, Router: FRR, EchoPorts: []uint16{echoPort}})
	topology.KubeProxy(topology.Services)
	lab := bringUp(t, labs, topology)
	sync := func(change func(backends []lb.Backend) []lb.Backend) {
		services := slices.Clone(topology.Services)
		for i := range services {
			services[i].Backends = change(slices.Clone(services[i].Backends))
		}
		if err := SyncKubeProxy(t.Context(), lab, "lb1", services); err != nil {
			t.Fatal(err)
		}
	}
	await := func(fn func() error) {
		ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
		defer cancel()
		if err := Await(ctx, Poll, fn); err != nil {
			t.Fatal(err)
		}
	}
	for _, vip := range vips() {
		sync(func(both []lb.Backend) []lb.Backend { return both })
		dial := func(network string) net.Conn {
			conn, err := lab.Dial(t.Context(), "client", network, netip.AddrPortFrom(vip, echoPort).String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		flow, connection := dial("udp"), dial("tcp")
		for answerOf(t, flow) != answerOf(t, connection) {
			connection = dial("tcp")
		}
		first := answerOf(t, flow)
		n := slices.Index(topology.Probes[0].Answers, first)
		signal := func(signal unix.Signal) {
			if err := lab.Signal(t.Context(), first, "echo", signal); err != nil {
				t.Fatal(err)
			}
		}
		signal(unix.SIGSTOP)
		await(func() error { return stopped(lab.State().Host(first).Process("echo").PID) })
		if _, err := flow.Write([]byte("asked before\n")); err != nil {
			t.Fatal(err)
		}
		await(func() error { return waiting(lab, first) })
		before, err := RefusedDatagrams(lab, "lb1")
		if err != nil {
			t.Fatal(err)
		}
		sync(func(both []lb.Backend) []lb.Backend { return slices.Delete(both, n, n+1) })
		signal(unix.SIGCONT)
		await(func() error {
			refused, err := RefusedDatagrams(lab, "lb1")
			if err == nil && refused != before+1 {
				err = fmt.Errorf("%s: %d answers of %s were refused, want that of the deleted flow", vip, refused-before, first)
			}
			return err
		})
		second := answerOf(t, flow)
		if stayed := answerOf(t, connection); stayed != first || second == first {
			t.Errorf("%s: without %s the connection is at %s, the flow at %s", vip, first, stayed, second)
		}
		sync(func(both []lb.Backend) []lb.Backend { both[1-n].Weight = 0; return both })
		if stayed, begun := answerOf(t, flow), answerOf(t, dial("udp")); stayed != second || begun != first {
			t.Errorf("%s: with weight 0 of %s its flow is at %s, a new one at %s", vip, second, stayed, begun)
		}
	}
	removeAll(t, labs, lab)
}

// stopped returns an error unless each thread of a process is stopped, which happens after its signal.
func stopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil || !strings.Contains(string(text), "State:\tT (stopped)") {
			return cmp.Or(err, fmt.Errorf("%s isn't stopped", thread))
		}
	}
	return err
}

// queued matches a socket of /proc/net/udp whose queue isn't empty.
var queued = regexp.MustCompile(`(?m)^ *\d+: \S+ \S+ \S+ [0-9A-F]{8}:0*[1-9A-F]`)

// waiting returns an error unless a datagram is in the queue of a host's socket.
func waiting(lab *Lab, host string) error {
	return lab.Do(host, func() error {
		for _, file := range []string{"udp", "udp6"} {
			if text, err := os.ReadFile(filepath.Join("/proc/thread-self/net", file)); err != nil || queued.Match(text) {
				return err
			}
		}
		return fmt.Errorf("%s: no datagram waits", host)
	})
}

// answerOf returns the name of the echo server that answers.
func answerOf(t *testing.T, conn net.Conn) string {
	t.Helper()
	err := conn.SetDeadline(time.Now().Add(readyTimeout))
	if err == nil {
		_, err = conn.Write([]byte("line\n"))
	}
	buffer, n := make([]byte, 64), 0
	if err == nil {
		n, err = conn.Read(buffer)
	}
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(string(buffer[:n]), " ")
	return name
}
