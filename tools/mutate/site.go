// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
	"strings"
)

// The kinds of changes.
const condition, offByOne, dropped, swapped = "condition", "off by one", "dropped", "swapped"

var kinds = []string{condition, offByOne, dropped, swapped}

// operators are replaced by an operator of the same kind.
var operators = map[string]string{"&&": "||", "||": "&&", "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}

// patterns are places in lines of formatted code. The first group of each is replaced; by another
// operator if there is no text. Changes that don't compile are left out.
var patterns = []struct {
	extensions, kind string
	pattern          *regexp.Regexp
	by               string
}{
	{".go", condition, regexp.MustCompile(`\b(?:if|case) (?:[^;]*; )?(.+)(?: \{|:)$`), "!($1)"},
	{".c .h", condition, regexp.MustCompile(`\bif \((.+)\)(?: \{)?$`), "!($1)"},
	{".go .c .h", condition, regexp.MustCompile(` (==|!=|&&|\|\|) `), ""},
	{".go .c .h", offByOne, regexp.MustCompile(` ([<>]=?) `), ""},
	{".go .c .h", offByOne, regexp.MustCompile(`[^\w.](0x[0-9a-f]+|[0-9]+)\b`), "($1 + 1)"},
	{".go", dropped, regexp.MustCompile(`^\t+([a-z][\w.,\[\]* ]* [-+*/|&^%]?= .+|[a-z][\w.\[\]]*\(.*\)|[a-z][\w.\[\]]*(?:\+\+|--)|continue|break|return)$`), ""},
	{".c .h", dropped, regexp.MustCompile(`^\t+([\w.\[\]>*-]+ [-+*/|&^%]?= .*|\w+\(.*\));$`), ""},
	{".go .c .h", swapped, regexp.MustCompile(`\w\((?:.*, )?(([\w.>&-]+), ([\w.>&-]+))[,)]`), "$3, $2"},
}

// prints are calls that tests needn't check.
var prints = regexp.MustCompile(`(?i)\blog(ger)?\.|\b(fmt|errors|slog)\.`)

// site is a place that can be changed: the bytes from start to end become text.
type site struct {
	line       int
	kind       string
	start, end int
	text       string
}

// sitesOf returns the places in functions, in Go also in declarations: lines that begin with a tab.
func sitesOf(extension string, text []byte) (sites []site) {
	begin, within := 0, extension == ".go"
	for number, bytes := range bytes.SplitAfter(text, []byte("\n")) {
		code, _, _ := strings.Cut(strings.TrimRight(string(bytes), "\n\\ "), "//")
		code = strings.TrimRight(code, " \t")
		if extension != ".go" && code != "" && code[0] != '\t' {
			within = code == "{" // of a function, in the kernel's style
		}
		for _, p := range patterns {
			skip := !within || !strings.HasPrefix(code, "\t") || !strings.Contains(p.extensions, extension)
			if skip || strings.Contains(code, "`") || strings.Contains(code, "/*") {
				continue
			}
			for _, at := range p.pattern.FindAllStringSubmatchIndex(code, -1) {
				quoted := strings.Count(code[:at[2]], `"`)%2 == 1
				by, old := string(p.pattern.ExpandString(nil, p.by, code, at)), code[at[2]:at[3]]
				if by == "" {
					by = operators[old]
				}
				if print := p.kind == dropped || p.kind == swapped; !quoted && by != old && !(print && prints.MatchString(code)) {
					sites = append(sites, site{number + 1, p.kind, begin + at[2], begin + at[3], by})
				}
			}
		}
		begin += len(bytes)
	}
	return sites
}
