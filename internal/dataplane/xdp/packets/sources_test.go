// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fuzzrand"
)

func prefixes(text string) []netip.Prefix {
	var list []netip.Prefix
	for word := range strings.FieldsSeq(text) {
		list = append(list, netip.MustParsePrefix(word))
	}
	return list
}

// wantSource puts a packet of a client in and checks verdict and counter.
func wantSource(t *testing.T, p *xdp.Unattached, vip lb.VIP, client netip.Addr, allowed bool) {
	t.Helper()
	in := flowPacket(vip, netip.AddrPortFrom(client, 41000))
	if !allowed {
		wantExit(t, p, in, xdpDrop, "drop_source_denied")
		return
	}
	wantVerdict(t, p, in, xdpTX, "forward_l2dsr")
}

func TestSources(t *testing.T) {
	p, _ := newTestPlane(t)
	for name, c := range map[string]struct {
		vip                  netip.Addr
		allow, deny, in, out string
	}{
		"one denied":     {vip4, "", "192.0.2.7/32", "192.0.2.6 192.0.2.8", "192.0.2.7"},
		"one allowed":    {vip4, "192.0.2.7/32", "", "192.0.2.7", "192.0.2.6 192.0.2.8 0.0.0.0 255.255.255.255"},
		"deny wins":      {vip4, "10.0.0.0/8 11.0.0.0/8", "10.0.0.0/8", "11.0.0.1", "10.0.0.1 12.0.0.1"},
		"longest wins":   {vip4, "10.0.0.0/8 10.1.1.0/24", "10.1.0.0/16 10.1.1.128/25", "10.0.0.1 10.1.1.127", "10.1.0.1 10.1.1.128 11.0.0.0"},
		"none":           {vip4, "", "0.0.0.0/0", "", "0.0.0.0 192.0.2.7 255.255.255.255"},
		"none but":       {vip4, "10.0.0.0/8", "0.0.0.0/0", "10.255.255.255", "9.255.255.255 11.0.0.0"},
		"everybody":      {vip4, "0.0.0.0/0", "", "0.0.0.0 192.0.2.7", ""},
		"6: one denied":  {vip6, "", "2001:db8::7/128", "2001:db8::6 2001:db8::8", "2001:db8::7"},
		"6: one allowed": {vip6, "2001:db8::7/128", "", "2001:db8::7", "2001:db8::6 :: fe80::1"},
		"6: deny wins":   {vip6, "2001:db8::/32 3000::/4", "2001:db8::/32", "3fff::1", "2001:db8::1 4000::1"},
		"6: longest":     {vip6, "2001:db8::/32 2001:db8:1:2::/64", "2001:db8:1::/48", "2001:db8::1 2001:db8:1:2::1", "2001:db8:1:3::1"},
		"6: none":        {vip6, "", "::/0", "", ":: 2001:db8::1 ffff::"},
		"6: none but":    {vip6, "fd00::/8", "::/0", "fd00::1", "fc00::1 2001:db8::1"},
	} {
		t.Run(name, func(t *testing.T) {
			svc := manyBackends(c.vip, 2)
			svc.Sources = lb.Sources{Allow: prefixes(c.allow), Deny: prefixes(c.deny)}
			update(t, p, svc)
			for word := range strings.FieldsSeq(c.in) {
				wantSource(t, p, svc.VIP, netip.MustParseAddr(word), true)
			}
			for word := range strings.FieldsSeq(c.out) {
				wantSource(t, p, svc.VIP, netip.MustParseAddr(word), false)
			}
			remove(t, p, svc.VIP)
		})
	}
	wantNoLists(t, p)
}

// An ICMP error is for a client's server if neither the client nor the router that sent it is
// denied. Routers needn't be among the allowed clients.
func TestSourcesOfErrors(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		client, sender := clientOf(vip, 2000), router(vip)
		all, one := netip.PrefixFrom(sender, 0).Masked(), netip.PrefixFrom(sender, vip.BitLen())
		for name, c := range map[string]struct {
			sources lb.Sources
			passes  bool
		}{
			"all allowed":    {lb.Sources{Allow: []netip.Prefix{all}}, true},
			"client allowed": {lb.Sources{Allow: []netip.Prefix{netip.PrefixFrom(client.Addr(), vip.BitLen())}}, true},
			"router denied":  {lb.Sources{Deny: []netip.Prefix{one}}, false},
			"client denied":  {lb.Sources{Deny: []netip.Prefix{netip.PrefixFrom(client.Addr(), vip.BitLen())}}, false},
			"router allowed": {lb.Sources{Allow: []netip.Prefix{one}}, false},
		} {
			svc := manyBackends(vip, 3)
			svc.Sources = c.sources
			update(t, p, svc)
			in := errorAbout(svc.VIP, client, sender).build()
			t.Run(family(vip)+" "+name, func(t *testing.T) {
				if c.passes {
					wantVerdict(t, p, in, xdpTX, "forward_l2dsr")
				} else {
					wantExit(t, p, in, xdpDrop, "drop_source_denied")
				}
			})
			remove(t, p, svc.VIP)
		}
	}
}

