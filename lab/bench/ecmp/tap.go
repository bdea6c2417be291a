// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
)

// tap records when a router sent the last packet to a VIP through each station.
type tap struct {
	close func() error
	vips  map[netip.Addr]bool

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
	t := &tap{vips: map[netip.Addr]bool{}, last: map[observation]time.Time{}}
	for _, vip := range vips {
		t.vips[vip] = true
	}
	var err error
	if t.close, err = bench.Tap(device, t.see); err != nil {
		return nil, err
	}
	return t, nil
}

// see records a frame.
func (t *tap) see(frame []byte) {
	if s, vip, ok := parseFrame(frame); ok && t.vips[vip] {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.last[s] = time.Now()
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
