// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"regexp"
	"strconv"
	"strings"

	"fairlead.io/fairlead/internal/lb"
)

// readWeb reads the keywords of HTTP_GET and SSL_GET.
func (im *importer) readWeb(c *check, s *statement) bool {
	if c.Type != lb.HealthHTTP && c.Type != lb.HealthHTTPS {
		return false
	}
	switch s.keyword() {
	case "url":
		im.readURL(c, s)
	case "http_protocol":
		if s.word(1) != "1.1" {
			im.report(s, "http_protocol %s: requests are of HTTP/1.1", s.word(1))
		}
	case "enable_sni": // names are always sent
	case "sni_name":
		if s.word(1) != "" && c.Type == lb.HealthHTTPS {
			c.TLS = &lb.HealthTLS{ServerName: s.word(1)}
		}
	case "fast_recovery": // of several URLs
	case "tls_compliant":
		im.report(s, "tls_compliant: there is no counterpart")
	default:
		return false
	}
	return true
}

// readURL reads the block of a URL. Only the first one is probed.
func (im *importer) readURL(c *check, s *statement) {
	if c.url != nil {
		im.report(s, "url: a check has one: that on line %d is used", c.url.Line)
		return
	}
	c.Status = lb.StatusSet{{Low: 200, High: 299}}
	var pattern, options, inverted *statement
	for _, s := range s.body {
		switch s.keyword() {
		case "path":
			c.url, c.Path = s, s.word(1)
		case "status_code":
			im.readStatus(c, s)
		case "virtualhost":
			c.Host = s.word(1)
		case "regex":
			pattern = s
		case "regex_options":
			options = s
		case "regex_no_match":
			inverted = s
		case "digest":
			im.report(s, "digest: there is no counterpart: health.body matches a response by a regular expression")
		case "regex_stack", "tls_compliant":
			im.report(s, "%s: there is no counterpart", s.keyword())
		case "regex_min_offset", "regex_max_offset":
			im.report(s, "%s: the first 64 KiB of a response are searched", s.keyword())
		default:
			im.report(s, "%s: unknown keyword", s.keyword())
		}
	}
	switch {
	case inverted != nil:
		im.report(inverted, "regex_no_match: there is no counterpart: the regular expression is left out")
	case pattern != nil:
		im.readPattern(c, pattern, options)
	case options != nil:
		im.report(options, "regex_options: there is no regular expression")
	}
}

// readStatus reads codes and ranges.
func (im *importer) readStatus(c *check, s *statement) {
	var set lb.StatusSet
	if err := set.UnmarshalText([]byte(strings.Join(s.words[1:], ","))); err != nil {
		im.report(s, "status_code: %v", err)
		return
	}
	c.Status = set
}

// readPattern reads a regular expression with a shell's quotes and escapes.
func (im *importer) readPattern(c *check, s, options *statement) {
	words := shellWords(s.text)
	if len(words) != 2 {
		im.report(s, "regex: left out: want one expression, in quotes if it has spaces")
		return
	}
	var flags strings.Builder
	if options != nil {
		for _, option := range options.words[1:] {
			switch option {
			case "caseless":
				flags.WriteByte('i')
			case "multiline":
				flags.WriteByte('m')
			case "dotall":
				flags.WriteByte('s')
			case "ungreedy", "utf", "never_utf", "ucp", "never_ucp": // whether it matches doesn't depend on them
			default:
				im.report(options, "regex_options %s: there is no counterpart", option)
			}
		}
	}
	body := words[1]
	if flags.Len() > 0 {
		body = "(?" + flags.String() + ")" + body
	}
	if _, err := regexp.Compile(body); err != nil {
		im.report(s, "regex: left out: it isn't one of RE2: %v", err)
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
