// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// fileOf is a file of services with these addresses, with comments and a section behind
// them.
func fileOf(addresses []int) string {
	var b strings.Builder
	b.WriteString("node: {name: lb1, interfaces: [eth0]}\ndataplane: {services: 10}\nservices:\n  # all of them\n")
	for i, a := range addresses {
		fmt.Fprintf(&b, "  - name: web%d-%d\n    address: 10.1.0.%d\n    port: 80\n    forward: l2dsr\n", i, a, a)
		b.WriteString("    backends:\n    # two\n\n    - address: 10.0.0.1\n    - {address: 10.0.0.2}\n")
	}
	b.WriteString("observe: {listen: \"127.0.0.1:9\"}\n")
	return b.String()
}

// If one service of a file has changed, the parser reads only this service.
func TestPartsParserParsesChangedServices(t *testing.T) {
	addresses := []int{1, 2, 3, 4, 5}
	p := &partsParser{limits: dataplanetest.Limits()}
	if _, err := p.parse("f", fileOf(addresses)); err != nil {
		t.Fatal(err)
	}
	addresses[3] = 9
	text, found := cut(fileOf(addresses))
	if known, first, end := p.known(text); !found || len(known) != 5 || first != 3 || end != 4 || slices.Index(known, nil) != 3 {
		t.Errorf("known %v, found %t, differs from %d to %d: want 5 without the fourth", known, found, first, end)
	}
	text.services[1], text.services[2] = text.services[2], text.services[1]
	if known, first, end := p.known(text); first != 1 || end != 4 || known[1] != &p.services[2] || known[2] != &p.services[1] {
		t.Errorf("known %v, differs from %d to %d: want the second and the third to have changed places", known, first, end)
	}
	text.after += "# a comment\n"
	if known, _, _ := p.known(text); slices.ContainsFunc(known, func(s *lb.Service) bool { return s != nil }) {
		t.Errorf("known %v, want none: another section has changed", known)
	}
}

// After any change of a file the result is equal to Parse's.
func TestPartsParserEqualsParse(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		addresses := []int{1, 2, 3, 4, 5}
		text := fileOf(addresses)
		p := Parser(dataplanetest.Limits())
		for range 12 {
			switch r.IntN(6) {
			case 0:
				addresses = slices.Insert(addresses, r.IntN(len(addresses)+1), 1+r.IntN(200))
				text = fileOf(addresses)
			case 1:
				addresses[r.IntN(len(addresses))] = 1 + r.IntN(200)
				text = fileOf(addresses)
			case 2:
				text = fileOf(addresses)
			case 3: // anything is deleted
				i := r.IntN(len(text))
				text = text[:i] + text[min(len(text), i+1+r.IntN(30)):]
			case 4: // or said again
				i, j := r.IntN(len(text)+1), r.IntN(len(text)+1)
				text = text[:i] + text[min(i, j):max(i, j)] + text[i:]
			case 5: // or something odd is put in
				i := r.IntN(len(text) + 1)
				odd := []string{"\n", "\r\n", " ", "- ", "\n- ", "\n  - ", "#", "\"", "services:\n", "\n---\n", "|\n", "\t", ":", "]\n", "\n]", "\r", " [", "\xff", "\n\n# x\n"}
				text = text[:i] + odd[r.IntN(len(odd))] + text[i:]
			}
			compareParsers(t, p, text)
			if text == "" || len(text) > 1<<16 {
				text = fileOf(addresses)
			}
		}
	}
}

// The files of the other tests, one after the other.
func TestPartsParserEqualsParseOfFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, error %v", files, err)
	}
	p := Parser(dataplanetest.Limits())
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		compareParsers(t, p, string(data))
		compareParsers(t, p, string(data)+"\n")
	}
}

func compareParsers(t *testing.T, p func(string, string) (*Config, error), text string) {
	t.Helper()
	want, wrong := Parse("f", text, dataplanetest.Limits())
	got, err := p("f", text)
	if fmt.Sprint(err) != fmt.Sprint(wrong) {
		t.Fatalf("%s\ngot error %v\nwant %v", text, err, wrong)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s\ngot  %+v\nwant %+v", text, got, want)
	}
}

