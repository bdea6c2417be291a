// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"fairlead.io/fairlead/internal/lb"
)

// probing are the settings that a real server inherits from its virtual server, and a check
// from its real server.
type probing struct {
	interval, timeout time.Duration
	// timeoutAt, retryDelayAt are nil for defaults.
	timeoutAt, retryDelayAt *statement
	retryDelay              time.Duration
	// retry is the number of further probes after a failed one; -1 is the check's default.
	retry int
	alpha bool
	host  string
}

// defaultProbing are the defaults of keepalived's alloc_vs.
func defaultProbing() probing {
	return probing{interval: time.Minute, timeout: 5 * time.Second, retry: -1}
}

// readProbing reads one of these settings; it returns false for other keywords.
func (im *importer) readProbing(p *probing, s *statement) bool {
	switch s.keyword() {
	case "delay_loop":
		im.timer(s, &p.interval, time.Microsecond)
	case "connect_timeout":
		if im.timer(s, &p.timeout, time.Microsecond) {
			p.timeoutAt = s
		}
	case "delay_before_retry":
		if im.timer(s, &p.retryDelay, 0) {
			p.retryDelayAt = s
		}
	case "retry", "nb_get_retry":
		if n, ok := im.number(s, 0, math.MaxInt32); ok {
			p.retry = n
		}
	case "warmup":
		im.report(s, "warmup: first probes are spread over the interval")
	case "alpha":
		p.alpha = im.flag(s)
	case "virtualhost":
		p.host = s.word(1)
	default:
		return false
	}
	return true
}

// timer reads the first parameter as a time in seconds, or reports it.
func (im *importer) timer(s *statement, to *time.Duration, least time.Duration) bool {
	const most = 1e9 // some 30 years
	word := s.word(1)
	seconds, err := strconv.ParseFloat(word, 64)
	read := time.Duration(min(seconds, most)*1e6) * time.Microsecond
	if err != nil || strings.Trim(word, "0123456789.") != "" || read < least {
		im.report(s, "%s %q: want a number of seconds", s.keyword(), word)
		return false
	}
	*to = read
	return true
}

// check is a check with a counterpart; its port is 0 if the file has none.
type check struct {
	*statement
	probing
	lb.HealthCheck
	server *server
	// address is probed in place of the server's, if it is valid.
	address netip.Addr
	// url is the block of the URL that is probed.
	url *statement
}

// checkTypes are the checks with a counterpart.
var checkTypes = map[string]lb.HealthType{
	"TCP_CHECK": lb.HealthTCP, "HTTP_GET": lb.HealthHTTP, "SSL_GET": lb.HealthHTTPS, "SMTP_CHECK": lb.HealthTCP,
	"DNS_CHECK": lb.HealthDNS, "UDP_CHECK": lb.HealthUDP, "PING_CHECK": lb.HealthICMP,
}

// readCheck returns nil for a check without a counterpart.
func (im *importer) readCheck(r *server, s *statement) *check {
	c := &check{statement: s, probing: r.probing, server: r, HealthCheck: lb.HealthCheck{Type: checkTypes[s.keyword()], Rise: 1}}
	retry := 1 // keepalived's default
	switch s.keyword() {
	case "SMTP_CHECK":
		im.report(s, "SMTP_CHECK: it becomes a tcp check: the server's greeting is not checked")
	case "DNS_CHECK":
		retry = 3
		c.DNS = &lb.DNSQuestion{Name: ".", Type: lb.RecordSOA}
	case "MISC_CHECK":
		im.report(s, "MISC_CHECK: no programs are run: the backend isn't checked unless the service has another check")
		return nil
	}
	if c.Type == 0 {
		im.report(s, "%s: there is no counterpart: the backend isn't checked unless the service has another check", s.keyword())
		return nil
	}
	for _, s := range s.body {
		if !im.readProbing(&c.probing, s) && !im.readConnection(c, s) && !im.readWeb(c, s) && !im.readOther(c, s) {
			im.report(s, "%s: unknown keyword", s.keyword())
		}
	}
	if web := c.Type == lb.HealthHTTP || c.Type == lb.HealthHTTPS; web && c.url == nil {
		im.report(s, "%s: left out: it has no url with a path", s.keyword())
		return nil
	} else if web && c.Host == "" {
		c.Host = c.host
	}
	if !c.isText() {
		im.report(s, "%s: left out: it isn't text in UTF-8", s.keyword())
		return nil
	}
	if c.retry >= 0 {
		retry = c.retry
	}
	im.setTimes(c, retry)
	return c
}

// isText reports whether the check can be written as YAML.
func (c *check) isText() bool {
	texts := []string{c.Path, c.Host, c.Body}
	if c.TLS != nil {
		texts = append(texts, c.TLS.ServerName)
	}
	if c.DNS != nil {
		texts = append(texts, c.DNS.Name)
	}
	return utf8.ValidString(strings.Join(texts, " "))
}

