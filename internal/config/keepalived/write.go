// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// write returns the configuration, with findings as comments.
func (im *importer) write(name string) string {
	var w writer
	w.comment("Made by fairlead config import keepalived from " + name)
	about := make([]bool, len(im.findings)) // a service
	for _, s := range im.services {
		for i := s.first; i < s.end; i++ {
			about[i] = true
		}
	}
	for i, f := range im.findings {
		if !about[i] {
			w.comment(f.String())
		}
	}
	quoted := make([]string, len(im.Interfaces))
	for i, one := range im.Interfaces {
		quoted[i] = scalar(one)
	}
	fmt.Fprintf(&w, "node:\n  interfaces: [%s]\n", strings.Join(quoted, ", "))
	if len(im.services) == 0 {
		w.WriteString("services: []\n")
		return w.String()
	}
	w.WriteString("services:\n")
	for _, s := range im.services {
		w.indent = "  "
		w.comment(fmt.Sprintf("%s:%d: %s", s.origin.File, s.origin.Line, strings.Join(s.origin.words, " ")))
		for _, f := range im.findings[s.first:s.end] {
			w.comment(f.String())
		}
		w.service(&s.Service)
	}
	return w.String()
}

// writer writes YAML.
type writer struct {
	strings.Builder
	indent string
}

func (w *writer) comment(text string) { fmt.Fprintf(w, "%s# %s\n", w.indent, printable(text)) }

// field writes a field with text, or a number, unless it is left at its default.
func (w *writer) field(name string, value any, given bool) {
	if given {
		fmt.Fprintf(w, "%s%s: %v\n", w.indent, name, value)
	}
}

func (w *writer) service(s *lb.Service) {
	fmt.Fprintf(w, "  - name: %s\n", scalar(s.Name))
	w.indent = "    "
	w.field("address", address(s.Address.String()), true)
	w.field("port", s.Port, true)
	w.field("protocol", s.Protocol, s.Protocol != lb.TCP)
	w.field("forward", s.Forward, true)
	w.field("scheduler", s.Scheduler, s.Scheduler != lb.SchedulerMaglev)
	w.field("firewallMark", s.FirewallMark, s.FirewallMark != 0)
	w.field("affinity", s.Affinity, s.Affinity != lb.AffinityFlow)
	w.field("affinityTimeout", duration(s.AffinityTimeout), s.AffinityTimeout != 0)
	w.field("minHealthy", s.MinHealthy, s.MinHealthy != 1)
	if s.Health != nil {
		w.health(s.Health)
	}
	if len(s.Backends) == 0 {
		w.field("backends", "[]", true)
		return
	}
	fmt.Fprintf(w, "%sbackends:\n", w.indent)
	for _, b := range s.Backends {
		fmt.Fprintf(w, "      - {address: %s", address(b.Address.String()))
		if b.Port != s.Port {
			fmt.Fprintf(w, ", port: %d", b.Port)
		}
		if b.MonitorAddress.IsValid() {
			fmt.Fprintf(w, ", monitorAddress: %s", address(b.MonitorAddress.String()))
		}
		if b.MonitorPort != 0 {
			fmt.Fprintf(w, ", monitorPort: %d", b.MonitorPort)
		}
		if b.Weight != 1 {
			fmt.Fprintf(w, ", weight: %d", b.Weight)
		}
		if b.Backup {
			w.WriteString(", backup: true")
		}
		if b.MaxConnections != 0 {
			fmt.Fprintf(w, ", maxConnections: %d", b.MaxConnections)
		}
		w.WriteString("}\n")
	}
}

func (w *writer) health(h *lb.HealthCheck) {
	fmt.Fprintf(w, "%shealth:\n", w.indent)
	w.indent = "      "
	defer func() { w.indent = "    " }()
	w.field("type", h.Type, true)
	w.field("port", h.Port, h.Port != 0)
	w.field("interval", duration(h.Interval), true)
	w.field("timeout", duration(h.Timeout), true)
	w.field("rise", h.Rise, true)
	w.field("fall", h.Fall, true)
	w.field("initially", h.Initially, h.Initially != lb.InitiallyAuto)
	w.field("path", scalar(h.Path), h.Path != "")
	w.field("host", scalar(h.Host), h.Host != "")
	w.field("expectedCodes", strconv.Quote(h.Status.String()), len(h.Status) > 0)
	w.field("body", scalar(h.Body), h.Body != "")
	if h.TLS != nil {
		w.field("tls", fmt.Sprintf("{serverName: %s}", scalar(h.TLS.ServerName)), true)
	}
	if h.DNS != nil {
		w.field("dns", fmt.Sprintf("{name: %s, type: %s}", scalar(h.DNS.Name), h.DNS.Type), true)
	}
	w.field("send", scalar(string(h.Send)), h.Send != "")
	w.field("expect", scalar(string(h.Expect)), h.Expect != "")
}

// plain are texts that need no quotes, apart from YAML's words.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/._-]*$`)

// scalar returns a text as YAML.
func scalar(text string) string {
	switch strings.ToLower(text) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
	default:
		if plain.MatchString(text) {
			return text
		}
	}
	return strconv.Quote(text)
}

// address returns an address as YAML, in which colons are quoted.
func address(text string) string {
	if strings.Contains(text, ":") {
		return strconv.Quote(text)
	}
	return text
}

// duration returns for example "5s" or "1h".
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
