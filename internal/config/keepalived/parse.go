// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Place is a line of a file of keepalived.
type Place struct {
	File string
	// Line counts from 1.
	Line int
}

// errorf returns an error with its place, on one line.
func (p Place) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", printable(p.File), p.Line, printable(fmt.Sprintf(format, args...)))
}

// statement is a keyword with its parameters, and the statements of its block if it has one.
type statement struct {
	Place
	// words are without quotes; there is at least one.
	words []string
	// text is the statement with its quotes.
	text string
	// block is set if there are braces, also without statements in body.
	block bool
	body  []*statement
	// findings are the import's.
	findings *findings
}

// keyword is the first word.
func (s *statement) keyword() string { return s.words[0] }

// word returns the n-th parameter, counted from 1, or nothing.
func (s *statement) word(n int) string {
	if n < len(s.words) {
		return s.words[n]
	}
	return ""
}

// report adds a finding about the statement.
func (s *statement) report(format string, args ...any) {
	s.findings.add(s.Place, fmt.Sprintf(format, args...))
}

// Bounds: maxText is the size in bytes of one file, and of all lines in all. A line that
// definitions, sequences and lists make counts lineCost bytes more. maxIncludes is the depth of
// included files, maxBlocks the depth of blocks.
const (
	maxText       = 32 << 20
	lineCost      = 128
	maxLine       = 1022 // keepalived splits longer lines
	maxStatements = 1 << 21
	maxIncludes   = 16
	maxBlocks     = 64
)

// parser reads files into statements, by the rules of keepalived's lib/parser.c.
type parser struct {
	configID    string
	definitions map[string]definition
	// findings has lines that keepalived accepts and an import leaves out.
	findings *findings
	root     statement
	// open are the blocks that have not ended, last is the statement that a block may follow.
	open []*statement
	last *statement
	// size is the size of all lines so far, statements the number of all statements; includes
	// and depth are the numbers of files and of expansions that contain the current line.
	size, statements, includes, depth int
}

// parse returns the statements of a file and of those that it includes.
func (p *parser) parse(name, text string) ([]*statement, error) {
	p.definitions, p.open = map[string]definition{}, []*statement{&p.root}
	if err := p.file(name, text); err != nil {
		return nil, err
	}
	if unended := p.open[len(p.open)-1]; unended != &p.root {
		return nil, unended.errorf("the block of %q has no closing brace", unended.keyword())
	}
	return p.root.body, nil
}

