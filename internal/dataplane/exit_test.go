// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"flag"
	"fmt"
	"go/format"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated texts of exits")

// Where the texts of exits are written by hand, and where they are generated.
const (
	exitSource = "../../bpf/core/exit.h"
	exitTable  = "exit_table.go"
	exitPage   = "../../docs/reference/exits.md"
)

const pageHead = `# Exits

Every packet that a balancer receives leaves the XDP data plane through exactly one exit, which counts it: the label
` + "`" + `exit` + "`" + ` of ` + "`" + `fairlead_dataplane_packets_total` + "`" + ` ([metrics](metrics.md)) and what ` + "`" + `fairlead trace` + "`" + ` shows for one packet.
This page is generated from ` + "`" + `enum counter` + "`" + ` in [bpf/core/exit.h](../../bpf/core/exit.h).
`

var (
	exitEnum = regexp.MustCompile(`(?s)enum counter \{(.*?)COUNTER_COUNT`)
	exitItem = regexp.MustCompile(`(?:COUNTER_(\w+), )?/\* (.*) \*/`)
)

// generate returns the table of texts and the page about exits: a heading for
// each comment of its own in the enumeration, and a row for each exit.
func generate(t *testing.T) (table, page string) {
	source, err := os.ReadFile(exitSource)
	if err != nil {
		t.Fatal(err)
	}
	enum := exitEnum.FindStringSubmatch(string(source))
	if enum == nil {
		t.Fatalf("%s: no enum counter", exitSource)
	}
	if rest := strings.TrimSpace(exitItem.ReplaceAllString(enum[1], "")); rest != "" {
		t.Fatalf("%s: enum counter: neither an exit with a text nor a heading: %q", exitSource, rest)
	}
	var rows, text strings.Builder
	text.WriteString(pageHead)
	for _, item := range exitItem.FindAllStringSubmatch(enum[1], -1) {
		words := item[2]
		if item[1] == "" {
			fmt.Fprintf(&text, "\n## %s\n\n| exit | reason |\n| --- | --- |\n", words)
			continue
		}
		name := strings.ToLower(item[1])
		fmt.Fprintf(&rows, "%q: %q,\n", name, words)
		fmt.Fprintf(&text, "| `%s` | %s |\n", name, words)
	}
	code := "// SPDX-License-Identifier: Apache-2.0\n\n// Code generated from bpf/core/exit.h; DO NOT EDIT.\n\n" +
		"package dataplane\n\nvar exitTexts = map[string]string{\n" + rows.String() + "}\n"
	formatted, err := format.Source([]byte(code))
	if err != nil {
		t.Fatal(err)
	}
	return string(formatted), text.String()
}

// The texts in Go and in the documentation equal the C enumeration's.
func TestExits(t *testing.T) {
	table, page := generate(t)
	for file, want := range map[string]string{exitTable: table, exitPage: page} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what %s says (%v): run go generate", file, exitSource, err)
		}
	}
}
