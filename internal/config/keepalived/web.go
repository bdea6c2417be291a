// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"regexp"
	"strconv"
	"strings"

	"fairlead.io/fairlead/internal/lb"
)

// url is a URL of HTTP_GET and SSL_GET.
type url struct {
	*statement
	path, host string
	status     lb.StatusSet
	// pattern is a regular expression with its options; inverted must not match.
	pattern, inverted *statement
	options           []*statement
}

// readURL reads the block of a URL. Only the first one with a path is probed.
func (x *reader) readURL(s *statement) {
	u := &url{statement: s}
	inner := &reader{importer: x.importer, v: x.v, r: x.r, c: x.c, u: u, probing: x.probing}
	switch inner.block("url", s); {
	case u.path == "":
		s.report("url: keepalived ignores it: it has no path")
	case x.c.url != nil:
		s.report("url: a check has one: that on line %d is used", x.c.url.Line)
	default:
		x.c.url = u
	}
}

// useURL sets the check's fields that its URL has.
func (c *check) useURL() {
	u := c.url
	c.Path, c.Host, c.Status = u.path, u.host, u.status
	if len(c.Status) == 0 {
		c.Status = lb.StatusSet{{Low: 200, High: 299}}
	}
	switch {
	case u.inverted != nil:
		u.inverted.report("regex_no_match: there is no counterpart: the regular expression is left out")
	case u.pattern != nil:
		c.readPattern(u.pattern, u.options)
	case len(u.options) > 0:
		u.options[0].report("regex_options: there is no regular expression")
	}
}

func httpProtocol(_ *reader, s *statement) {
	if s.word(1) != "1.1" {
		s.report("http_protocol %s: requests are of HTTP/1.1", s.word(1))
	}
}

// statusCode adds codes and ranges to the codes of earlier lines. keepalived ignores words that
// aren't valid.
func (u *url) statusCode(s *statement) {
	for _, word := range s.words[1:] {
		var set lb.StatusSet
		all := append(strings.Split(u.status.String(), ","), word)
		if len(u.status) == 0 {
			all = all[1:]
		}
		if err := set.UnmarshalText([]byte(strings.Join(all, ","))); err != nil || strings.Contains(word, ",") {
			s.report("status_code %q: keepalived ignores it: want a code or a range from 100 to 599", word)
			continue
		}
		u.status = set
	}
}

// readPattern reads a regular expression with a shell's quotes and escapes.
func (c *check) readPattern(s *statement, options []*statement) {
	words := shellWords(s.text)
	if len(words) != 2 {
		s.report("regex: left out: want one expression, in quotes if it has spaces")
		return
	}
	var flags strings.Builder
	for _, o := range options {
		for _, option := range o.words[1:] {
			switch option {
			case "caseless":
				flags.WriteByte('i')
			case "multiline":
				flags.WriteByte('m')
			case "dotall":
				flags.WriteByte('s')
			case "ungreedy", "utf", "never_utf", "ucp", "never_ucp": // whether it matches doesn't depend on them
			default:
				o.report("regex_options %s: there is no counterpart", option)
			}
		}
	}
	body := words[1]
	if strings.Contains(body, "$") && !strings.Contains(flags.String(), "m") {
		s.report("regex: in RE2, $ is the end of a text, and not also before a last line break")
	}
	if flags.Len() > 0 {
		body = "(?" + flags.String() + ")" + body
	}
	if _, err := regexp.Compile(body); err != nil {
		s.report("regex: left out: it isn't one of RE2: %v", err)
		return
	}
	c.Body = body
}

// shellWords splits a text by the rules for scripts and regular expressions: quotes of both
// kinds, and escapes as in C, anywhere in a word.
func shellWords(text string) []string {
	var words []string
	var word strings.Builder
	var quote byte
	inside := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			inside = true
			var n int
			n, c = unescape(text[i+1:])
			i += n
			word.WriteByte(c)
		case c == quote && quote != 0:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inside = c, true
		case quote == 0 && strings.IndexByte(whiteSpace, c) >= 0:
			if inside {
				words = append(words, word.String())
			}
			word.Reset()
			inside = false
		default:
			inside = true
			word.WriteByte(c)
		}
	}
	if inside {
		words = append(words, word.String())
	}
	return words
}

// unescape returns the number of bytes after a backslash that belong to the escape, and the
// byte that they encode. An unknown escape is its character.
func unescape(text string) (n int, c byte) {
	if at := strings.IndexByte("abEfnrtv", text[0]); at >= 0 {
		return 1, "\a\b\x1b\f\n\r\t\v"[at]
	}
	if text[0] == 'c' && len(text) > 1 {
		return 2, text[1] & 0x1f
	}
	prefix, digits, base := 0, "01234567", 8
	if text[0] == 'x' {
		prefix, digits, base = 1, "0123456789abcdefABCDEF", 16
	}
	end := prefix
	for end < len(text) && end < 3 && strings.IndexByte(digits, text[end]) >= 0 {
		end++
	}
	if value, err := strconv.ParseUint(text[prefix:end], base, 16); err == nil {
		return end, byte(value)
	}
	return 1, text[0]
}
