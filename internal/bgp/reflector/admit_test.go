// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/reflector"
	"fairlead.io/fairlead/test/await"
)

// With TTL security packets of a client that is too far away are dropped, though its
// connection was accepted before that was known.
func TestClientTTLSecurity(t *testing.T) {
	config := settings()
	config.Clients[0].TTLSecurity = 1
	r := start(t, config, "")
	far := call(t, 11) // and says nothing before the reflector has seen it: after it come others
	connectNearby(t, r, 12)
	far.handshake(restarting)
	connectNearby(t, r, 13)
	if got := identities(r); !slices.Equal(got, []string{"127.0.1.12 10.0.2.12", "127.0.1.13 10.0.2.13"}) {
		t.Errorf("clients are %q", got)
	}
}

// connectNearby connects a client whose packets have passed no router.
func connectNearby(t *testing.T, r *reflector.Reflector, n int) {
	t.Helper()
	c := call(t, n)
	setHops(t, c, 255)
	c.handshake(restarting)
	await.True(t, "session", func() bool { return established(r, clientAddress(n)) })
}

// setHops sets the hop limit of a client's packets.
func setHops(t *testing.T, c *client, hops int) {
	t.Helper()
	raw, err := c.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, hops) })
	if failed != nil || err != nil {
		t.Fatal(failed, err)
	}
}

// announcement are attributes of a client's route, and their number of bytes is below 256.
func announcement(more ...byte) []byte {
	return append([]byte{
		0x40, 1, 1, 0, // ORIGIN IGP
		0x40, 2, 0, // AS_PATH, empty
		0x40, 3, 4, 10, 0, 2, 11, // NEXT_HOP
	}, more...)
}

// Attributes that would make a client's routes preferred to others', and communities that
// aren't configured, are not passed on; communities of a reloaded configuration are at
// once.
func TestAttributes(t *testing.T) {
	config := settings()
	config.Allowed.Communities = []bgp.Community{65021<<16 | 100}
	r := start(t, config, "")
	c := connect(t, 11, restarting)
	c.update(nil, announcement(
		0x40, 5, 4, 0, 0, 3, 232, // LOCAL_PREF 1000
		0x80, 4, 4, 0, 0, 0, 1, // MED 1
		0xc0, 8, 8, 253, 253, 0, 100, 255, 255, 2, 154, // 65021:100, BLACKHOLE
		0x80, 9, 4, 10, 0, 2, 99, // ORIGINATOR_ID
		0xc0, 16, 8, 0x40, 4, 253, 253, 0x50, 0, 0, 0, // link bandwidth
	), reach(netip.MustParsePrefix(vip4)))
	passed := func() (a bgp.Attributes) {
		for _, route := range r.Routes() {
			a = route.Attributes
		}
		return a
	}
	equal := func(want bgp.Attributes) func() bool {
		return func() bool { got := passed(); return got.Equal(&want) }
	}
	want := bgp.Attributes{LocalPreference: new(uint32(100)), Communities: config.Allowed.Communities}
	await.True(t, "limited attributes", equal(want))

	config.Allowed = bgp.Attributes{LocalPreference: new(uint32(200)), MED: new(uint32(10)), LinkBandwidth: 1e6}
	configure(t, r, config)
	await.True(t, "other attributes", equal(config.Allowed))
	config.Accept = []bgp.Acceptance{{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Shortest: 32}}
	configure(t, r, config)
	await.True(t, "no route", func() bool { return len(r.Routes()) == 0 })
}

