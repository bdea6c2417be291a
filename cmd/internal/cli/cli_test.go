// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// tree is a root with a group of commands and one command.
func tree(out *bytes.Buffer) *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "A tool", Version: "1.2 (test)"}
	root.SetOut(out)
	root.SetErr(out)
	group := &cobra.Command{Use: "group", Short: "Commands"}
	number := 0
	work := &cobra.Command{Use: "work [NAME]", Short: "Work", Args: cobra.MaximumNArgs(1)}
	work.Flags().IntVar(&number, "number", 0, "a number")
	work.Flags().String("needed", "", "a flag that is required")
	_ = work.MarkFlagRequired("needed")
	work.RunE = func(_ *cobra.Command, args []string) error {
		switch strings.Join(args, "") {
		case "usage":
			return Usagef("--number: bad")
		case "failure":
			return errors.New("it broke")
		case "findings":
			return ExitStatus(3)
		}
		return nil
	}
	group.AddCommand(work)
	root.AddCommand(group, NewManCommand())
	return root
}

// TestExitStatus checks that errors of the command line end with 2, others with 1.
func TestExitStatus(t *testing.T) {
	for line, want := range map[string]struct {
		status int
		text   string
	}{
		"":                                    {0, "A tool"},
		"--version":                           {0, "tool 1.2 (test)\n"},
		"group":                               {0, "Available Commands"},
		"group --help":                        {0, "Available Commands"},
		"group work --needed x":               {0, ""},
		"group work --needed x failure":       {1, "tool: it broke\n"},
		"group work --needed x findings":      {3, ""},
		"group work --needed x usage":         {2, "tool: --number: bad\n"},
		"group work":                          {2, `"needed" not set`},
		"group work --needed x a b":           {2, "accepts at most 1 arg(s)"},
		"group work --needed x --number many": {2, "invalid argument"},
		"group work --nothing":                {2, "unknown flag: --nothing"},
		"group nonsense":                      {2, `tool: unknown command "nonsense" for "tool group"` + "\n"},
		"nonsense":                            {2, `unknown command "nonsense" for "tool"`},
		"--nonsense":                          {2, "unknown flag: --nonsense"},
	} {
		var out bytes.Buffer
		status := Run(t.Context(), tree(&out), strings.Fields(line), &out)
		if status != want.status || !strings.Contains(out.String(), want.text) || want.text == "" && out.Len() > 0 {
			t.Errorf("%q: status %d, %q; want %d, %q", line, status, &out, want.status, want.text)
		}
	}
}

// TestPrint checks that a YAML parser reads the output.
// Texts of others can't control the terminal.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\nc é ✓": "a\tb\nc é ✓", "a\x1b[2J\x07b\r\x7f": `a\x1b[2J\ab\r\x7f`, "\u009b2J \u202e": `\u009b2J \u202e`, "\x9b": "\ufffd",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestPrint(t *testing.T) {
	value := map[string]any{
		"empty": "", "null": nil, "text": "null", "yes": "yes", "number": "1e3", "octal": "010", "time": "2026-11-25T21:00:00Z", "colon": "a: b", "hash": "a #b",
		"lines": "a\n  b\n", "quote": `"'`, "tab": "\t", "dash": "- a", "brace": "{a}", "ratio": 0.25, "tiny": 1e-9, "big": uint64(math.MaxUint64), "negative": -3,
		"list": []any{}, "object": map[string]any{}, "lists": []any{[]any{1, "2"}, map[string]any{"a": true}}, "address": "[fd00::1]:80", "colour": "ff:00", "@at": "@x", "percent": "%x", "space": " a ", "star": "*a",
	}
	want, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o := Output{NewChoice("yaml", "yaml")}
	if err := o.Print(&out, value); err != nil {
		t.Fatal(err)
	}
	back, err := yaml.YAMLToJSON(out.Bytes())
	if err != nil {
		t.Fatalf("%v in\n%s", err, &out)
	}
	if diff := cmp.Diff(decode(t, want), decode(t, back)); diff != "" {
		t.Errorf("%s\n%s", diff, &out)
	}
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestMan checks that each command has a page, and that pages depend on SOURCE_DATE_EPOCH
// only.
func TestMan(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1750000000")
	dir := filepath.Join(t.TempDir(), "man", "man1")
	var out bytes.Buffer
	if status := Run(t.Context(), tree(&out), []string{"man", dir}, &out); status != 0 {
		t.Fatal(status, out.String())
	}
	for name, want := range map[string]string{
		"tool.1": "Jun 2025", "tool-group-work.1": "a flag that is required", "tool-man.1": "SOURCE_DATE_EPOCH",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v: want %q in\n%s", name, err, want, text)
		}
	}
}
