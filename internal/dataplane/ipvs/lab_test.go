//go:build guest

// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
)

// refusal is how long a connection is tried that nothing answers.
const refusal = 2 * time.Second

// testLab is a client, a balancer and two servers on one switch.
type testLab struct {
	*netlab.Lab
	t *testing.T
	// clientPort is the port of the last connection. Each has its own: the kernel takes a port that
	// the client had before for the connection of then, to an earlier service with this VIP too.
	clientPort *uint16
}

// VIPs of both families; the servers have them on their loopbacks.
var (
	vip4 = netip.MustParseAddr("10.1.1.1")
	vip6 = netip.MustParseAddr("fd00:10:1:1::1")
)

// backends are the servers' addresses, by family.
func backends(vip netip.Addr) []netip.Addr {
	if vip.Is4() {
		return []netip.Addr{netip.MustParseAddr("10.0.2.101"), netip.MustParseAddr("10.0.2.102")}
	}
	return []netip.Addr{netip.MustParseAddr("fd00:2::101"), netip.MustParseAddr("fd00:2::102")}
}

// ports of the services and their backends: both listen.
var ports = []uint16{80, 8080}

func newLab(t *testing.T) testLab {
	t.Helper()
	host := func(name string, role netlab.Role, last byte, routes ...netlab.Route) netlab.Host {
		return netlab.Host{Name: name, Role: role, Routes: routes, Interfaces: []netlab.Interface{{Name: "eth0", Addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.0.2.%d/24", last)), netip.MustParsePrefix(fmt.Sprintf("fd00:2::%d/64", last)),
		}}}}
	}
	hosts := []netlab.Host{host("client", netlab.Client, 2), host("lb", netlab.Client, 11), host("server1", netlab.Server, 101), host("server2", netlab.Server, 102)}
	topology := netlab.Topology{Name: "ipvs"}
	wiring := netlab.Host{Name: "switch", Role: netlab.Switch}
	for i := range hosts {
		h := &hosts[i]
		wiring.Interfaces = append(wiring.Interfaces, netlab.Interface{Name: h.Name})
		link := netlab.Link{A: netlab.End{Host: h.Name, Interface: "eth0"}, B: netlab.End{Host: wiring.Name, Interface: h.Name}}
		if h.Name != "client" {
			link.MTU = 1600 // room for a tunnel's header
		}
		if h.Role == netlab.Server {
			h.Loopback = []netip.Addr{vip4, vip6}
		}
		topology.Links = append(topology.Links, link)
	}
	topology.Hosts = slices.Concat(hosts, []netlab.Host{wiring})
	lab, err := netlab.Labs{Dir: t.TempDir()}.Up(t.Context(), "ipvs", topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	w := testLab{lab, t, new(uint16(20_000))}
	w.within("client", func() error {
		return errors.Join(routeTo("10.1.1.0/24", "10.0.2.11"), routeTo("fd00:10:1:1::/64", "fd00:2::11"))
	})
	for _, server := range []string{"server1", "server2"} {
		w.within(server, endTunnels)
		w.serve(server)
	}
	return w
}

func routeTo(prefix, gateway string) error {
	p := netip.MustParsePrefix(prefix)
	return netlink.RouteAdd(&netlink.Route{
		Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}, Gw: net.ParseIP(gateway),
	})
}

// endTunnels has a server end tunnels: "ip link set tunl0 up", also ip6tnl0, and
// "ip fou add port 6080 gue", also with -6.
func endTunnels() error {
	for _, name := range []string{"tunl0", "ip6tnl0"} {
		device, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(device)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	fou, err := netlink.GenlFamilyGet(netlink.FOU_GENL_NAME)
	if err != nil {
		return err
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		message := []byte{netlink.FOU_CMD_ADD, 1, 0, 0} // genlmsghdr of linux/genetlink.h
		for _, attribute := range []*nl.RtAttr{
			nl.NewRtAttr(netlink.FOU_ATTR_PORT, binary.BigEndian.AppendUint16(nil, guePort)),
			nl.NewRtAttr(netlink.FOU_ATTR_AF, []byte{family}),
			nl.NewRtAttr(netlink.FOU_ATTR_TYPE, []byte{netlink.FOU_ENCAP_GUE}),
		} {
			message = append(message, attribute.Serialize()...)
		}
		request := nl.NewNetlinkRequest(int(fou.ID), unix.NLM_F_ACK)
		request.AddRawData(message)
		if _, err := request.Execute(unix.NETLINK_GENERIC, 0); err != nil {
			return fmt.Errorf("fou of family %d: %w", family, err)
		}
	}
	return nil
}

func (w testLab) within(host string, fn func() error) {
	w.t.Helper()
	if err := w.Do(host, fn); err != nil {
		w.t.Fatalf("host %s: %v", host, err)
	}
}

// serve answers lines over TCP, and datagrams, at a server's addresses with its name.
func (w testLab) serve(server string) {
	at := slices.Index([]string{"server1", "server2"}, server)
	var addresses []netip.AddrPort
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, port := range ports {
			addresses = append(addresses, netip.AddrPortFrom(vip, port), netip.AddrPortFrom(backends(vip)[at], port))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Do(server, func() error { return netlab.Echo(ctx, server, addresses) }) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("%s: %v", server, err)
		}
	})
	// The links of a new lab may not carry packets yet.
	w.eventually(func() error {
		conn, err := w.dial(lb.VIP{Protocol: lb.TCP, Address: addresses[1].Addr(), Port: ports[0]}, refusal)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

func (w testLab) eventually(condition func() error) {
	w.t.Helper()
	late := time.After(await.Patience)
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			w.t.Fatal(err)
		}
	}
}

