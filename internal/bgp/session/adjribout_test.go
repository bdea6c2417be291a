// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/fuzzrand"
)

// A peer that is sent the changes, whenever they are taken, has the wanted paths in the end: random changes of paths, requests
// for all routes, and rounds of taking, against a model of the peer. It never has a path that it wasn't to have.
func TestAdjRIBOutModel(t *testing.T) {
	random := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	for history := range 10_000 {
		several := random.IntN(2) == 0
		s := &Session{o: Options{Local: balancer, Peer: router, Paths: true}, out: newAdjRIBOut()}
		open := &Open{IPv4: true, IPv6: true, longASN: true, GracefulRestart: true, paths: Families{several, several}}
		s.agreed = s.o.negotiate(open)
		options := &wire.MarshallingOption{}
		if several {
			options.AddPath = map[wire.Family]wire.BGPAddPathMode{
				wire.RF_IPv4_UC: wire.BGP_ADD_PATH_RECEIVE, wire.RF_IPv6_UC: wire.BGP_ADD_PATH_RECEIVE,
			}
		}
		has, wanted := make(map[string]string), make(map[string]string)
		ends := 0
		deliver := func() {
			t.Helper()
			for _, b := range s.out.take(&s.agreed) {
				if len(b) > wire.BGP_MAX_MESSAGE_LENGTH {
					t.Fatalf("a message of %d bytes", len(b))
				}
				m, err := wire.ParseBGPMessage(b, options)
				if err != nil {
					t.Fatal(err)
				}
				body := m.Body.(*wire.BGPUpdate)
				if end, _ := body.IsEndOfRib(); end {
					ends++
				}
				announced, withdrawn := contents(body)
				for _, p := range withdrawn {
					if _, ok := has[p]; !ok {
						t.Fatalf("history %d: withdraws %s, which the peer doesn't have", history, p)
					}
					delete(has, p)
				}
				for _, p := range announced {
					has[p] = medOf(body)
				}
			}
			s.out.written()
		}
		for range random.IntN(40) {
			switch random.IntN(6) {
			case 0:
				deliver()
			case 1:
				s.out.wanting.add([]wire.Family{wire.RF_IPv4_UC, wire.RF_IPv6_UC}[random.IntN(2)])
				s.out.repeat()
			default:
				prefix := netip.MustParsePrefix([]string{"10.1.1.1/32", "10.1.1.2/32", "10.1.0.0/16", "fd00:1::1/128", "fd00:1::2/128"}[random.IntN(5)])
				var paths []Path
				for range random.IntN(4) {
					p := Path{Route: to(prefix.String(), "10.0.2.11"), ID: 1 + uint32(random.IntN(4))}
					if prefix.Addr().Is6() {
						p.NextHop = netip.MustParseAddr("fd00:2::11")
					}
					p.MED = new(uint32(random.IntN(3)))
					paths = append(paths, p)
				}
				if err := s.Change(prefix, paths); err != nil {
					t.Fatal(err)
				}
				for key := range wanted {
					if key == prefix.String() || len(key) > len(prefix.String()) && key[:len(prefix.String())+1] == prefix.String()+" " {
						delete(wanted, key)
					}
				}
				for _, p := range paths {
					key := prefix.String()
					if several {
						key += fmt.Sprintf(" %d", p.ID)
					}
					if _, ok := wanted[key]; !ok {
						wanted[key] = fmt.Sprint(*p.MED)
					}
				}
			}
		}
		deliver()
		if fmt.Sprint(has) != fmt.Sprint(wanted) {
			t.Fatalf("history %d: the peer has %v, want %v", history, has, wanted)
		}
		if ends != 2 {
			t.Fatalf("history %d: %d End-of-RIBs, want one of each family", history, ends)
		}
		if o := s.out.state.Get(); o.paths != len(has) || !o.current {
			t.Fatalf("history %d: %+v, the peer has %d paths", history, o, len(has))
		}
	}
}

func medOf(body *wire.BGPUpdate) string {
	for _, a := range body.PathAttributes {
		if a, ok := a.(*wire.PathAttributeMultiExitDisc); ok {
			return fmt.Sprint(a.Value)
		}
	}
	return ""
}

