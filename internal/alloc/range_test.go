// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/alloc"
)

func TestParseRange(t *testing.T) {
	for _, c := range []struct {
		text, want string
		size       uint64
	}{
		{"10.1.0.0/24", "10.1.0.0-10.1.0.255", 256},
		{"10.1.0.6/31", "10.1.0.6-10.1.0.7", 2},
		{"10.1.0.6/32", "10.1.0.6-10.1.0.6", 1},
		{"0.0.0.0/0", "0.0.0.0-255.255.255.255", 1 << 32},
		{"10.1.0.250 - 10.1.1.3", "10.1.0.250-10.1.1.3", 10},
		{"fd00::/64", "fd00::-fd00::ffff:ffff:ffff:ffff", math.MaxUint64},
		{"fd00::/65", "fd00::-fd00::7fff:ffff:ffff:ffff", 1 << 63},
		{"fd00::/8", "fd00::-fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", math.MaxUint64},
		{"fd00::ffff:ffff:ffff:fffe-fd00:0:0:1::1", "fd00::ffff:ffff:ffff:fffe-fd00:0:0:1::1", 4},
	} {
		r, err := alloc.ParseRange(c.text)
		if err != nil || r.String() != c.want {
			t.Errorf("%q: %s, %v, want %s", c.text, r, err, c.want)
		}
		if u := usage(t, pool(t, "p", c.text)); u.IPv4.Size+u.IPv6.Size != c.size {
			t.Errorf("%q: %+v, want %d addresses", c.text, u, c.size)
		}
	}
	for text, want := range map[string]string{
		"10.1.0.1/24":           "the CIDR is 10.1.0.0/24",
		"10.1.0.0":              "want a CIDR, or two addresses",
		"10.1.0.9-10.1.0.1":     "the lower one first",
		"10.1.0.9-fd00::1":      "one family",
		"10.1.0.9-":             "want a CIDR, or two addresses",
		"::ffff:10.1.0.0/120":   "IPv4 notation",
		"::ffff:10.0.0.1-fd::1": "IPv4 notation",
		"fe80::1%eth0-fe80::2":  "without zones",
		"fe80::%eth0/64":        "want a CIDR",
		"":                      "want a CIDR",
	} {
		if r, err := alloc.ParseRange(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v, want an error about %q", text, r, err, want)
		}
	}
}

// Overlaps of ranges count once, and sizes that are too large to be
// counted don't wrap around.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		ranges string
		want   alloc.Usage
	}{
		{"10.0.0.0/30 10.0.0.2-10.0.0.5 10.0.0.6/31 10.0.1.0/32", alloc.Usage{IPv4: alloc.Count{Size: 9}}},
		{"10.0.0.0/24 10.0.0.4/30", alloc.Usage{IPv4: alloc.Count{Size: 256}}},
		{"fd00::/65 fd01::/65 fd02::/65", alloc.Usage{IPv6: alloc.Count{Size: math.MaxUint64}}},
		{"255.255.255.255/32 ::/128", alloc.Usage{IPv4: alloc.Count{Size: 1}, IPv6: alloc.Count{Size: 1}}},
		{"", alloc.Usage{}},
	} {
		if u := usage(t, pool(t, "p", strings.Fields(c.ranges)...)); u != c.want {
			t.Errorf("%q: %+v, want %+v", c.ranges, u, c.want)
		}
	}
}

func TestWithoutZeroAnd255(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.0/24":                  "[192.0.2.1-192.0.2.254]",
		"192.0.2.0/31":                  "[192.0.2.1-192.0.2.1]",
		"192.0.2.0/32":                  "[]",
		"192.0.2.255-192.0.3.0":         "[]",
		"192.0.2.10-192.0.2.20":         "[192.0.2.10-192.0.2.20]",
		"192.0.2.200-192.0.4.10":        "[192.0.2.200-192.0.2.254 192.0.3.1-192.0.3.254 192.0.4.1-192.0.4.10]",
		"255.255.255.0/24":              "[255.255.255.1-255.255.255.254]",
		"2001:db8::/64":                 "[2001:db8::-2001:db8::ffff:ffff:ffff:ffff]",
		"2001:db8::ff00-2001:db8::ffff": "[2001:db8::ff00-2001:db8::ffff]",
	} {
		r, err := alloc.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(alloc.WithoutZeroAnd255(r)); got != want {
			t.Errorf("%s without .0 and .255: %s, want %s", text, got, want)
		}
	}
}

// A parsed range formats as it was written, for any input.
func FuzzParseRange(f *testing.F) {
	for _, text := range []string{
		"10.0.0.0/8", "fd00::-fd00::1", "10.0.0.0/33", "-", "::/0", "10.0.0.9-10.0.0.1", "10.0.0.1-fd00::1", "10.0.0.7/24",
		"::ffff:10.0.0.0/104", "fe80::1%eth0-fe80::2%eth0", "10.0.0.1", " 10.0.0.1 - 10.0.0.2 ", "0.0.0.0-255.255.255.255",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := alloc.ParseRange(text)
		if err != nil {
			return
		}
		again, err := alloc.ParseRange(r.String())
		if err != nil || again != r {
			t.Errorf("%q is %s, which reads as %s, %v", text, r, again, err)
		}
		if prefix, err := netip.ParsePrefix(text); err == nil && !r.Contains(prefix.Addr()) {
			t.Errorf("%q has not its own address: %s", text, r)
		}
	})
}

// pool returns an automatic pool.
func pool(t testing.TB, name string, ranges ...string) alloc.Pool {
	t.Helper()
	p := alloc.Pool{Name: name, Automatic: true}
	for _, text := range ranges {
		r, err := alloc.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

func usage(t testing.TB, p alloc.Pool) alloc.Usage {
	t.Helper()
	a := alloc.New()
	a.SetPools([]alloc.Pool{p})
	return a.Usage(p.Name)
}
