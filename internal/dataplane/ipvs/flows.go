// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// connections is the file that lists IPVS's connections in the thread's network
// namespace.
const connections = "/proc/thread-self/net/ip_vs_conn"

// flow is a connection of IPVS and the seconds until it ends without packets.
type flow struct {
	dataplane.Flow
	expires int
}

// Flows lists IPVS's connections; a connection of a firewall mark is listed with the VIP to
// which the client sent. IPVS has no age of a connection, so Flow.Age is 0, and flows are
// sorted by the remaining time.
func (p *Plane) Flows(ctx context.Context, query dataplane.FlowQuery) (dataplane.Flows, error) {
	var out dataplane.Flows
	var matching []flow
	err := p.do(ctx, func() error {
		text, err := os.ReadFile(connections)
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		for lines.Scan() {
			f, ok := parseConnection(lines.Text())
			if _, owned := p.owned[f.VIP]; !ok || !owned {
				continue
			}
			out.Records++
			if (query.VIP == lb.VIP{} || query.VIP == f.VIP) && (!query.Client.IsValid() || query.Client.Contains(f.Client.Addr())) {
				matching = append(matching, f)
			}
		}
		return lines.Err()
	})
	if err != nil {
		return dataplane.Flows{}, fmt.Errorf("flows: %w", err)
	}
	out.Matching = len(matching)
	slices.SortStableFunc(matching, func(a, b flow) int { return cmp.Compare(b.expires, a.expires) })
	for _, f := range matching[:min(len(matching), max(query.Limit, 0))] {
		out.Flows = append(out.Flows, f.Flow)
	}
	return out, nil
}

// parseConnection reads a line of the file: protocol; the client's, the VIP's and the
// server's address and port in hexadecimal; state; seconds. The header and the records of
// persistence, which have no client's port, are not connections.
func parseConnection(line string) (flow, bool) {
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return flow{}, false
	}
	var f flow
	switch fields[0] {
	case "TCP":
		f.VIP.Protocol = lb.TCP
	case "UDP":
		f.VIP.Protocol = lb.UDP
	default:
		return flow{}, false
	}
	var ends [3]netip.AddrPort
	for i := range ends {
		end, err := parseEnd(fields[1+2*i], fields[2+2*i])
		if err != nil {
			return flow{}, false
		}
		ends[i] = end
	}
	f.Client, f.Backend = ends[0], ends[2]
	f.VIP.Address, f.VIP.Port = ends[1].Addr(), ends[1].Port()
	switch fields[7] {
	case "FIN_WAIT", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK":
		f.Closing = true
	}
	f.expires, _ = strconv.Atoi(fields[8])
	return f, f.Client.Port() != 0
}

// parseEnd reads an address, 8 digits or an IPv6 address in full, and a port.
func parseEnd(address, port string) (netip.AddrPort, error) {
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if strings.Contains(address, ":") {
		a, err := netip.ParseAddr(address)
		return netip.AddrPortFrom(a, uint16(number)), err
	}
	raw, err := hex.DecodeString(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	a, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("bad address %q", address)
	}
	return netip.AddrPortFrom(a, uint16(number)), nil
}
