// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"fairlead.io/fairlead/internal/lb"
)

// probing are the settings that a real server inherits from its virtual server, and a check
// from its real server. Those that are nil are inherited.
type probing struct {
	interval, timeout, retryDelay *timer
	// retries is the number of further probes after a failed one.
	retries *int
	alpha   *bool
	host    string
}

func (p *probing) inherit(from *probing) {
	p.interval, p.timeout = cmp.Or(p.interval, from.interval), cmp.Or(p.timeout, from.timeout)
	p.retryDelay, p.retries = cmp.Or(p.retryDelay, from.retryDelay), cmp.Or(p.retries, from.retries)
	p.alpha, p.host = cmp.Or(p.alpha, from.alpha), cmp.Or(p.host, from.host)
}

// retry reads a number, of which virtual and real servers need at least one.
func (x *reader) retry(s *statement) {
	low, lenient := 0, true
	if x.c == nil {
		low, lenient = 1, false
	}
	if n, ok := s.number(1, low, math.MaxUint32, lenient); ok {
		x.probing.retries = &n
	}
}

// check is a check with a counterpart; its port is 0 if the file has none.
type check struct {
	*statement
	probing
	lb.HealthCheck
	server *server
	// address is probed in place of the server's, if it is valid.
	address netip.Addr
	// url is the URL that is probed.
	url *url
	sni *bool
}

// checkTypes are the checks with a counterpart.
var checkTypes = map[string]lb.HealthType{
	"TCP_CHECK": lb.HealthTCP, "HTTP_GET": lb.HealthHTTP, "SSL_GET": lb.HealthHTTPS, "SMTP_CHECK": lb.HealthTCP,
	"DNS_CHECK": lb.HealthDNS, "UDP_CHECK": lb.HealthUDP, "PING_CHECK": lb.HealthICMP,
}

// uncheck reports a check without a counterpart.
func (x *reader) uncheck(s *statement) {
	x.r.checked = true
	s.report("%s: %s", s.keyword(), x.keywords["real_server"][s.keyword()].text)
}

// readCheck reads a check with a counterpart, of which a backend has one.
func (x *reader) readCheck(s *statement) {
	x.r.checked = true
	c := &check{statement: s, server: x.r, HealthCheck: lb.HealthCheck{Type: checkTypes[s.keyword()], Rise: 1}}
	switch s.keyword() {
	case "SMTP_CHECK":
		s.report("SMTP_CHECK: it becomes a tcp check: the server's greeting is not checked")
	case "DNS_CHECK":
		c.DNS = &lb.DNSQuestion{Name: ".", Type: lb.RecordSOA}
	}
	inner := &reader{importer: x.importer, v: x.v, r: x.r, c: c, probing: &c.probing}
	inner.block(x.keywords["real_server"][s.keyword()].inside, s)
	switch web := c.Type == lb.HealthHTTP || c.Type == lb.HealthHTTPS; {
	case web && c.url == nil:
		s.report("%s: left out: it has no url with a path", s.keyword())
		return
	case web:
		c.useURL()
	}
	if !c.isText() {
		s.report("%s: left out: it isn't text in UTF-8", s.keyword())
		return
	}
	if x.r.checks = append(x.r.checks, c); len(x.r.checks) > 1 {
		s.report("%s: a backend has one check: that on line %d is used", s.keyword(), x.r.checks[0].Line)
	}
}

// isText reports whether the check can be written as YAML.
func (c *check) isText() bool {
	texts := []string{c.Path, c.Host, c.Body}
	if c.DNS != nil {
		texts = append(texts, c.DNS.Name)
	}
	return utf8.ValidString(strings.Join(texts, " "))
}

