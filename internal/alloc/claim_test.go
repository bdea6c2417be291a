// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
)

// house are the pools that the tables use: one for each family, one of both that
// overlaps the first, one from which addresses have to be asked for, and an external one.
func house(t testing.TB) *alloc.Allocator {
	t.Helper()
	a := alloc.New()
	reserved := pool(t, "reserved", "10.0.9.0/24")
	reserved.Automatic = false
	external := pool(t, "external", "10.0.8.0/24")
	external.External = true
	a.SetPools([]alloc.Pool{pool(t, "four", "10.0.0.0/31"), pool(t, "six", "fd06::/64"), pool(t, "both", "10.0.0.0/30", "fd00::/64"), reserved, external})
	return a
}

// Each case claims in turn; a claim is written as an owner's name and its request,
// its result as addresses with pools, or as the error.
func TestClaim(t *testing.T) {
	for _, c := range []struct {
		name   string
		claims [][2]string
	}{
		{"the first free one of the first pool", [][2]string{
			{"a", "10.0.0.0 four"},
			{"b", "10.0.0.1 four"},
			{"c", "10.0.0.2 both"},
			{"d", "10.0.0.3 both"},
			{"e", "error: pools four, both: no free IPv4 address"},
		}},
		{"two families from one pool", [][2]string{
			{"a 46", "10.0.0.0 both, fd00:: both"},
			{"b 64", "10.0.0.1 both, fd00::1 both"},
		}},
		{"two families from two pools, where none has both", [][2]string{
			{"a 46 in=four,six", "10.0.0.0 four, fd06:: six"},
		}},
		{"a second family comes from the pool of the first", [][2]string{
			{"a 4 pool=both", "10.0.0.0 both"},
			{"a 46", "10.0.0.0 both, fd00:: both"},
		}},
		{"a family is given up", [][2]string{{"a 46", "10.0.0.0 both, fd00:: both"}, {"a 6", "fd00:: both"}, {"b 4", "10.0.0.0 four"}}},
		{"one family does where both are preferred", [][2]string{
			{"a 46 partial in=four", "10.0.0.0 four; lacking: pool four: no IPv6 addresses"},
			{"b 46 in=four", "error: pool four: no IPv6 addresses"},
			{"a 46 partial in=four,six", "10.0.0.0 four, fd06:: six"},
			{"c 46 in=reserved", "error: no usable pool assigns IPv4 addresses automatically; no usable pool assigns IPv6 addresses automatically"},
		}},
		{"what is wished for later", [][2]string{
			{"a", "10.0.0.0 four"},
			{"a want=10.0.9.255", "10.0.9.255 reserved"},
			{"b", "10.0.0.0 four"},
			{"a", "10.0.9.255 reserved"}, // stays though it is not requested any more
			{"a pool=both", "10.0.0.1 both"},
			{"a pool=four", "10.0.0.1 four"}, // which has it as well
		}},
		{"a wish that can't come true takes nothing away", [][2]string{
			{"a", "10.0.0.0 four"},
			{"b want=10.0.9.1", "10.0.9.1 reserved"},
			{"a want=10.0.9.1", "10.0.0.0 four; error: address 10.0.9.1: assigned to Service shop/b, and neither has a sharing key"},
			{"a want=192.0.2.1", "10.0.0.0 four; error: address 192.0.2.1: not in pools four, six, both, reserved"},
			{"a want=10.0.9.1 pool=four", "10.0.0.0 four; error: address 10.0.9.1: not in pool four"},
			{"a pool=elsewhere", "10.0.0.0 four; error: pool elsewhere doesn't exist"},
			{"a pool=reserved in=four", "10.0.0.0 four; error: pool reserved: its selectors don't match"},
			{"a want=fd00::1", "10.0.0.0 four; error: address fd00::1: IPv6 is not a requested IP family"},
			{"a want=10.0.9.2,10.0.9.3", "10.0.0.0 four; error: address 10.0.9.3: a second IPv4 address"},
		}},
		{"selectors that don't match any more do", [][2]string{
			{"a 46", "10.0.0.0 both, fd00:: both"},
			{"a 46 in=four", "10.0.0.0 four; error: pool four: no IPv6 addresses"},
			{"a 46 in=", "error: no usable pool assigns IPv4 addresses automatically; no usable pool assigns IPv6 addresses automatically"},
			{"a want=10.0.0.0 in=", "error: address 10.0.0.0: no usable pool"},
		}},
		{"external addresses", [][2]string{
			{"a want=10.0.8.1 in=four,external", "10.0.8.1 external"},
			{"b want=10.0.8.1 in=external", "error: address 10.0.8.1: assigned to Service shop/a, and neither has a sharing key"},
			{"b want=10.0.8.2 in=four", "error: address 10.0.8.2: not in pool four"},
			{"b in=external", "error: no usable pool assigns IPv4 addresses automatically"},
			{"b pool=external in=four,external", "error: no usable pool assigns IPv4 addresses automatically"},
			{"a want=10.0.8.1 pool=external in=four,external", "10.0.8.1 external"},
			{"a in=four,external", "10.0.0.0 four"}, // another owner may have it by now
			{"a pool=external in=four,external", "10.0.0.0 four; error: no usable pool assigns IPv4 addresses automatically"},
			{"b want=10.0.8.1 key=k in=external", "10.0.8.1 external"},
			{"c port=81/tcp key=k in=external", "error: no usable pool assigns IPv4 addresses automatically"},
			{"c want=10.0.8.1 port=81/tcp key=k in=external", "10.0.8.1 external"},
			{"d want=10.0.8.2 in=external", "10.0.8.2 external"},
			{"d want=10.0.8.1 in=external", "error: address 10.0.8.1: assigned to Service shop/b, and the sharing keys differ"},
			{"e want=10.0.8.2 in=external", "10.0.8.2 external"},
		}},
		{"sharing", [][2]string{
			{"a key=k", "10.0.0.0 four"},
			{"b key=k port=443/tcp", "10.0.0.0 four"},
			{"c key=k port=80/udp", "10.0.0.0 four"},
			{"d key=k", "10.0.0.1 four"}, // its port is in use there
			{"e key=k port=443/udp", "10.0.0.0 four"},
			{"f key=k port=443/tcp", "10.0.0.1 four"},
			{"b key=k", "10.0.0.2 both"}, // it may not go on sharing
		}},
		{"a conflict names the first owner by name, not the latest", [][2]string{
			{"b port=80/tcp key=k want=10.0.9.1", "10.0.9.1 reserved"},
			{"a port=81/tcp key=k want=10.0.9.1", "10.0.9.1 reserved"},
			{"c port=82/tcp want=10.0.9.1", "error: address 10.0.9.1: assigned to Service shop/a, and the sharing keys differ"},
			{"a port=83/tcp key=k want=10.0.9.1", "10.0.9.1 reserved"},
			{"c port=82/tcp want=10.0.9.1", "error: address 10.0.9.1: assigned to Service shop/a, and the sharing keys differ"},
		}},
		{"not sharing", [][2]string{
			{"a key=k want=10.0.9.1", "10.0.9.1 reserved"},
			{"b key=k want=10.0.9.1", "error: address 10.0.9.1: assigned to Service shop/a, and both have port 80/tcp"},
			{"b port=81/tcp want=10.0.9.1", "error: address 10.0.9.1: assigned to Service shop/a, and the sharing keys differ"},
			{"b port=81/tcp key=l want=10.0.9.1", "error: address 10.0.9.1: assigned to Service shop/a, and the sharing keys differ"},
			{"b port=81/tcp key=k mode=Local want=10.0.9.1", `error: address 10.0.9.1: assigned to Service shop/a, and one is "Cluster", the other "Local"`},
			{"b port=81/tcp key=k ns=office want=10.0.9.1", "error: address 10.0.9.1: assigned to Service shop/a, and only owners of one namespace can share it"},
			{"b port=81/tcp key=k want=10.0.9.1", "10.0.9.1 reserved"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := house(t)
			for _, claim := range c.claims {
				if got := answer(a.Claim(request(t, claim[0]))); got != claim[1] {
					t.Errorf("%s\ngot  %s\nwant %s", claim[0], got, claim[1])
				}
			}
		})
	}
}

// request parses a table's request.
func request(t testing.TB, text string) alloc.Request {
	words := strings.Fields(text)
	r := alloc.Request{
		Owner:    alloc.Owner{Kind: "Service", Namespace: "shop", Name: words[0]},
		Families: []alloc.Family{alloc.IPv4},
		Pools:    []string{"four", "six", "both", "reserved"},
		Ports:    []alloc.Port{{Number: 80, Protocol: lb.TCP}},
		Sharing:  alloc.Sharing{Mode: "Cluster"},
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "4", "6", "46", "64":
			r.Families = nil
			for _, digit := range key {
				r.Families = append(r.Families, alloc.Family(digit-'0'))
			}
		case "partial":
			r.Partial = true
		case "want":
			for text := range strings.SplitSeq(value, ",") {
				r.Wanted = append(r.Wanted, netip.MustParseAddr(text))
			}
		case "pool":
			r.Pool = value
		case "in":
			r.Pools = slices.DeleteFunc(strings.Split(value, ","), func(name string) bool { return name == "" })
		case "port":
			var protocol string
			if _, err := fmt.Sscanf(strings.Replace(value, "/", " ", 1), "%d %s", &r.Ports[0].Number, &protocol); err != nil {
				t.Fatal(err)
			}
			if err := r.Ports[0].Protocol.UnmarshalText([]byte(protocol)); err != nil {
				t.Fatal(err)
			}
		case "key":
			r.Sharing.Key = value
		case "mode":
			r.Sharing.Mode = value
		case "ns":
			r.Owner.Namespace = value
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return r
}

// answer formats the result of a claim.
func answer(result alloc.Result, err error) string {
	var parts, addresses []string
	for _, h := range result.Addresses {
		addresses = append(addresses, h.Address.String()+" "+h.Pool)
	}
	if len(addresses) > 0 {
		parts = append(parts, strings.Join(addresses, ", "))
	}
	if result.Missing != nil {
		parts = append(parts, "lacking: "+result.Missing.Error())
	}
	if err != nil {
		parts = append(parts, "error: "+err.Error())
	}
	return strings.Join(parts, "; ")
}

// After a restart the older of two owners keeps an address that both say they have,
// and every address that was assigned stays so.
func TestAdopt(t *testing.T) {
	a := house(t)
	at := func(text string, created int64, addresses ...string) alloc.Holding {
		r := request(t, text)
		h := alloc.Holding{Owner: r.Owner, Created: time.Unix(created, 0), Ports: r.Ports, Sharing: r.Sharing}
		for _, text := range addresses {
			h.Addresses = append(h.Addresses, netip.MustParseAddr(text))
		}
		return h
	}
	conflicts := a.Adopt([]alloc.Holding{
		at("young", 3, "10.0.0.0", "fd00::1"),
		at("old", 1, "10.0.0.0"),
		at("b", 2, "10.0.9.1"),
		at("a", 2, "10.0.9.1", "10.0.9.2"),
		at("gone", 1, "192.0.2.1"),
		at("x key=k", 1, "10.0.0.2"),
		at("y key=k port=81/tcp", 2, "10.0.0.2", "10.0.0.2"),
	})
	var got []string
	for _, c := range conflicts {
		got = append(got, c.Owner.Name+": "+c.Err.Error())
	}
	if want := []string{
		"a: address 10.0.9.2: a second IPv4 address",
		"b: address 10.0.9.1: assigned to Service shop/a, and neither has a sharing key",
		"young: address 10.0.0.0: assigned to Service shop/old, and neither has a sharing key",
	}; !slices.Equal(got, want) {
		t.Errorf("conflicts %q, want %q", got, want)
	}
	for claim, want := range map[string]string{
		"old": "10.0.0.0 four", "young 46": "10.0.0.1 both, fd00::1 both", "a": "10.0.9.1 reserved",
		"x key=k": "10.0.0.2 both", "y key=k port=81/tcp": "10.0.0.2 both",
	} {
		if got := answer(a.Claim(request(t, claim))); got != want {
			t.Errorf("%s has %s, want %s", claim, got, want)
		}
	}
	if got := a.Of(request(t, "gone").Owner); len(got) != 1 || got[0].Pool != "" {
		t.Errorf("what no pool holds: %v", got)
	}
}

// The reason of an error of two families is the more important one.
func TestReasons(t *testing.T) {
	a := alloc.New()
	a.SetPools([]alloc.Pool{pool(t, "four", "10.0.0.0/32")})
	if _, err := a.Claim(request(t, "a")); err != nil {
		t.Fatal(err)
	}
	for families, want := range map[string]string{"4": alloc.Exhausted, "6": alloc.NoPool, "46": alloc.Exhausted, "64": alloc.Exhausted} {
		_, err := a.Claim(request(t, "b "+families))
		if failed, ok := errors.AsType[*alloc.Error](err); !ok || failed.Reason != want {
			t.Errorf("%s: %v, want %s", families, err, want)
		}
	}
}
