// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// maxPayload is the longest that the tests send: the answer, which is longer by
// the server's name, fits into a packet of 1500 bytes.
const maxPayload = 1400

// window is how many datagrams are on their way at a time: so many fit into the
// receive buffer of one server, should all go there.
const window = 32

// echo sends two datagrams from each of so many ports and returns which server
// has answered each; nobody is "". Both have to come back intact and from the
// same server.
func (l *lab) echo(t *testing.T, client, vip string, ports []int) map[int]string {
	t.Helper()
	answers := map[int]string{}
	for some := range slices.Chunk(ports, window) {
		conns := l.sockets(t, client, vip, some)
		for round := range 2 {
			names, err := exchange(conns, round)
			if err != nil {
				t.Errorf("%s: %s: %v", client, vip, err)
			}
			for port, name := range names {
				if before, again := answers[port]; again && before != name {
					t.Errorf("%s: port %d: answered by %q, then in round %d by %q", vip, port, before, round, name)
				}
				answers[port] = name
			}
		}
		for _, c := range conns {
			_ = c.Close()
		}
	}
	return answers
}

// sockets opens one socket for each port.
func (l *lab) sockets(t *testing.T, client, vip string, ports []int) map[int]*net.UDPConn {
	t.Helper()
	conns := map[int]*net.UDPConn{}
	err := l.Do(client, func() error {
		for _, port := range ports {
			conn, err := net.DialUDP("udp", &net.UDPAddr{Port: port}, &net.UDPAddr{IP: net.ParseIP(vip), Port: 7})
			if err != nil {
				return err
			}
			conns[port] = conn
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return conns
}

// exchange sends a datagram on every socket and then collects the answers; "" is
// none in time.
func exchange(conns map[int]*net.UDPConn, round int) (map[int]string, error) {
	ports := slices.Sorted(maps.Keys(conns))
	for _, port := range ports {
		if _, err := conns[port].Write(payload(port, round)); err != nil {
			return nil, err
		}
	}
	names := map[int]string{}
	deadline := time.Now().Add(time.Second)
	answer := make([]byte, 2*maxPayload)
	for _, port := range ports {
		// A socket whose time is over isn't read, even if the answer is there.
		soon := time.Now().Add(time.Millisecond)
		if deadline.Before(soon) {
			deadline = soon
		}
		if err := conns[port].SetReadDeadline(deadline); err != nil {
			return nil, err
		}
		n, err := conns[port].Read(answer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			names[port] = ""
			continue
		}
		if err != nil {
			return nil, err
		}
		name, echoed, _ := bytes.Cut(answer[:n], []byte(" "))
		if !bytes.Equal(echoed, payload(port, round)) {
			return nil, fmt.Errorf("port %d: %d bytes came back changed", port, len(payload(port, round)))
		}
		names[port] = string(name)
	}
	return names, nil
}

// echoes sends datagrams from some ports, over and over. What it returns ends
// that, and says how many were sent: each has to be answered, and those of a port
// by one server.
func (l *lab) echoes(t *testing.T, client, vip string) (end func() int) {
	t.Helper()
	conns := l.sockets(t, client, vip, ports(window))
	ctx, cancel := context.WithCancel(t.Context())
	sent, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		servers := map[int]string{}
		for round := 0; ctx.Err() == nil; round++ {
			names, err := exchange(conns, round)
			sent += len(conns)
			if err != nil {
				t.Errorf("%s: %s: %v", client, vip, err)
				return
			}
			for port, name := range names {
				if round > 0 && name != servers[port] {
					t.Errorf("%s: port %d: answered by %q, then in round %d by %q", vip, port, servers[port], round, name)
				}
			}
			servers = names
		}
	}()
	stop := sync.OnceValue(func() int {
		cancel()
		<-ended
		for _, c := range conns {
			_ = c.Close()
		}
		return sent
	})
	t.Cleanup(func() { stop() })
	return stop
}

// payload differs for each port and round. The lengths of those of a thousand
// ports are spread over 1 to maxPayload.
func payload(port, round int) []byte {
	text := fmt.Appendf(nil, "%d from port %d ", round, port)
	return bytes.Repeat(text, maxPayload/len(text)+1)[:1+port*7%maxPayload]
}

// ports returns count of them that nobody else uses in a lab's client.
func ports(count int) []int {
	list := make([]int, count)
	for i := range list {
		list[i] = 20000 + i
	}
	return list
}

// byServer counts ports by the server that answers them.
func byServer(answers map[int]string) map[string]int {
	counts := map[string]int{}
	for _, name := range answers {
		counts[name]++
	}
	return counts
}