// The router gets routes with the attributes that are passed on, and none that isn't accepted,
// also if an UPDATE has others. Errors in an UPDATE are handled by RFC 7606.
func TestRouterGetsLimitedRoutes(t *testing.T) {
	startBIRD(t, "") // which rejects a LOCAL_PREF above 100 and BLACKHOLE
	start(t, settings(), "")
	c := connect(t, 11, restarting)
	c.update(nil, announcement(0x40, 5, 4, 0, 0, 3, 232, 0xc0, 8, 4, 255, 255, 2, 154),
		slices.Concat(reach(netip.MustParsePrefix("10.9.9.9/32")), reach(netip.MustParsePrefix(vip4)), reach(netip.MustParsePrefix("10.1.0.0/16"))))
	awaitHops(t, vip4, "10.0.2.11")
	for _, prefix := range []string{"10.9.9.9/32", "10.1.0.0/16"} {
		if got := hops(prefix); got != "" {
			t.Errorf("%s has next hops %s", prefix, got)
		}
	}
	foreign := announcement(0x40, 5, 4, 0, 0, 0, 100)
	foreign[12] = 3 // the next hop 10.0.3.11
	c.update(nil, foreign, reach(netip.MustParsePrefix(vip4)))
	awaitHops(t, vip4, "")
	malformed := func(prefix string, attributes []byte) {
		c.update(nil, attributes, reach(netip.MustParsePrefix(prefix)))
	}
	malformed(vip4, announcement(0x40, 5, 4, 0, 0, 0, 100, 0xc0, 7, 1, 0)) // AGGREGATOR, which is ignored (RFC 7606 §7.7)
	awaitHops(t, vip4, "10.0.2.11")
	malformed(vip4, announcement(0x40, 5, 1, 0)) // LOCAL_PREF: the route is withdrawn (§7.5)
	awaitHops(t, vip4, "")
	malformed(vip4, announcement(0x80, 14, 3, 0, 2, 1)) // MP_REACH_NLRI: the session ends (§7.11)
	if said := c.awaitEnd(); !bytes.HasPrefix(said, []byte{3}) {
		t.Errorf("NOTIFICATION % x, want one of a malformed UPDATE", said)
	}
}

// Connections without an OPEN keep no client out: connections of one source close each other,
// and when there are too many of all sources, the oldest one is closed.
func TestSilentConnections(t *testing.T) {
	const ofSource, all = 64, 1024
	config := settings()
	config.Listen = append(config.Listen, netip.IPv6Loopback())
	config.Clients = append(config.Clients, config.Clients[0])
	config.Clients[1].Prefix = netip.MustParsePrefix("fd00:9::/32")
	r := start(t, config, "")
	var six []netip.Addr
	for _, text := range []string{"fd00:9::1", "fd00:9::2", "fd00:9:0:1::1"} {
		six = append(six, addAddress(t, text))
	}
	other, other6 := call(t, 12), callFrom(t, six[2], 13)
	first, first6 := call(t, 11), callFrom(t, six[0], 14)
	for range ofSource {
		call(t, 11)
		callFrom(t, six[1], 14)
	}
	first.awaitEnd()
	first6.awaitEnd()
	establish := func(clients ...*client) {
		t.Helper()
		for _, c := range clients {
			c.handshake(restarting)
			await.True(t, "session", func() bool { return established(r, c.address()) })
		}
	}
	establish(other, other6, call(t, 11))

	oldest := call(t, 30)
	for n := range all / ofSource {
		for range ofSource {
			call(t, 40+n)
		}
	}
	oldest.awaitEnd()
	establish(call(t, 12+100))
}

// addAddress adds an IPv6 address to the loopback interface until the test ends.
func addAddress(t *testing.T, text string) netip.Addr {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	address := &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(text)), Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrAdd(lo, address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.AddrDel(lo, address) })
	return netip.MustParseAddr(text)
}

// A client of another AS can't shorten its path by leaving out that AS.
func TestFirstASN(t *testing.T) {
	config := settings()
	config.Clients[0].ASN = 65022
	r := start(t, config, "")
	c := connect(t, 11, identity{asn: 65022, restart: true})
	c.update(nil, announcement(), reach(netip.MustParsePrefix("10.1.1.2/32")))
	path := []byte{0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xfe, 0x40, 3, 4, 10, 0, 2, 11}
	c.update(nil, path, reach(netip.MustParsePrefix(vip4)))
	awaitReflected(t, r, "10.1.1.1/32 via 10.0.2.11 from [127.0.1.11]\n")
}
