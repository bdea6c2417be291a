// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
	"fairlead.io/fairlead/test/await"
)

// activePeer is a router's connection to the speaker's port, written by the test.
type activePeer struct {
	t *testing.T
	*net.TCPConn
}

// connectFrom connects to the speaker, as soon as it listens.
func connectFrom(t *testing.T, peer netip.Addr) activePeer {
	t.Helper()
	var conn net.Conn
	await.True(t, "connection", func() bool {
		var err error
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: peer.AsSlice()}}
		conn, err = dialer.Dial("tcp4", "127.0.0.1:179")
		return err == nil
	})
	t.Cleanup(func() { conn.Close() })
	return activePeer{t, conn.(*net.TCPConn)}
}

// opens sends OPEN and KEEPALIVE.
func (p activePeer) opens(routerID byte, gracefulRestart bool) activePeer {
	p.t.Helper()
	capabilities := []byte{1, 4, 0, 1, 0, 1}
	if gracefulRestart {
		capabilities = append(capabilities, 64, 6, 0, 30, 0, 1, 1, 0x80)
	}
	asn := binary.BigEndian.AppendUint16([]byte{4}, 65000)
	open := slices.Concat(asn, []byte{0, 90, 10, 0, 0, routerID, byte(2 + len(capabilities)), 2, byte(len(capabilities))}, capabilities)
	p.send(1, open)
	p.send(4, nil)
	return p
}

func (p activePeer) send(kind byte, body []byte) {
	p.t.Helper()
	header := binary.BigEndian.AppendUint16(bytes.Repeat([]byte{0xff}, 16), uint16(19+len(body)))
	if _, err := p.Write(slices.Concat(header, []byte{kind}, body)); err != nil {
		p.t.Fatal(err)
	}
}

// received reads until the connection ends, and returns the last message.
func (p activePeer) received() (last []byte) {
	p.t.Helper()
	if err := p.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		p.t.Fatal(err)
	}
	for {
		header := make([]byte, 19)
		if _, err := io.ReadFull(p, header); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				p.t.Fatal("connection not closed")
			}
			return last
		}
		last = make([]byte, binary.BigEndian.Uint16(header[16:])-19)
		if _, err := io.ReadFull(p, last); err != nil {
			p.t.Fatal(err)
		}
		last = append([]byte{header[18]}, last...)
	}
}

// forget ends the connection without a packet, as a router's restart does.
func (p activePeer) forget() {
	p.t.Helper()
	raw, err := p.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
		}), err)
	}
	if err = errors.Join(err, p.Close()); err != nil {
		p.t.Fatal(err)
	}
}

var collision = []byte{3, 6, 7} // NOTIFICATION, cease, connection collision

// An established session of a passive peer ends neither for connections without an OPEN
// nor for one with another OPEN. The peer itself replaces it: with graceful restart by a
// new OPEN, otherwise once it has lost the connection.
func TestCollision(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: port 179 in a network namespace")
	}
	for name, gracefulRestart := range map[string]bool{"with graceful restart": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			address := netip.MustParseAddr("127.0.0.9")
			peer := router(address, 65000)
			peer.Passive, peer.HoldTime = true, 90*time.Second
			s := open(t, peer)
			set(t, s, "10.1.1.1")
			for range maxUnidentified { // before the session
				connectFrom(t, address)
			}
			first := connectFrom(t, address).opens(1, gracefulRestart)
			awaitEstablished(t, s)
			oldest := connectFrom(t, address)
			for range maxUnidentified {
				connectFrom(t, address)
			}
			oldest.received() // closed in favour of later ones
			if got := connectFrom(t, address).opens(2, gracefulRestart).received(); !bytes.Equal(got, collision) {
				t.Errorf("another router: received % x", got)
			}
			if !gracefulRestart {
				if got := connectFrom(t, address).opens(1, false).received(); !bytes.Equal(got, collision) {
					t.Errorf("a second connection: received % x", got)
				}
			}
			if state := s.Peers()[0]; state.State != bgp.Established || state.Flaps != 0 {
				t.Fatalf("%+v", state)
			}
			if !gracefulRestart {
				first.forget()
			}
			connectFrom(t, address).opens(1, gracefulRestart)
			await.True(t, "the loss", func() bool { return s.Peers()[0].Flaps == 1 })
			awaitEstablished(t, s)
		})
	}
}

// A connection that a peer accepts while it is removed is closed.
func TestConnectionOfRemovedPeer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: port 179 in a network namespace")
	}
	address := netip.MustParseAddr("127.0.0.9")
	peer := router(address, 65000)
	peer.Passive = true
	s := open(t, peer)
	set(t, s)
	await.True(t, "waiting for the peer", func() bool { return s.Peers()[0].State == bgp.Active })
	connectFrom(t, address)           // begins a session
	before := connectFrom(t, address) // waits for its OPEN
	await.True(t, "connection accepted", func() bool {
		k := s.peers[address].Keeper
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.unidentified) == 1
	})
	p := s.peers[address]
	delete(s.peers, address)
	p.Stop(session.Notification{}) // as Configure does before the listener has the new peers
	before.received()
	connectFrom(t, address).received()
}