// Denied senders don't use up other senders' limits.
func TestLimitOfDeniedErrors(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, forward := range []lb.Forward{lb.L2DSR, lb.NAT, lb.DSR} {
			sender := router(vip)
			svc := manyBackends(vip, 3)
			svc.Forward, svc.Sources.Deny = forward, []netip.Prefix{netip.PrefixFrom(sender, vip.BitLen())}
			update(t, p, svc)
			denied := errorAbout(svc.VIP, clientOf(vip, 2000), sender).build()
			setLimit(t, p, table.BalancerRateRATE_QUOTED, 0)
			wantExit(t, p, denied, xdpDrop, "drop_source_denied")
			var spent []uint64
			if err := p.Tables.Maps.Rates.Lookup(table.BalancerRateRATE_QUOTED, &spent); err != nil || slices.Max(spent) > 0 {
				t.Errorf("%s, %s: limits of the processors %v, error %v", vip, forward, spent, err)
			}
			setLimit(t, p, table.BalancerRateRATE_QUOTED, ^uint64(0))
			wantExit(t, p, denied, xdpDrop, "drop_source_denied")
			wantExit(t, p, errorAbout(svc.VIP, clientOf(vip, 2000), sender.Next()).build(), xdpDrop, "drop_answer_limit")
			remove(t, p, svc.VIP)
		}
	}
}

// wantNoLists checks that lists are removed once they aren't read any more.
func wantNoLists(t *testing.T, p *xdp.Unattached) {
	t.Helper()
	must(t, p.Tables.Grace.Wait(t.Context(), p.Tables.Grace.Now()))
	p.Tables.Sources.Sweep()
	if n := countElements(t, p.Tables.Maps.Sources); n != 0 || p.Tables.Sources.Used != 0 {
		t.Errorf("%d prefixes are in the table, %d are counted, want none", n, p.Tables.Sources.Used)
	}
}

// countElements counts the elements of a table.
func countElements(t *testing.T, m *ebpf.Map) (n int) {
	t.Helper()
	it := m.Iterate()
	for key, value := []byte(nil), []byte(nil); it.Next(&key, &value); {
		n++
	}
	must(t, it.Err())
	return n
}

// randomSources are nested prefixes of few addresses, so that many overlap.
func randomSources(random *rand.Rand, family netip.Addr) lb.Sources {
	var s lb.Sources
	taken := map[netip.Prefix]bool{}
	for range random.IntN(12) {
		p, _ := randomSource(random, family).Prefix(random.IntN(family.BitLen() + 1))
		switch random.IntN(3) {
		case 0:
			s.Deny = append(s.Deny, p)
		default:
			s.Allow = append(s.Allow, p)
		}
		if taken[p] {
			return randomSources(random, family)
		}
		taken[p] = true
	}
	return s
}

// randomSource differs from another one in two places only.
func randomSource(random *rand.Rand, family netip.Addr) netip.Addr {
	address := family.AsSlice()
	address[1] = byte(random.IntN(3))
	address[len(address)-1] = byte(random.IntN(4))
	a, _ := netip.AddrFromSlice(address)
	return a
}

// The program and lb.Sources, which knows no trie, agree on random lists.
func TestSourcesAgree(t *testing.T) {
	p, _ := newTestPlane(t)
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	for range 30 {
		for _, vip := range []netip.Addr{vip4, vip6} {
			svc := manyBackends(vip, 2)
			svc.Sources = randomSources(random, vip)
			update(t, p, svc)
			for range 30 {
				client := randomSource(random, vip)
				wantSource(t, p, svc.VIP, client, dataplanetest.Allows(svc.Sources, client))
			}
			if t.Failed() {
				t.Fatalf("sources %+v", svc.Sources)
			}
		}
	}
}

