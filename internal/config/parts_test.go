// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

func partsLimits() dataplane.Limits {
	limits := dataplanetest.Limits()
	limits.MaxServices = 10
	return limits
}

// fileOf is a file of services with these addresses, with comments and a section behind
// them.
func fileOf(addresses []int) string {
	var b strings.Builder
	b.WriteString("node: {name: lb1, interfaces: [eth0]}\nservices:\n  # all of them\n")
	for i, a := range addresses {
		fmt.Fprintf(&b, "  - name: web%d-%d\n    address: 10.1.0.%d\n    port: 80\n    forward: l2dsr\n", i, a, a)
		b.WriteString("    backends:\n    # two\n\n    - address: 10.0.0.1\n    - {address: 10.0.0.2}\n")
	}
	b.WriteString("observe: {listen: \"127.0.0.1:9\"}\n")
	return b.String()
}

// Of a file in which one service has changed, only that is parsed.
func TestPartsParserParsesWhatChanged(t *testing.T) {
	addresses := []int{1, 2, 3, 4, 5}
	p := &partsParser{limits: partsLimits()}
	if _, err := p.parse("f", []byte(fileOf(addresses))); err != nil {
		t.Fatal(err)
	}
	addresses[3] = 9
	text, found := cut(fileOf(addresses))
	if got := p.unknown(text); !found || len(text.services) != 5 || !slices.Equal(got, []int{3}) {
		t.Errorf("%d services, found %t, parsed %v, want 5 and the fourth", len(text.services), found, got)
	}
	text.after += "# a comment\n"
	if got := p.unknown(text); len(got) != 5 {
		t.Errorf("parsed %v, want all: another section has changed", got)
	}
}

// Whatever has happened to a file, the result is that of Parse.
func TestPartsParserIsParse(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		addresses := []int{1, 2, 3, 4, 5}
		text := fileOf(addresses)
		p := Parser(partsLimits())
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
func TestPartsParserIsParseOfFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, error %v", files, err)
	}
	p := Parser(partsLimits())
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		compareParsers(t, p, string(data))
		compareParsers(t, p, string(data)+"\n")
	}
}

func compareParsers(t *testing.T, p func(string, []byte) (*Config, error), text string) {
	t.Helper()
	want, wrong := Parse("f", []byte(text), partsLimits())
	got, err := p("f", []byte(text))
	if fmt.Sprint(err) != fmt.Sprint(wrong) {
		t.Fatalf("%s\ngot error %v\nwant %v", text, err, wrong)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s\ngot  %+v\nwant %+v", text, got, want)
	}
}

// What a file says is not changed by the next one.
func TestPartsParserKeepsConfigs(t *testing.T) {
	p := Parser(partsLimits())
	var all []*Config
	var copies [][]lb.Service
	for i := range 5 {
		c, err := p("f", []byte(fileOf([]int{1, 2 + i, 100})))
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
