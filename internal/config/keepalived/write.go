// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"net/netip"
	"reflect"
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
	about := make([]bool, len(im.findings.all)) // a service
	for _, s := range im.services {
		for i := s.first; i < s.end; i++ {
			about[i] = true
		}
	}
	for i, f := range im.findings.all {
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
		for _, f := range im.findings.all[s.first:s.end] {
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

// service writes a service, without fields that have their defaults.
func (w *writer) service(s *lb.Service) {
	fmt.Fprintf(w, "  - name: %s\n", scalar(s.Name))
	w.indent = "    "
	rest := *s
	rest.Name, rest.Health, rest.Backends = "", nil, nil
	w.fields(rest, lb.Service{VIP: lb.VIP{Protocol: lb.TCP}, MinHealthy: 1})
	if s.Health != nil {
		fmt.Fprintf(w, "%shealth:\n", w.indent)
		w.indent = "      "
		w.fields(*s.Health, lb.HealthCheck{})
		w.indent = "    "
	}
	if len(s.Backends) == 0 {
		fmt.Fprintf(w, "%sbackends: []\n", w.indent)
		return
	}
	fmt.Fprintf(w, "%sbackends:\n", w.indent)
	for _, b := range s.Backends {
		fmt.Fprintf(w, "      - %s\n", inline(b, lb.Backend{Port: s.Port, Weight: 1}))
	}
}

// fields writes each field of a struct on a line, unless it has its usual value.
func (w *writer) fields(v, usual any) {
	for _, f := range given(v, usual) {
		fmt.Fprintf(w, "%s%s\n", w.indent, f)
	}
}

// inline returns these fields in braces.
func inline(v, usual any) string { return "{" + strings.Join(given(v, usual), ", ") + "}" }

// given returns the fields of a struct of lb that don't have their usual values, as YAML: files
// have the names of its JSON.
func given(v, usual any) (fields []string) {
	all, than := reflect.ValueOf(v), reflect.ValueOf(usual)
	for _, f := range reflect.VisibleFields(all.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		one := all.FieldByIndex(f.Index)
		if name != "" && !reflect.DeepEqual(one.Interface(), than.FieldByIndex(f.Index).Interface()) {
			fields = append(fields, name+": "+yamlOf(one))
		}
	}
	return fields
}

// yamlOf returns a value of lb as YAML.
func yamlOf(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return duration(value)
	case netip.Addr:
		if value.Is4() {
			return value.String()
		}
		return scalar(value.String())
	case fmt.Stringer:
		return scalar(value.String())
	}
	switch v.Kind() {
	case reflect.String:
		return scalar(v.String())
	case reflect.Pointer:
		return inline(v.Elem().Interface(), reflect.Zero(v.Type().Elem()).Interface())
	default:
		return fmt.Sprint(v.Interface())
	}
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
