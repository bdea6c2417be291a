// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// loopbackEndpoints returns ports of one address of 127.0.0.0/8 that is drawn by lot
// of 16 million. Who connects to others from there doesn't get it as its own, so
// that the ports stay free until they are used.
func loopbackEndpoints(count int) ([]netip.AddrPort, error) {
	address := [4]byte{127}
	if _, err := rand.Read(address[1:]); err != nil {
		return nil, err
	}
	address[3] |= 2 // neither 127.0.0.0 nor 127.0.0.1
	var endpoints []netip.AddrPort
	for range count {
		l, err := net.Listen("tcp", netip.AddrPortFrom(netip.AddrFrom4(address), 0).String())
		if err != nil {
			return nil, fmt.Errorf("free port: %w", err)
		}
		defer l.Close() // all at the end, so that none is given twice
		endpoints = append(endpoints, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return endpoints, nil
}

// port is the endpoint's, as text.
func port(e netip.AddrPort) string { return strconv.Itoa(int(e.Port())) }