// The next file doesn't change an earlier Config.
func TestPartsParserKeepsConfigs(t *testing.T) {
	p := Parser(dataplanetest.Limits())
	var all []*Config
	var copies [][]lb.Service
	for i := range 5 {
		c, err := p("f", fileOf([]int{1, 2 + i, 100}))
		if err != nil {
			t.Fatal(err)
		}
		all, copies = append(all, c), append(copies, slices.Clone(c.Services))
	}
	for i, c := range all {
		if !reflect.DeepEqual(c.Services, copies[i]) {
			t.Errorf("file %d: %v, was %v", i, c.Services, copies[i])
		}
	}
}

// Of a file that is too large for one tree, each error has its line and path.
func TestErrorsOfLargeFile(t *testing.T) {
	lines := []string{"node: {name: lb1, interfaces: [eth0]}", "dataplane: {backends: 2048}", "services:"}
	const services, each, first = 20, 60, 4 // lines of a service, and the line of the first
	for s := range services {
		lines = append(lines, fmt.Sprintf("  - name: s%d", s), fmt.Sprintf("    address: 10.1.0.%d", s), "    port: 80", "    forward: l2dsr", "    backends:")
		for b := range each - 6 {
			lines = append(lines, fmt.Sprintf("      - {address: 10.0.%d.%d}", s, b))
		}
		lines = append(lines, "    # "+strings.Repeat("x", maxTree/services))
	}
	lines = append(lines, "observe: {listen: none}", "")
	parse := func() (*Config, error) {
		return Parser(dataplanetest.Limits())("f", strings.Join(lines, "\n"))
	}
	if c, err := parse(); err != nil || len(c.Services) != services || c.Backends() != services*(each-6) {
		t.Fatalf("%v, error %v", c, err)
	}
	line := func(service, i int) int { return first + service*each + i }
	for _, change := range []struct {
		line       int
		text, want string
	}{
		{2, "dataplane: {services: 19}", "f:4:1: services: 20 services are too many: dataplane.services is 19"},
		{2, "dataplane: {backends: 1}", "f:2:23: dataplane.backends: 1 is out of range: want 1024 to 1048576"},
		{line(0, 0), "  - name: s15", `f:904:11: services[15].name: "s15" is already the name of the service on line 4`},
		{line(10, 5), "      - {address: a}", `f:609:19: services[10].backends[0].address: bad address "a": want an IPv4 or IPv6 address`},
		{line(19, 6), "      - {wight: 1, address: 10.0.0.1}", `f:1150:10: services[19].backends[1].wight: unknown field: did you mean "weight"?`},
		{line(14, 7), "      - {weight: 1, weight: 1, address: 10.0.0.1}", "f:851:21: services[14].backends[2].weight: already given on line 851"},
		{line(14, 0), "  - segment: {type: vxlan, id: 1}\n    name: x", "f:844:21: services[14].segment.type: vxlan frames arrive at tunnel end points of this node: node.tunnelEnds has none"},
		{line(14, 8), "      - ]", "f:852:9: syntax: could not find '[' character corresponding to ']'"},
		{line(20, 0), "observe: {listen: a}", `f:1204:19: observe.listen: bad address "a": want an address and a port, such as 127.0.0.1:9571, or none`},
		{3, "services: # all", "f:1:1: 8422146 bytes are too many: want at most 8388608, or services that are listed one by one, each from a line with a dash"},
	} {
		was := lines[change.line-1]
		lines[change.line-1] = change.text
		_, err := parse()
		if got := fmt.Sprint(err); got != change.want {
			t.Errorf("line %d %q:\ngot  %s\nwant %s", change.line, change.text, got, change.want)
		}
		lines[change.line-1] = was
	}
}

// A file's size is checked before it is read.
func TestFileTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fairlead.yaml")
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(f.Truncate(MaxSize+1), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = Load(path, ParseKubernetes)
	if want := path + ": 134217729 bytes are too many: want at most 134217728"; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Warnings of the sections around the services have their lines in the file.
func TestPartsParserWarns(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bgp := fmt.Sprintf("bgp: {asn: 65021, routerID: 10.0.2.1, peers: [{address: 10.0.2.2, asn: 65021, passwordFile: %s}]}\n", password)
	services := fileOf([]int{1, 2, 3})
	for _, text := range []string{services + bgp, bgp + services} {
		p := Parser(dataplanetest.Limits())
		compareParsers(t, p, text)
		compareParsers(t, p, strings.Replace(text, "10.1.0.2", "10.1.0.9\n    # moved", 1))
		if found, ok := cut(text); !ok || (&partsParser{limits: dataplanetest.Limits()}).assemble("f", found) == nil {
			t.Error("not parsed in parts")
		}
	}
}
