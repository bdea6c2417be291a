// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"fairlead.io/fairlead/internal/lb"
)

// checked reads a value and then checks it.
func checked(read reader, check func() error) reader {
	return func(v value) {
		if read(v); v.failed[v.path] {
			return
		}
		v.check(check())
	}
}

// text returns the value's non-empty text. Numbers and booleans have to be quoted.
func (v value) text(want string) (string, bool) {
	s, ok := v.node.(*ast.StringNode)
	switch {
	case ok && s.Value == "":
		v.failf("empty: want %s", want)
		return "", false
	case !ok && isPlainScalar(v.node):
		v.failf("have %s: want %s (quote it if it is text)", describe(v.node), want)
		return "", false
	case !ok:
		v.unexpected(want)
		return "", false
	}
	return s.Value, true
}

func isPlainScalar(n ast.Node) bool {
	_, ok := n.(ast.ScalarNode)
	return ok && n.Type() != ast.NullType && n.Type() != ast.LiteralType
}

// text reads any text.
func text(to *string) reader {
	return func(v value) {
		if s, ok := v.text("text"); ok {
			*to = s
		}
	}
}

// textUnmarshaler reads text that the target parses.
func textUnmarshaler(to encoding.TextUnmarshaler) reader {
	return func(v value) {
		if s, ok := v.text("a word"); ok {
			v.check(to.UnmarshalText([]byte(s)))
		}
	}
}

// flag reads true or false.
func flag(to *bool) reader {
	return func(v value) {
		if b, ok := v.node.(*ast.BoolNode); ok {
			*to = b.Value
			return
		}
		v.unexpected("true or false")
	}
}

// number reads a whole number from low to high.
func number[T int | uint8 | uint16 | uint32 | uint64](to *T, low, high T) reader {
	return func(v value) {
		t := v.node.GetToken()
		plain := t.Type != token.SingleQuoteType && t.Type != token.DoubleQuoteType
		n, err := strconv.ParseUint(t.Value, 10, 64)
		switch outside := n < uint64(low) || n > uint64(high); {
		case !isPlainScalar(v.node) || !plain:
			v.unexpected("a whole number")
		case isNegative(t.Value) || errors.Is(err, strconv.ErrRange) || (err == nil && outside):
			v.failf("%w", lb.OutOfRange(t.Value, low, high))
		case err != nil:
			v.unexpected("a whole number")
		case len(t.Value) > 1 && t.Value[0] == '0':
			v.failf("have %s, which may be read as octal: want %d", t.Value, n)
		default:
			*to = T(n)
		}
	}
}

func isNegative(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return (err == nil || errors.Is(err, strconv.ErrRange)) && n < 0
}

// port reads a transport port.
func port(to *uint16) reader { return number(to, 1, math.MaxUint16) }

// duration reads a time with its unit.
func duration(to *time.Duration) reader {
	const want = "a time with its unit, such as 500ms or 2s"
	return func(v value) {
		s, ok := v.text(want)
		if !ok {
			return
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			v.failf("bad time %q: want %s", s, want)
			return
		}
		*to = d
	}
}

// durationWithin reads a time from low to high.
func durationWithin(to *time.Duration, low, high time.Duration) reader {
	return checked(duration(to), func() error {
		if *to < low || *to > high {
			return lb.OutOfRange(*to, low, high)
		}
		return nil
	})
}

// address reads an IPv4 or IPv6 address.
func address(to *netip.Addr) reader {
	return func(v value) {
		s, ok := v.text("an IPv4 or IPv6 address")
		if !ok {
			return
		}
		a, err := netip.ParseAddr(s)
		if err != nil {
			v.failf("bad address %q: want an IPv4 or IPv6 address", s)
			return
		}
		*to = a
	}
}

// prefix reads an address prefix, whose host bits have to be zero: otherwise a single
// host may be meant.
func prefix(v value, to *netip.Prefix) {
	s, ok := v.text("an address prefix")
	if !ok {
		return
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		v.failf("bad prefix %q: want for example 10.0.0.0/8 or fd00::/8", s)
	case p != p.Masked():
		v.failf("prefix %s has host bits set: write %s", p, p.Masked())
	default:
		*to = p
	}
}

// oneOf reads one of the given words.
func oneOf[T ~string](to *T, words ...T) reader {
	return func(v value) {
		s, ok := v.text("a word")
		if !ok {
			return
		}
		if !slices.Contains(words, T(s)) {
			v.failf("unknown word %q: want one of %s", s, join(words))
			return
		}
		*to = T(s)
	}
}
