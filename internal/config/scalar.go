// SPDX-License-Identifier: Apache-2.0

package config

import (
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
func checked[T any](read reader[T], check func(T) error) reader[T] {
	return func(v value, to *T) {
		if read(v, to); !v.failed[v.path] {
			v.check(check(*to))
		}
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
func text[T ~string](v value, to *T) {
	if s, ok := v.text("text"); ok {
		*to = T(s)
	}
}

// flag reads true or false.
func flag(v value, to *bool) {
	if b, ok := v.node.(*ast.BoolNode); ok {
		*to = b.Value
		return
	}
	v.unexpected("true or false")
}

// number reads a whole number from low to high.
func number[T int | uint8 | uint16 | uint32 | uint64](low, high T) reader[T] {
	return func(v value, to *T) {
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
func port(v value, to *uint16) { number[uint16](1, math.MaxUint16)(v, to) }

// parsed reads text with a function of the standard library. Errors name the type of the
// value and the wanted form.
func parsed[T any](what, want string, parse func(string) (T, error)) reader[T] {
	return func(v value, to *T) {
		s, ok := v.text(want)
		if !ok {
			return
		}
		read, err := parse(s)
		if err != nil {
			v.failf("bad %s %q: want %s", what, s, want)
			return
		}
		*to = read
	}
}

// duration reads a time with its unit.
func duration(v value, to *time.Duration) {
	parsed("time", "a time with its unit, such as 500ms or 2s", time.ParseDuration)(v, to)
}

// durationWithin reads a time from low to high.
func durationWithin(low, high time.Duration) reader[time.Duration] {
	return checked(duration, func(d time.Duration) error {
		if d < low || d > high {
			return lb.OutOfRange(d, low, high)
		}
		return nil
	})
}

// address reads an IPv4 or IPv6 address.
func address(v value, to *netip.Addr) {
	parsed("address", "an IPv4 or IPv6 address", netip.ParseAddr)(v, to)
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
func oneOf[T ~string](words ...T) reader[T] {
	return func(v value, to *T) {
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