// file reads the lines of one file.
func (p *parser) file(name, text string) error {
	if len(text) > maxText {
		return Place{name, 1}.errorf("%d bytes are too many: want at most %d", len(text), maxText)
	}
	at := Place{File: name}
	var unfinished *multiline // a definition that continues
	for raw := range strings.Lines(text) {
		at.Line++
		raw = strings.TrimRight(raw, "\r\n")
		line, closed := uncomment(raw)
		line, _ = uncomment(line) // keepalived's processes read a copy without comments, as a file
		switch {
		case !closed:
			return at.errorf("a quote is not closed")
		case len(raw) > maxLine:
			return at.errorf("the line is too long: want at most %d bytes", maxLine)
		case raw == "":
			p.define(unfinished)
			unfinished = nil
		case line == "":
		case unfinished != nil:
			if unfinished.add(at, line); !strings.HasSuffix(line, `\`) {
				p.define(unfinished)
				unfinished = nil
			}
		default:
			var err error
			if unfinished, err = p.line(at, line); err != nil {
				return err
			}
		}
	}
	p.define(unfinished)
	return nil
}

// uncomment removes comments, and white space at both ends. It returns false if a quoted
// string doesn't end. A backslash at the end of the line, after white space, stays.
func uncomment(line string) (_ string, closed bool) {
	quoted, comment, continued := false, false, false
	var out strings.Builder
	for i := 0; i < len(line); i++ {
		from := i
		switch c := line[i]; {
		case c == '"' && !comment:
			quoted = !quoted
		case c == '\\' && i+1 == len(line):
			continued = true
			continue
		case c == '\\':
			if i++; !quoted && (line[i] == '#' || line[i] == '!') {
				from = i
			}
		case !quoted && (c == '#' || c == '!'):
			comment = true
		}
		if !comment {
			out.WriteString(line[from : i+1])
		}
	}
	text := strings.Trim(out.String(), " \t")
	if continued {
		text += `\`
	}
	return text, !quoted
}

// includeKinds follow the keyword "include": they say which missing files keepalived reports.
var includeKinds = []string{"", "r", "m", "w", "b", "a"}

// include reads the files of an include line, if it is one.
func (p *parser) include(at Place, line string) (included bool, err error) {
	keyword, pattern, _ := strings.Cut(strings.Replace(line, "\t", " ", 1), " ")
	kind, is := strings.CutPrefix(keyword, "include")
	if pattern = strings.Trim(pattern, " \t"); !is || pattern == "" || !slices.Contains(includeKinds, kind) {
		return false, nil
	}
	path := pattern
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(at.File), path)
	}
	if strings.Contains(pattern, "{") {
		return true, at.errorf("include %s: braces are not supported: write a line for each file", pattern)
	}
	paths, err := filepath.Glob(path)
	switch {
	case err != nil:
		return true, at.errorf("include %s: %v", pattern, err)
	case len(paths) == 0 && strings.ContainsAny(pattern, "*?["):
		p.findings.add(at, fmt.Sprintf("include %s: no file matches", pattern))
	case len(paths) == 0:
		return true, at.errorf("include %s: no such file", pattern)
	case p.includes == maxIncludes:
		return true, at.errorf("include %s: more than %d files include each other", pattern, maxIncludes)
	}
	p.includes++
	defer func() { p.includes-- }()
	for _, path := range paths {
		text, err := ReadFile(path)
		if err != nil {
			return true, at.errorf("include %s: %v", pattern, err)
		}
		if err := p.file(path, text); err != nil {
			return true, err
		}
	}
	return true, nil
}

// ReadFile returns the content of a regular file.
func ReadFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: not a regular file", path)
	case info.Size() > maxText:
		return "", fmt.Errorf("%s: %d bytes are too many: want at most %d", path, info.Size(), maxText)
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// add adds a line to the statements. Braces outside of quotes separate statements, whether or
// not there is white space around them.
func (p *parser) add(at Place, line string) error {
	for line != "" {
		end := brace(line)
		if end > 0 {
			if p.statement(at, line[:end]); p.statements > maxStatements {
				return at.errorf("more than %d statements, with those of definitions, sequences and included files", maxStatements)
			}
			line = line[end:]
			continue
		}
		current := p.open[len(p.open)-1]
		switch {
		case line[0] == '{' && p.last == nil:
			return at.errorf("{ without a keyword before it")
		case line[0] == '{' && len(p.open) > maxBlocks:
			return at.errorf("more than %d blocks inside each other", maxBlocks)
		case line[0] == '{':
			p.last.block = true
			p.open = append(p.open, p.last)
		case current == &p.root:
			return at.errorf("} without an open block")
		default:
			p.open = p.open[:len(p.open)-1]
		}
		p.last, line = nil, strings.Trim(line[1:], " \t")
		if special.MatchString(line) {
			return p.each([]definedLine{{at, line}})
		}
	}
	return nil
}

// special matches lines that are more than statements, also behind a brace.
var special = regexp.MustCompile(`^([@~$]|include[rmwba]?[ \t])`)

// brace returns the index of the first brace outside of double quotes, or the length.
func brace(line string) int {
	quoted := false
	for i := range len(line) {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '}'):
			return i
		}
	}
	return len(line)
}

const whiteSpace = " \t\f\v\r"

// statement adds one to the innermost open block. A word ends at white space or at a quote.
func (p *parser) statement(at Place, text string) {
	s := &statement{Place: at, text: text, findings: p.findings}
	for rest := strings.TrimLeft(text, whiteSpace); rest != ""; rest = strings.TrimLeft(rest, whiteSpace) {
		var word string
		if rest[0] == '"' {
			word, rest, _ = strings.Cut(rest[1:], `"`)
		} else if end := strings.IndexAny(rest, whiteSpace+`"`); end >= 0 {
			word, rest = rest[:end], rest[end:]
		} else {
			word, rest = rest, ""
		}
		s.words = append(s.words, word)
	}
	if len(s.words) > 0 {
		p.statements++
		block := p.open[len(p.open)-1]
		block.body, p.last = append(block.body, s), s
	}
}
