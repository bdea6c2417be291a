// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// definition is the value of a parameter: a text, or several lines.
type definition struct {
	text  string
	lines []definedLine
}

// definedLine is one line of a definition, with its place.
type definedLine struct {
	Place
	text string
}

// multiline is a definition of several lines that is being read.
type multiline struct {
	name  string
	lines []definedLine
}

// add adds a line; a backslash at its end continues it on the next line.
func (m *multiline) add(at Place, line string) {
	m.lines = append(m.lines, definedLine{at, strings.TrimRight(strings.TrimSuffix(line, `\`), " \t")})
}

// define ends a definition of several lines, if there is one.
func (p *parser) define(m *multiline) {
	if m != nil {
		p.definitions[m.name] = definition{lines: m.lines}
	}
}

// Definitions are written "$NAME=text", parameters "$NAME" before white space or at the end,
// and "${NAME}" anywhere. Names that begin with an underscore are predefined, some of them
// with arguments.
var (
	assignment = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)=[ \t]*(.*)$`)
	parameter  = regexp.MustCompile(`\$(?:([A-Za-z_]\w*)([ \t,)]|$)|\{([A-Za-z_]\w*)([ \t]+[\w \t]*)?\})`)
	sequence   = regexp.MustCompile(`^~SEQ(x?)[ \t]*\(([^)]*)\)[ \t]*(.*)$`)
	listed     = regexp.MustCompile(`^~LST[ \t]*\(([^)]*)\)[ \t]*(.*)$`)
	listItem   = regexp.MustCompile(`[ \t]*\{[^}]*\}|[^,]+`)
)

// maxDepth bounds definitions, sequences and lists within each other.
const maxDepth = 64

// line reads one line without comments. It returns the definition that the line begins, if
// that continues on the next line.
func (p *parser) line(at Place, line string) (*multiline, error) {
	p.size += len(line)
	if p.depth++; p.depth > 1 {
		p.size += lineCost
	}
	defer func() { p.depth-- }()
	switch {
	case p.depth > maxDepth:
		return nil, at.errorf("more than %d definitions and sequences inside each other", maxDepth)
	case p.size > maxText:
		return nil, at.errorf("definitions, sequences and included files expand to more than %d bytes", maxText)
	}
	selected, line := p.condition(at, line)
	if !selected || line == "" {
		return nil, nil
	}
	if m := assignment.FindStringSubmatch(line); m != nil {
		if strings.HasSuffix(m[2], `\`) {
			begun := &multiline{name: m[1]}
			begun.add(at, m[2])
			return begun, nil
		}
		p.definitions[m[1]] = definition{text: m[2]}
		return nil, nil
	}
	if strings.HasPrefix(line, "~") {
		return nil, p.repeat(at, line)
	}
	expanded, more, err := p.expand(at, line)
	if err != nil {
		return nil, err
	}
	if expanded != line || len(more) > 0 {
		expanded, _ = uncomment(expanded) // of a value such as ${_HASH}
		return nil, p.each(append([]definedLine{{at, expanded}}, more...))
	}
	if included, err := p.include(at, line); included || err != nil {
		return nil, err
	}
	return nil, p.add(at, line)
}

// each reads lines of a definition; one of them may begin another definition.
func (p *parser) each(lines []definedLine) error {
	var unfinished *multiline
	for _, l := range lines {
		if unfinished != nil {
			unfinished.add(l.Place, l.text)
			continue
		}
		var err error
		if unfinished, err = p.line(l.Place, l.text); err != nil {
			return err
		}
	}
	p.define(unfinished)
	return nil
}

// condition reports whether a line "@id text" or "@^id text" applies, and returns its text.
func (p *parser) condition(at Place, line string) (selected bool, text string) {
	if !strings.HasPrefix(line, "@") {
		return true, line
	}
	id, rest := line[1:], ""
	if end := strings.IndexAny(line, " \t"); end > 0 {
		id, rest = line[1:end], strings.Trim(line[end:], " \t")
	}
	if p.configID == "" {
		p.findings.add(at, fmt.Sprintf("@%s: conditional lines are left out: select them with --config-id", id))
		return false, ""
	}
	id, inverted := strings.CutPrefix(id, "^")
	return (id == p.configID) != inverted, rest
}

// expand replaces the parameters of a line. A definition of several lines counts at the end
// of the line only; its further lines are returned.
func (p *parser) expand(at Place, line string) (_ string, more []definedLine, err error) {
	for from, replaced := 0, 0; from < len(line); {
		m := parameter.FindStringSubmatchIndex(line[from:])
		if m == nil {
			break
		}
		start, end := from+m[0], from+m[1]
		name, braces := matched(line[from:], m, 3), true
		if name == "" {
			name, braces = matched(line[from:], m, 1), false
			end = from + m[3]
		}
		d, known := p.lookup(at, name)
		if multiple := len(d.lines) > 0; multiple && end < len(line) || matched(line[from:], m, 4) != "" {
			known = false
		} else if multiple {
			d.text, more = d.lines[0].text, d.lines[1:]
		}
		if !known {
			if braces && strings.Count(line[:start], `"`)%2 == 0 {
				return "", nil, at.errorf("%s is not defined, or not supported: replace it by its value", line[start:end])
			}
			from = end
			continue
		}
		if line = line[:start] + d.text + line[end:]; len(line) > maxLine {
			return "", nil, at.errorf("the line with the values of its parameters is too long: want at most %d bytes", maxLine)
		}
		if from = start; strings.HasPrefix(name, "_") || len(d.lines) > 0 {
			from = start + len(d.text)
		}
		if replaced++; replaced > maxLine {
			return "", nil, at.errorf("the parameter %s refers to itself", name)
		}
	}
	return line, more, nil
}

// matched returns a group of a match, or nothing.
func matched(text string, match []int, n int) string {
	if match[2*n] < 0 {
		return ""
	}
	return text[match[2*n]:match[2*n+1]]
}

// lookup returns a definition, or one of those that are predefined.
func (p *parser) lookup(at Place, name string) (d definition, known bool) {
	if d, known = p.definitions[name]; known {
		return d, true
	}
	switch name {
	case "_PWD":
		folder, err := filepath.Abs(filepath.Dir(at.File))
		return definition{text: folder}, err == nil
	case "_HASH":
		return definition{text: "#"}, true
	case "_BANG":
		return definition{text: "!"}, true
	case "_INSTANCE":
		return definition{text: p.configID}, p.configID != ""
	}
	return definition{}, false
}

// repeat reads the rest of a line for each value of a sequence "~SEQ(name, first, step, last)"
// or of a list "~LST(name, value, value)".
func (p *parser) repeat(at Place, line string) error {
	if m := sequence.FindStringSubmatch(line); m != nil {
		numbers, _, err := p.expand(at, m[2])
		if err != nil {
			return err
		}
		name, numbers, _ := strings.Cut(numbers, ",")
		first, step, last, valid := sequenceBounds(strings.Split(numbers, ","))
		if !valid {
			return at.errorf("bad sequence %s", line)
		}
		base := 10
		if m[1] == "x" {
			base = 16
		}
		for n := first; (step > 0 && n <= last) || (step < 0 && n >= last); n += step {
			p.definitions[strings.Trim(name, " \t")] = definition{text: strconv.FormatInt(n, base)}
			if err := p.each([]definedLine{{at, m[3]}}); err != nil {
				return err
			}
		}
		return nil
	}
	m := listed.FindStringSubmatch(line)
	if m == nil {
		return at.errorf("unknown block %s", line)
	}
	items := listItem.FindAllString(m[1], -1)
	for _, item := range items[min(1, len(items)):] {
		values := listNames(item)
		for i, name := range listNames(items[0]) {
			d := definition{}
			if i < len(values) {
				d.text = values[i]
			}
			p.definitions[name] = d
		}
		if err := p.each([]definedLine{{at, m[2]}}); err != nil {
			return err
		}
	}
	return nil
}

// maxSequence bounds the numbers of sequences, so that their sums don't overflow.
const maxSequence = 1 << 40

// sequenceBounds reads one to three numbers: the last, the first and the last, or with a step
// between both.
func sequenceBounds(texts []string) (first, step, last int64, valid bool) {
	var numbers []int64
	for _, text := range texts {
		n, err := strconv.ParseInt(strings.Trim(text, " \t"), 0, 64)
		if err != nil || max(n, -n) > maxSequence || n < -maxSequence {
			return 0, 0, 0, false
		}
		numbers = append(numbers, n)
	}
	direction := func(from, to int64) int64 {
		if from > to {
			return -1
		}
		return 1
	}
	switch len(numbers) {
	case 1:
		first, last = direction(0, numbers[0]), numbers[0]
		step = direction(first, last)
	case 2:
		first, last = numbers[0], numbers[1]
		step = direction(first, last)
	case 3:
		first, step, last = numbers[0], numbers[1], numbers[2]
	}
	return first, step, last, len(numbers) <= 3 && step != 0
}

// listNames returns the parts of "{a, b}", or of "a".
func listNames(item string) []string {
	parts := strings.Split(strings.Trim(item, "{} \t"), ",")
	for i, part := range parts {
		parts[i] = strings.Trim(part, " \t")
	}
	return parts
}