// setTimes translates the probing settings.
func (im *importer) setTimes(c *check, retry int) {
	c.Interval = min(max(c.interval, lb.MinHealthInterval), lb.MaxHealthInterval)
	if c.Interval != c.interval {
		im.report(c.statement, "delay_loop of %s: the interval is %s", duration(c.interval), duration(c.Interval))
	}
	switch c.Timeout = min(c.timeout, c.Interval); {
	case c.Timeout == c.timeout:
	case c.timeoutAt == nil:
		im.report(c.statement, "connect_timeout is %s by default: the timeout is the interval of %s", duration(c.timeout), duration(c.Interval))
	default:
		im.report(c.timeoutAt, "connect_timeout of %s: the timeout is the interval of %s", duration(c.timeout), duration(c.Interval))
	}
	if c.retryDelayAt != nil && c.retryDelay != c.Interval {
		im.report(c.retryDelayAt, "delay_before_retry of %s: a failed probe is repeated after the interval of %s",
			duration(c.retryDelay), duration(c.Interval))
	}
	if c.Fall = min(retry, math.MaxUint16-1) + 1; c.Fall <= retry {
		im.report(c.statement, "retry %d: fall is at most %d", retry, math.MaxUint16)
	}
	if c.alpha {
		c.Initially = lb.InitiallyUnhealthy
	}
}

// readConnection reads where a probe connects to.
func (im *importer) readConnection(c *check, s *statement) bool {
	switch s.keyword() {
	case "connect_port":
		if n, ok := im.number(s, 1, math.MaxUint16); ok && c.Type != lb.HealthICMP {
			c.Port = uint16(n)
		}
	case "connect_ip":
		a, err := netip.ParseAddr(s.word(1))
		if err == nil {
			err = lb.CheckAddress(a)
		}
		if err != nil {
			im.report(s, "connect_ip: the backend's address %s is probed: %v", c.server.address, err)
		} else if a != c.server.address {
			c.address = a
		}
	case "bindto", "bind_port", "bind_if":
		im.report(s, "%s: probes have the address that the node uses towards the backend", s.keyword())
	case "fwmark":
		im.report(s, "fwmark: probes have no mark of their own")
	case "log_all_failures":
		im.report(s, "log_all_failures: there is no counterpart; fairlead backends shows the reason of a failure")
	default:
		return false
	}
	return true
}

// readOther reads the keywords of SMTP, DNS and UDP checks.
func (im *importer) readOther(c *check, s *statement) bool {
	switch kind := c.keyword() + " " + s.keyword(); kind {
	case "SMTP_CHECK helo_name": // reported with the check
	case "SMTP_CHECK host":
		im.report(s, "host: the backend's own address is probed")
	case "DNS_CHECK name":
		c.DNS.Name = s.word(1)
	case "DNS_CHECK type":
		if err := c.DNS.Type.UnmarshalText([]byte(s.word(1))); err != nil {
			im.report(s, "type %s: %v", s.word(1), err)
		}
	case "UDP_CHECK payload":
		im.readPayload(s, &c.Send)
	case "UDP_CHECK require_reply":
		if len(s.words) == 1 {
			im.report(s, "require_reply: an answer is required only with expect, the text that it has to contain")
		} else {
			im.readPayload(s, &c.Expect)
		}
	case "UDP_CHECK min_reply_length", "UDP_CHECK max_reply_length":
		im.report(s, "%s: there is no counterpart", s.keyword())
	default:
		return false
	}
	return true
}

// readPayload reads hexadecimal bytes, of which only one-digit bytes need white space around them.
func (im *importer) readPayload(s *statement, to *lb.Payload) {
	var text strings.Builder
	for _, word := range s.words[1:] {
		for ; word != ""; word = word[min(2, len(word)):] {
			n, err := strconv.ParseUint(word[:min(2, len(word))], 16, 8)
			if err != nil {
				im.report(s, "%s: bytes such as %q have no counterpart", s.keyword(), word[:min(2, len(word))])
				return
			}
			fmt.Fprintf(&text, `\x%02x`, n)
		}
	}
	*to = lb.Payload(text.String())
}

// health returns the check of a service, the first that a real server has, and sets
// the monitor addresses and ports of backends.
func (im *importer) health(v *virtual, svc *lb.Service) *lb.HealthCheck {
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
			im.report(c.statement, "%s: it differs from that on line %d, which is used for all backends", c.keyword(), used.Line)
		}
	}
	if used == nil {
		return nil
	}
	same := true
	for i, r := range v.servers {
		same = same && (len(r.checks) == 0 || svc.Backends[i].MonitorPort == port)
		if !r.checked {
			im.report(r.statement, "%s %s: it has no check, and is checked like the others", r.keyword(), r.address)
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
