// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/gobgp"
)

// A reflector that is closed leaves routers first, also one of which it doesn't
// know yet that the session is established: the library may have told it all.
func TestHangUp(t *testing.T) {
	r := &Reflector{peers: make(map[netip.Addr]*peer), cancel: func() {}}
	var routers []net.Conn
	for n, state := range []bgp.SessionState{bgp.OpenSent, bgp.OpenConfirm, bgp.Established} {
		conn, router := connected(t)
		routers = append(routers, router)
		r.peers[netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})] = &peer{router: true, state: state, link: &gobgp.Link{TCPConn: conn}}
	}
	conn, client := connected(t)
	r.peers[netip.AddrFrom4([4]byte{192, 0, 2, 9})] = &peer{state: bgp.Established, link: &gobgp.Link{TCPConn: conn}}

	r.hangUp()
	for n, router := range routers {
		if _, err := read(t, router); !errors.Is(err, io.EOF) {
			t.Errorf("router %d: %v", n, err)
		}
	}
	if _, err := read(t, client); errors.Is(err, io.EOF) {
		t.Error("the client is left, too")
	}
}

// connected are both ends of a connection.
func connected(t *testing.T) (here *net.TCPConn, there net.Conn) {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if there, err = net.Dial("tcp4", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if here, err = listener.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// read reads what has come.
func read(t *testing.T, conn net.Conn) (int, error) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	return conn.Read(make([]byte, 1))
}
