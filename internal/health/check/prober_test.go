// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/fake"
)

// ask probes a server once and returns the reason.
func ask(t *testing.T, check lb.HealthCheck, server string) string {
	t.Helper()
	return askAlong(t, check, health.Path{Target: netip.MustParseAddrPort(server)})
}

func askAlong(t *testing.T, check lb.HealthCheck, path health.Path) string {
	t.Helper()
	if check.Timeout == 0 {
		check.Timeout = await.Patience
	}
	ctx, cancel := context.WithTimeout(t.Context(), check.Timeout)
	defer cancel()
	err := New(&check).Probe(ctx, path)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, health.ErrLocal):
		return "local: " + err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("timed out after %s", check.Timeout)
	}
	return err.Error()
}

// wantReason probes a server once and checks the reason.
func wantReason(t *testing.T, check lb.HealthCheck, server, want string) {
	t.Helper()
	if got := ask(t, check, server); got != want {
		t.Errorf("%s probe of %s: reason %q, want %q", check.Type, server, got, want)
	}
}

// expectReasons asks one server in several ways.
func expectReasons(t *testing.T, server string, tests map[string]reasonTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			wantReason(t, test.check, server, test.want)
		})
	}
}

type reasonTest struct {
	check lb.HealthCheck
	want  string
}

// closedPort is a port of loopback at which no process listens: for TCP none can
// while the test runs.
func closedPort(t *testing.T) string {
	t.Helper()
	_, at := fake.BoundSocket(t)
	return at.String()
}

// answerUDP is a UDP server that sends the datagrams which answers returns.
func answerUDP(t *testing.T, answers func(datagram []byte) [][]byte) string {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		buffer := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			for _, answer := range answers(buffer[:n]) {
				server.WriteTo(answer, from)
			}
		}
	}()
	return server.LocalAddr().String()
}

// silent is a TCP server that accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	return listener.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func TestTCP(t *testing.T) {
	check := lb.HealthCheck{Type: lb.HealthTCP}
	wantReason(t, check, silent(t), "")
	wantReason(t, check, closedPort(t), "connection refused")
}

// A server that accepts nothing is found, and costs no more than the time-out.
func TestTCPTimesOut(t *testing.T) {
	fd, at := fake.BoundSocket(t)
	server := at.String()
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	full, err := net.Dial("tcp", server) // takes the only place in the queue
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	check := lb.HealthCheck{Type: lb.HealthTCP, Timeout: 50 * time.Millisecond}
	wantReason(t, check, server, "timed out after 50ms")
}

// The socket has the path's source address and mark.
func TestSourceAndMark(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("socket marks need root")
	}
	listener := listen(t)
	path := health.Path{Target: netip.MustParseAddrPort(listener.Addr().String()), Source: netip.MustParseAddr("127.0.0.77"), Mark: 0x1234}
	conn, err := way{path}.dialTCP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); got != path.Source {
		t.Errorf("source %s", got)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if mark, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK); err != nil || mark != 0x1234 {
			t.Errorf("mark %#x, %v", mark, err)
		}
		if linger, err := unix.GetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER); err != nil || linger.Onoff != 1 || linger.Linger != 0 {
			t.Errorf("linger %+v, %v: connections would stay in TIME_WAIT", linger, err)
		}
	})
	for _, check := range []lb.HealthType{lb.HealthTCP, lb.HealthICMP} {
		if got := askAlong(t, lb.HealthCheck{Type: check}, path); got != "" {
			t.Errorf("%s along that path: %s", check, got)
		}
	}
}

// A missing resource of this node is not the backend's failure.
func TestLocalErrors(t *testing.T) {
	path := health.Path{Target: netip.MustParseAddrPort(silent(t)), Source: netip.MustParseAddr("192.0.2.1")} // no host has it
	for _, check := range []lb.HealthType{lb.HealthTCP, lb.HealthUDP} {
		if got := askAlong(t, lb.HealthCheck{Type: check}, path); !strings.HasPrefix(got, "local: ") {
			t.Errorf("%s: %q, want trouble of this node", check, got)
		}
	}
}

func TestICMP(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("raw sockets need root")
	}
	for _, server := range []string{"127.0.0.1:0", "127.1.2.3:0", "[::1]:0"} {
		if got := ask(t, lb.HealthCheck{Type: lb.HealthICMP}, server); got != "" {
			t.Errorf("%s: %s", server, got)
		}
	}
}

func TestUDP(t *testing.T) {
	server := answerUDP(t, func(datagram []byte) [][]byte {
		if string(datagram) == "quiet" {
			return nil
		}
		return [][]byte{append([]byte("got "), datagram...)}
	})
	udp := func(send, expect lb.Payload, timeout time.Duration) lb.HealthCheck {
		return lb.HealthCheck{Type: lb.HealthUDP, Send: send, Expect: expect, Timeout: timeout}
	}
	expectReasons(t, server, map[string]reasonTest{
		"expected":     {udp(`a\x00\n`, `t a\x00\n`, 0), ""},
		"anything":     {udp("", "", 0), ""},
		"other":        {udp("a", "b", 0), "answer doesn't match"},
		"silence":      {udp("quiet", "", 20*time.Millisecond), ""},
		"not silence":  {udp("quiet", "a", 20*time.Millisecond), "timed out after 20ms"},
		"not sendable": {udp(`\`, "", 0), `bad escape in "\\": want for example \n, \\ or \x00`},
	})
	for _, expect := range []lb.Payload{"", "a"} {
		wantReason(t, udp("a", expect, 0), closedPort(t), "connection refused")
	}
}

// A server that can't be reached is silent; one that refuses isn't.
func TestSilence(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EHOSTUNREACH: true, unix.ENETUNREACH: true, unix.ECONNREFUSED: false, unix.ECONNRESET: false,
	} {
		said := explain(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)})
		if _, is := errors.AsType[health.Unresponsive](said); is != want {
			t.Errorf("%v is %v: silence %t, want %t", err, said, is, want)
		}
	}
}

// A network that answers that a backend is administratively prohibited has said that it is
// down: over IPv6 the kernel makes that EACCES, which isn't for lack of a privilege.
func TestProhibited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	reasons := make(chan map[string]string, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		defer close(reasons)   // also when t.FailNow ends this goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		got := map[string]string{}
		for _, server := range []string{"[fd00:99::1]:80", "10.99.0.1:80"} {
			to := netip.MustParseAddrPort(server).Addr()
			loopback, err := netlink.LinkByIndex(1)
			if err == nil {
				err = netlink.LinkSetUp(loopback)
			}
			if err == nil {
				err = netlink.RouteAdd(&netlink.Route{
					Type: unix.RTN_PROHIBIT, Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())},
				})
			}
			if err != nil {
				t.Error(err)
				return
			}
			for _, check := range []lb.HealthType{lb.HealthTCP, lb.HealthUDP} {
				got[check.String()+" "+server] = ask(t, lb.HealthCheck{Type: check, Send: "?"}, server)
			}
		}
		reasons <- got
	}()
	for probe, got := range <-reasons {
		if want := "administratively prohibited"; got != want {
			t.Errorf("%s: reason %q, want %q", probe, got, want)
		}
	}
}