// Requests for a family that isn't announced start nothing, however many there are.
func TestRefreshOfOtherFamily(t *testing.T) {
	r := newAdjRIBOut()
	const linkState = wire.RF_LS // RFC 9552
	for range 1000 {
		r.refresh(linkState)
	}
	time.Sleep(20 * time.Millisecond) // which the first answer doesn't wait for
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.refreshed.IsZero() {
		t.Error("answered")
	}
}

// Many paths with the same attributes share messages, which are full (RFC 4271 §4.3).
func TestFullMessages(t *testing.T) {
	s := &Session{o: Options{Local: balancer, Peer: router}, out: newAdjRIBOut()}
	s.agreed = s.o.negotiate(&Open{IPv4: true, longASN: true})
	const routes = 5000
	if err := s.Announce(hosts(0, routes)); err != nil {
		t.Fatal(err)
	}
	messages := s.out.take(&s.agreed)
	sizes, all := []int{}, 0
	for _, m := range messages {
		sizes = append(sizes, len(m))
		parsed, err := wire.ParseBGPMessage(m)
		if err != nil {
			t.Fatal(err)
		}
		all += len(parsed.Body.(*wire.BGPUpdate).NLRI)
	}
	slices.Sort(sizes)
	if all != routes || sizes[len(sizes)-1] > wire.BGP_MAX_MESSAGE_LENGTH || len(sizes) != 1+routes*5/(wire.BGP_MAX_MESSAGE_LENGTH-60) {
		t.Errorf("%d routes in messages of %v bytes", all, sizes)
	}
}

// A router gets several paths to a prefix if it accepts them (RFC 7911), otherwise the best one.
func TestSeveralPaths(t *testing.T) {
	for name, c := range map[string]struct {
		offered []wire.ParameterCapabilityInterface
		want    []string
	}{
		"several": {[]wire.ParameterCapabilityInterface{wire.NewCapAddPath([]*wire.CapAddPathTuple{
			wire.NewCapAddPathTuple(wire.RF_IPv4_UC, wire.BGP_ADD_PATH_RECEIVE)})}, []string{"10.1.1.1/32 7", "10.1.1.1/32 9"}},
		"one": {nil, []string{"10.1.1.1/32"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := beginWith(t, Options{Local: balancer, Peer: router, Paths: true})
			d.answer(c.offered...)
			if c.offered != nil {
				d.options.AddPath = map[wire.Family]wire.BGPAddPathMode{wire.RF_IPv4_UC: wire.BGP_ADD_PATH_RECEIVE}
			}
			one := Path{Route: to("10.1.1.1/32", "10.0.2.11"), ID: 9}
			other := Path{Route: to("10.1.1.1/32", "10.0.2.11"), ID: 7}
			if err := d.session.Change(one.Prefix, []Path{one, other}); err != nil {
				t.Fatal(err)
			}
			d.wantUpdate(c.want, nil)
		})
	}
}

// A reflected route has the client as originator and the cluster for internal peers (RFC 4456 §8); external ones get the path
// with the own ASN in front. A peer with ASNs of 16 bits gets AS_TRANS and AS4_PATH (RFC 6793 §4.2.2).
func TestReflectedPath(t *testing.T) {
	p := Path{
		Route: to("10.1.1.1/32", "10.0.2.11"), ASPath: []uint32{65536, 65022}, Originator: netip.MustParseAddr("10.0.2.12"),
		Cluster: netip.MustParseAddr("10.0.2.10"),
	}
	p.MED = new(uint32(5))
	for name, c := range map[string]struct {
		to   negotiated
		want string
	}{
		"internal":   {negotiated{longASN: true}, "i path 65536 65022 10.0.2.11 med 5 pref 100 originator 10.0.2.12 cluster [10.0.2.10]"},
		"external":   {negotiated{longASN: true, external: true}, "i path 65021 65536 65022 10.0.2.11 med 5"},
		"short ASNs": {negotiated{external: true}, "i path 65021 23456 65022 10.0.2.11 med 5 path4 65021 65536 65022"},
	} {
		t.Run(name, func(t *testing.T) {
			c.to.local = bgp.Local{ASN: 65021}
			a, err := c.to.encode(&p)
			if err != nil {
				t.Fatal(err)
			}
			m, err := wire.ParseBGPMessage(a.announcement(false, c.to.nlri(p.Prefix, 0)), &wire.MarshallingOption{Use2ByteAS: !c.to.longASN})
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(m.Body.(*wire.BGPUpdate).PathAttributes); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