// While lists change, a packet is judged by the one or the other: a client in
// neither is never allowed, one in both is never denied.
func TestSourcesAtomicChange(t *testing.T) {
	p := openTestPlane(t, testPins(t), newStaticHops()) // packets are under way while tables change
	svc := manyBackends(vip4, 3)
	lists := []lb.Sources{
		{Allow: prefixes("192.0.2.0/24"), Deny: prefixes("192.0.2.64/26 192.0.2.1/32")},
		{Deny: prefixes("198.51.100.0/24 192.0.2.64/27")},
		{Allow: prefixes("192.0.2.0/28 203.0.113.0/24")},
		{Allow: prefixes("0.0.0.0/0"), Deny: prefixes("198.51.100.0/25 192.0.2.64/28")},
	}
	svc.Sources = lists[0]
	update(t, p, svc)
	program := programOf(t, p)
	// Not by run, which waits for the plane's lock: packets don't.
	send := func(from string) func() uint32 {
		in := flowPacket(svc.VIP, netip.MustParseAddrPort(from))
		return func() uint32 {
			verdict, _, err := testRun(program, in)
			must(t, err)
			return verdict
		}
	}
	never, nor, always := send("198.51.100.1:1000"), send("192.0.2.65:1000"), send("192.0.2.7:1000")
	done := make(chan error, 1)
	var packets atomic.Int64
	go func() {
		var err error
		for i := 0; err == nil && (i < 200 || packets.Load() < 1000); i++ { // one list after the other
			next := *svc
			next.Sources, next.Backends = lists[i%len(lists)], svc.Backends[:1+i%len(svc.Backends)]
			_, err = p.Update(context.Background(), &next)
		}
		done <- err
	}()
	for ; ; packets.Add(1) {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
		if one, other := never(), nor(); one != xdpDrop || other != xdpDrop {
			t.Errorf("packets %d that every list denies: verdicts %d and %d", packets.Load(), one, other)
		}
		if verdict := always(); verdict != xdpTX {
			t.Errorf("packet %d that every list allows: verdict %d", packets.Load(), verdict)
		}
	}
}

// sourceList is the number of the list that a service uses.
func sourceList(t *testing.T, p *xdp.Unattached, vip lb.VIP) uint32 {
	t.Helper()
	s, err := p.Tables.ReadService(serviceNumber(t, p, vip))
	must(t, err)
	return s.Sources[s.Active&1]
}

// A successor keeps the lists that it finds as they are, and removes those that
// its predecessor was stopped in the middle of writing.
func TestSourcesAdopted(t *testing.T) {
	dir := testPins(t)
	first := openTestPlane(t, dir, newStaticHops())
	svc := manyBackends(vip6, 2)
	svc.Sources = lb.Sources{Allow: prefixes("2001:db8::/32 ::/1"), Deny: prefixes("2001:db8::/48")}
	update(t, first, svc)
	number := sourceList(t, first, svc.VIP)
	half := lb.Sources{Deny: prefixes("10.0.0.0/8")}.Verdicts(vip4)
	if _, err := first.Tables.Sources.Stage(table.SourceList{}, half); err != nil {
		t.Fatal(err)
	}
	must(t, first.Close())

	second := openTestPlane(t, dir, newStaticHops())
	check := func() {
		t.Helper()
		wantSource(t, second, svc.VIP, netip.MustParseAddr("2001:db8::1"), false)
		wantSource(t, second, svc.VIP, netip.MustParseAddr("8000::1"), false)
		wantSource(t, second, svc.VIP, netip.MustParseAddr("2001:db8:1::1"), true)
	}
	check()
	update(t, second, svc)
	check()
	if got := sourceList(t, second, svc.VIP); got != number {
		t.Errorf("an unchanged list was written again, as number %d: it had %d", got, number)
	}
	must(t, second.Tables.Grace.Wait(t.Context(), second.Tables.Grace.Now()))
	second.Tables.Sources.Sweep()
	if n := countElements(t, second.Tables.Maps.Sources); n != 4 {
		t.Errorf("%d prefixes are in the table, want the 4 of the service's list", n)
	}
	remove(t, second, svc.VIP)
	wantNoLists(t, second)
}

// A list for which there is no room changes nothing, and room comes back.
func TestSourcesFull(t *testing.T) {
	p := openPlane(t, "", newStaticHops(), table.Capacity{Sources: lb.MaxSources + 100}, nil)
	full, last := manyBackends(vip4, 1), manyBackends(vip6, 1)
	for i := range lb.MaxSources {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		full.Sources.Deny = append(full.Sources.Deny, prefix)
	}
	update(t, p, full)
	last.Sources.Deny = prefixes("2001:db8::/64")
	update(t, p, last)
	larger := *last
	larger.Sources.Deny = nil
	for i := range 100 {
		larger.Sources.Deny = append(larger.Sources.Deny, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, byte(i)}), 16))
	}
	if _, err := p.Update(context.Background(), &larger); err == nil || !strings.Contains(err.Error(), "table sources is full") {
		t.Errorf("a list beyond the table's size: error %v", err)
	}
	wantSource(t, p, last.VIP, netip.MustParseAddr("2001:db8::1"), false)
	wantSource(t, p, last.VIP, netip.MustParseAddr("fd01::1"), true)
	remove(t, p, full.VIP)
	update(t, p, &larger) // waits until the deleted list is gone
	wantSource(t, p, last.VIP, netip.MustParseAddr("2001:db8::1"), true)
	wantSource(t, p, last.VIP, netip.MustParseAddr("fd01::1"), false)
}
