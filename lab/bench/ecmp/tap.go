// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// tap records when a router sent the last packet to a VIP through each station.
type tap struct {
	socket *os.File
	ended  chan struct{}
	vips   map[netip.Addr]bool

	mu   sync.Mutex
	last map[observation]time.Time
}

// observation is a packet of a family to a station (MAC address).
type observation struct {
	station lb.MAC
	family  family
}

// openTap records on an interface of the calling thread's network namespace.
func openTap(device string, vips []netip.Addr) (*tap, error) {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	t := &tap{
		socket: os.NewFile(uintptr(fd), "tap"), ended: make(chan struct{}),
		vips: map[netip.Addr]bool{}, last: map[observation]time.Time{},
	}
	for _, vip := range vips {
		t.vips[vip] = true
	}
	// Outgoing packets are copied only to sockets of all protocols.
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}); err != nil {
		_ = t.socket.Close()
		return nil, fmt.Errorf("tap on %s: %w", device, err)
	}
	go t.follow()
	return t, nil
}

func (t *tap) follow() {
	defer close(t.ended)
	const enough = 64 // Ethernet and IP headers
	buffer := make([]byte, enough)
	for {
		n, err := t.socket.Read(buffer)
		if err != nil {
			return // closed
		}
		if s, vip, ok := parseFrame(buffer[:n]); ok && t.vips[vip] {
			now := time.Now()
			t.mu.Lock()
			t.last[s] = now
			t.mu.Unlock()
		}
	}
}

// parseFrame returns the station and the destination address of a frame.
func parseFrame(frame []byte) (s observation, to netip.Addr, ok bool) {
	const end4, end6 = 14 + 20, 14 + 40 // of the destinations
	if len(frame) < end4 {
		return s, to, false
	}
	copy(s.station[:], frame)
	switch kind := binary.BigEndian.Uint16(frame[12:]); {
	case kind == unix.ETH_P_IP:
		to = netip.AddrFrom4([4]byte(frame[end4-4 : end4]))
	case kind == unix.ETH_P_IPV6 && len(frame) >= end6:
		to = netip.AddrFrom16([16]byte(frame[end6-16 : end6]))
	default:
		return s, to, false
	}
	s.family = familyOf(to)
	return s, to, true
}

// lastTo returns the time of the last packet; zero if there was none.
func (t *tap) lastTo(station lb.MAC, f family) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[observation{station, f}]
}

func (t *tap) close() error {
	err := t.socket.Close()
	<-t.ended
	return err
}