// open is the balancer's data plane.
func (w testLab) open() *Plane {
	w.t.Helper()
	var p *Plane
	w.within("lb", func() (err error) {
		p, err = Open(Config{Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)), Forwarding: true})
		return err
	})
	w.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return p
}

// update programs a service, of which that many backends are in use then.
func (w testLab) update(p *Plane, svc *lb.Service, inUse int) dataplane.Programmed {
	w.t.Helper()
	programmed, err := p.Update(w.t.Context(), svc)
	if err != nil {
		w.t.Fatal(err)
	}
	if programmed.InUse() != inUse {
		w.t.Fatalf("vip %s: %+v, want %d in use", svc.VIP, programmed.Backends, inUse)
	}
	return programmed
}

// service has both servers as backends, at the VIP's port.
func service(vip netip.Addr, protocol lb.Protocol, forward lb.Forward) *lb.Service {
	svc := &lb.Service{
		Name: "web", VIP: lb.VIP{Address: vip, Port: ports[0], Protocol: protocol}, Forward: forward, Scheduler: lb.SchedulerRR,
		MinHealthy: 1, Unavailable: lb.Reject,
	}
	for _, b := range backends(vip) {
		svc.Backends = append(svc.Backends, lb.Backend{Address: b, Port: svc.Port, Weight: 1})
	}
	return svc
}

// changed is a copy of a service with a change.
func changed(svc *lb.Service, change func(*lb.Service)) *lb.Service {
	other := *svc
	other.Backends = slices.Clone(svc.Backends)
	change(&other)
	return &other
}

func (w testLab) dial(vip lb.VIP, limit time.Duration) (net.Conn, error) {
	*w.clientPort++
	d := net.Dialer{Timeout: limit, LocalAddr: &net.TCPAddr{Port: int(*w.clientPort)}}
	if vip.Protocol == lb.UDP {
		d.LocalAddr = &net.UDPAddr{Port: int(*w.clientPort)}
	}
	var conn net.Conn
	err := w.Do("client", func() (err error) {
		conn, err = d.DialContext(w.t.Context(), vip.Protocol.String(), netip.AddrPortFrom(vip.Address, vip.Port).String())
		return err
	})
	return conn, err
}

// session is a client's connection.
type session struct {
	net.Conn
	lines *bufio.Reader
	// server is the name of the one that answers.
	server string
}

// connect opens a connection, or sends a first datagram, and returns when it is answered.
func (w testLab) connect(vip lb.VIP) (*session, error) {
	conn, err := w.dial(vip, await.Patience)
	if err != nil {
		return nil, err
	}
	s := &session{Conn: conn, lines: bufio.NewReader(conn)}
	if s.server, err = s.ask(await.Patience); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return s, nil
}

// ask sends a line and returns the name of the server that answers.
func (s *session) ask(limit time.Duration) (string, error) {
	if err := s.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := s.Write([]byte("question\n")); err != nil {
		return "", err
	}
	line, err := s.lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	var name, echo string
	if _, err := fmt.Sscan(line, &name, &echo); err != nil || echo != "question" {
		return "", fmt.Errorf("answer %q", line)
	}
	return name, nil
}

// must connects.
func (w testLab) must(vip lb.VIP) *session {
	w.t.Helper()
	s, err := w.connect(vip)
	if err != nil {
		w.t.Fatalf("%s: %v", vip, err)
	}
	return s
}

// stays checks that a connection still has its server.
func (w testLab) stays(s *session) {
	w.t.Helper()
	if name, err := s.ask(await.Patience); name != s.server {
		w.t.Errorf("the connection of %s is answered by %q: %v", s.server, name, err)
	}
}

// reach checks that new connections get to exactly these servers.
func (w testLab) reach(vip lb.VIP, servers ...string) {
	w.t.Helper()
	for range 2 * len(servers) {
		got := map[string]bool{}
		for range servers {
			s := w.must(vip)
			got[s.server] = true
			_ = s.Close()
		}
		for _, want := range servers {
			if !got[want] {
				w.t.Fatalf("%s: %d connections in turn went to %v, want %v", vip, len(servers), got, servers)
			}
		}
	}
}