// end completes a check with the settings that it has inherited.
func (c *check) end() {
	if c.Type == lb.HealthHTTP || c.Type == lb.HealthHTTPS {
		c.Host = cmp.Or(c.Host, c.host)
	}
	if c.Type == lb.HealthHTTPS && c.Host != "" && (c.sni == nil || !*c.sni) {
		c.report("SSL_GET: %s is sent as server name (SNI), also without enable_sni", c.Host)
	}
	if c.Type != lb.HealthICMP && c.Port == 0 && c.server.port == 0 {
		c.report("%s: the service's port is probed, where keepalived probes port 0: the real server has none",
			c.keyword())
	}
	c.Interval = min(max(c.interval.value, lb.MinHealthInterval), lb.MaxHealthInterval)
	if c.Interval != c.interval.value {
		c.report("delay_loop of %s: the interval is %s", duration(c.interval.value), duration(c.Interval))
	}
	switch c.Timeout = min(c.timeout.value, c.Interval); {
	case c.Timeout == c.timeout.value:
	case c.timeout.statement == nil:
		c.report("connect_timeout is %s by default: the timeout is the interval of %s", duration(c.timeout.value), duration(c.Interval))
	default:
		c.timeout.report("connect_timeout of %s: the timeout is the interval of %s", duration(c.timeout.value), duration(c.Interval))
	}
	if d := c.retryDelay; d != nil && d.value != c.Interval {
		d.report("delay_before_retry of %s: a failed probe is repeated after the interval of %s",
			duration(d.value), duration(c.Interval))
	}
	retries := 1 // keepalived's default
	switch {
	case c.retries != nil:
		retries = *c.retries
	case c.Type == lb.HealthDNS:
		retries = 3
	}
	if c.Fall = min(retries, math.MaxUint16-1) + 1; c.Fall <= retries {
		c.report("retry %d: fall is at most %d", retries, math.MaxUint16)
	}
	if c.alpha != nil && *c.alpha {
		c.Initially = lb.InitiallyUnhealthy
	}
}

// connectIP reads the address that is probed.
func (c *check) connectIP(s *statement) {
	a, ok := s.address(1)
	if !ok {
		return
	}
	if err := lb.CheckAddress(a); err != nil {
		s.report("connect_ip: the backend's address %s is probed: %v", c.server.address, err)
	} else if a != c.server.address {
		c.address = a
	}
}

func (c *check) connectPort(s *statement) {
	if n, ok := s.number(1, 1, math.MaxUint16, true); ok && c.Type != lb.HealthICMP {
		c.Port = uint16(n)
	}
}

// dnsName reads the name of a query. keepalived uses the first one, and takes a first label of one
// letter for an empty one.
func (c *check) dnsName(s *statement) {
	name := s.word(1)
	short := len(name) > 1 && (name[0] == '.' || name[1] == '.')
	if c.DNS.Name != "." || short || strings.Contains(name, "..") {
		s.report("name %s: keepalived ignores it: there is another, or a label that it takes for empty", name)
		return
	}
	c.DNS.Name = cmp.Or(name, ".")
}

func (c *check) dnsType(s *statement) {
	word := strings.ToUpper(s.word(1))
	if !slices.Contains([]string{"A", "NS", "CNAME", "SOA", "MX", "TXT", "AAAA"}, word) {
		s.report("type %s: %s is queried: keepalived ignores it, or it has no counterpart", s.word(1), c.DNS.Type)
		return
	}
	_ = c.DNS.Type.UnmarshalText([]byte(word)) // has the same names
}

func (c *check) reply(s *statement) {
	if len(s.words) == 1 {
		s.report("require_reply: an answer is required only with expect, the text that it has to contain")
		return
	}
	s.report("require_reply: expect may be anywhere in an answer, not only at its beginning")
	s.payload(&c.Expect)
}

// payload reads hexadecimal bytes, of which only one-digit bytes need white space around them.
func (s *statement) payload(to *lb.Payload) {
	var text strings.Builder
	for _, word := range s.words[1:] {
		for ; word != ""; word = word[min(2, len(word)):] {
			n, err := strconv.ParseUint(word[:min(2, len(word))], 16, 8)
			if err != nil {
				s.report("%s: bytes such as %q have no counterpart", s.keyword(), word[:min(2, len(word))])
				return
			}
			fmt.Fprintf(&text, `\x%02x`, n)
		}
	}
	*to = lb.Payload(text.String())
}

// health returns the check of a service, the first that a real server has, and sets
// the monitor addresses and ports of backends.
func (v *virtual) health(svc *lb.Service) *lb.HealthCheck {
	var used *check
	var common lb.HealthCheck
	var port uint16
	for i, r := range v.servers {
		if len(r.checks) == 0 {
			continue
		}
		c, b := r.checks[0], &svc.Backends[i]
		h := c.HealthCheck
		if b.MonitorAddress = c.address; h.Port != b.Port {
			b.MonitorPort = h.Port
		}
		h.Port = 0
		if used == nil {
			used, common, port = c, h, b.MonitorPort
		} else if !reflect.DeepEqual(common, h) {
			c.report("%s: it differs from that on line %d, which is used for all backends", c.keyword(), used.Line)
		}
	}
	if used == nil {
		return nil
	}
	same := true
	for i, r := range v.servers {
		same = same && (len(r.checks) == 0 || svc.Backends[i].MonitorPort == port)
		if !r.checked {
			r.report("%s %s: it has no check, and is checked like the others", r.keyword(), r.address)
		}
	}
	if same {
		common.Port = port
		for i := range svc.Backends {
			svc.Backends[i].MonitorPort = 0
		}
	}
	return &common
}
