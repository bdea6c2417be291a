// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/test/await"
)

// Pace is the interval between requests on one of many connections: short enough
// that some are always in flight, long enough to leave the processors to the agents.
const Pace = 100 * time.Millisecond

// MaxPayload is the longest payload that tests send. The answer, which adds the
// server's name, fits into a packet of 1500 bytes.
const MaxPayload = 1400

// Window is the number of datagrams in flight: they fit into the receive buffer of
// one server if all go there.
const Window = 32

// Echo sends two datagrams from each port and returns which server answered it, ""
// for none. Both have to come back intact and from the same server.
func (l *Lab) Echo(t *testing.T, client, vip string, ports []int) map[int]string {
	t.Helper()
	answers := map[int]string{}
	for some := range slices.Chunk(ports, Window) {
		conns := l.Sockets(t, client, vip, some)
		for round := range 2 {
			names, err := Exchange(conns, Payload(round))
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
		CloseSockets(conns)
	}
	return answers
}

// Sockets opens one socket for each port.
func (l *Lab) Sockets(t *testing.T, client, vip string, ports []int) map[int]*net.UDPConn {
	t.Helper()
	conns := map[int]*net.UDPConn{}
	err := l.Do(client, func() error {
		for _, port := range ports {
			conn, err := dialUDP(port, &net.UDPAddr{IP: net.ParseIP(vip), Port: 7})
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

// dialUDP waits until the port is free: a command that another test starts inherits all
// sockets until it executes its program, those that were just closed too.
func dialUDP(port int, to *net.UDPAddr) (*net.UDPConn, error) {
	deadline := time.Now().Add(await.Patience)
	for {
		conn, err := net.DialUDP("udp", &net.UDPAddr{Port: port}, to)
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return conn, err
		}
		time.Sleep(time.Millisecond)
	}
}

// CloseSockets closes the sockets that Sockets has opened.
func CloseSockets(conns map[int]*net.UDPConn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// Exchange sends a datagram on every socket and then collects the answers: the name of
// the server, or "" where none came within a second; in short mode, on emulated processors, ten.
func Exchange(conns map[int]*net.UDPConn, payload func(port int) []byte) (map[int]string, error) {
	ports := slices.Sorted(maps.Keys(conns))
	for _, port := range ports {
		if _, err := conns[port].Write(payload(port)); err != nil {
			return nil, err
		}
	}
	names := map[int]string{}
	var mu sync.Mutex
	var group errgroup.Group
	wait := time.Second
	if testing.Short() {
		wait = 10 * time.Second
	}
	deadline := time.Now().Add(wait)
	for _, port := range ports {
		// All are read at once: a read that begins after its deadline fails even if the
		// answer has arrived.
		group.Go(func() error {
			if err := conns[port].SetReadDeadline(deadline); err != nil {
				return err
			}
			name, err := answerTo(conns[port], payload(port))
			if err != nil {
				return fmt.Errorf("port %d: %w", port, err)
			}
			mu.Lock()
			defer mu.Unlock()
			names[port] = name
			return nil
		})
	}
	return names, group.Wait()
}

// answerTo returns the server that sends a payload back before the read deadline, "" for
// none. Other bytes before it are an answer to an earlier payload that was late; other bytes
// alone are an error.
func answerTo(conn *net.UDPConn, payload []byte) (server string, err error) {
	answer, others := make([]byte, 2*MaxPayload), 0
	for {
		n, err := conn.Read(answer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && others == 0:
			return "", nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return "", fmt.Errorf("%d bytes came back changed", len(payload))
		case err != nil:
			return "", err
		}
		name, echoed, _ := bytes.Cut(answer[:n], []byte(" "))
		if bytes.Equal(echoed, payload) {
			return string(name), nil
		}
		others++
	}
}

// Payload returns payloads that differ for each port and round. The lengths for a
// thousand ports are spread over 1 to MaxPayload.
func Payload(round int) func(port int) []byte {
	return func(port int) []byte {
		text := fmt.Appendf(nil, "%d from port %d ", round, port)
		return bytes.Repeat(text, MaxPayload/len(text)+1)[:1+port*7%MaxPayload]
	}
}

// Ports returns local ports that nothing else uses in a lab's client.
func Ports(count int) []int {
	list := make([]int, count)
	for i := range list {
		list[i] = 20000 + i
	}
	return list
}

// ByServer counts ports by the server that answers them.
func ByServer(answers map[int]string) map[string]int {
	counts := map[string]int{}
	for _, name := range answers {
		counts[name]++
	}
	return counts
}
