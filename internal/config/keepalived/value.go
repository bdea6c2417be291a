// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// number reads the n-th parameter as a whole number from low to high, by the rules of
// keepalived's read_unsigned: text after a number is an error, unless it is lenient.
func (s *statement) number(n, low, high int, lenient bool) (value int, ok bool) {
	text := strings.TrimLeft(s.word(n), whiteSpace)
	value, rest := leadingNumber(text)
	inside := low <= value && value <= high
	switch {
	case rest == "" && inside:
		return value, true
	case lenient && inside && !strings.HasPrefix(text, "-"):
		s.report("%s %q: keepalived reads it as %d", s.keyword(), s.word(n), value)
		return value, true
	}
	s.report("%s %q: keepalived ignores it: want a number from %d to %d", s.keyword(), s.word(n), low, high)
	return 0, false
}

// leadingNumber returns the number with which a text begins, 0 without digits, and the rest. A
// number that is too large is -1.
func leadingNumber(text string) (value int, rest string) {
	digits := strings.TrimPrefix(text, "+")
	rest = strings.TrimLeft(digits, "0123456789")
	if digits = digits[:len(digits)-len(rest)]; digits == "" {
		return 0, text
	}
	value, err := strconv.Atoi(digits)
	if err != nil {
		return -1, rest
	}
	return value, rest
}

// count returns a function that reads a number into a field, leniently.
func count(low, high int, field func(*reader) *int) func(*reader, *statement) {
	return func(x *reader, s *statement) {
		if n, ok := s.number(1, low, high, true); ok {
			*field(x) = n
		}
	}
}

// timer is a time with its statement, which is nil for a default.
type timer struct {
	*statement
	value time.Duration
}

// seconds returns a function that reads a time in seconds with at most six decimals into a
// field, by the rules of keepalived's read_decimal_unsigned_long: it reads the digits as
// microseconds, up to a character that isn't one.
func seconds(least, most time.Duration, field func(*probing) **timer) func(*reader, *statement) {
	const digits = 6
	return func(x *reader, s *statement) {
		whole, decimals, _ := strings.Cut(s.word(1), ".")
		n, rest := leadingNumber(whole + (decimals + "000000")[:digits])
		exact := rest == "" && len(decimals) <= digits
		if len(decimals) > digits && decimals[digits] >= '5' {
			n++
		}
		value := time.Duration(n) * time.Microsecond
		if n < 0 || n > int(maxTime/time.Microsecond) || value < least || value > most || strings.HasPrefix(whole, "-") {
			s.report("%s %q: keepalived ignores it: want seconds, at most %s", s.keyword(), s.word(1), duration(most))
			return
		}
		if !exact {
			s.report("%s %q: keepalived reads it as %s", s.keyword(), s.word(1), duration(value))
		}
		*field(x.probing) = &timer{s, value}
	}
}

// truth returns a function that reads a truth value into a field; without a parameter it is true.
func truth(field func(*reader) **bool) func(*reader, *statement) {
	return func(x *reader, s *statement) {
		on := len(s.words) == 1 || slices.Contains([]string{"true", "on", "yes"}, s.word(1))
		if !on && !slices.Contains([]string{"false", "off", "no"}, s.word(1)) {
			s.report("%s %q: keepalived ignores it: want true or false", s.keyword(), s.word(1))
			return
		}
		*field(x) = &on
	}
}

// word returns a function that reads a parameter into a field.
func word(field func(*reader) *string) func(*reader, *statement) {
	return func(x *reader, s *statement) {
		if len(s.words) == 1 {
			s.report("%s: keepalived ignores it without a parameter", s.keyword())
			return
		}
		*field(x) = s.word(1)
	}
}

// address reads the n-th parameter as an address. As keepalived does, it leaves out a range or a
// length, with a report unless that is the length of the whole address.
func (s *statement) address(n int) (netip.Addr, bool) {
	text, _, ranged := strings.Cut(s.word(n), "-")
	text, length, prefixed := strings.Cut(text, "/")
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		s.report("%s %q: left out: want an IPv4 or IPv6 address", s.keyword(), s.word(n))
		return a, false
	}
	if ranged || prefixed && length != strconv.Itoa(a.BitLen()) {
		s.report("%s %s: it is the address %s alone, as for keepalived", s.keyword(), s.word(n), a)
	}
	return a, true
}

// port reads the n-th parameter as a port; 0 stands for the packet's.
func (s *statement) port(n int) (port uint16, ok bool) {
	if strings.Trim(s.word(n), "0") == "" {
		return 0, true
	}
	number, ok := s.number(n, 1, 65535, true)
	return uint16(number), ok
}

// maxTime is the longest time of a check, some 30 years.
const maxTime = 1e9 * time.Second
