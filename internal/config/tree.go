// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxSize is the largest size of a configuration file in bytes: about twice the size of a
// file with 1,048,576 backends.
const MaxSize = 128 << 20

// maxTree is the largest size of a text in bytes that becomes one tree, which takes more
// than a hundred times as much memory. Larger files are parsed in parts.
const maxTree = 8 << 20

// parseTree returns the syntax tree of the file's only document, or nil with the
// errors in d.
func (d *decoder) parseTree(text string) ast.Node {
	if len(text) > maxTree {
		d.fail(startOfFile(), "", fmt.Errorf(
			"%d bytes are too many: want at most %d, or services that are listed one by one, each from a line with a dash", len(text), maxTree))
		return nil
	}
	text = strings.TrimPrefix(text, "\ufeff")
	if at := firstInvalid(text); at != nil {
		d.fail(at, "", errors.New("not UTF-8 text"))
		return nil
	}
	if line := longBlankRun(text); line > 0 {
		at := &token.Position{Line: line, Column: 1}
		d.fail(at, "", fmt.Errorf("too many empty lines: want at most %d in a row", maxBlank))
		return nil
	}
	tokens := lexer.Tokenize(text)
	if d.checkTokens(tokens); len(d.errs) > 0 {
		return nil
	}
	// Duplicate keys are reported by readFields, which continues after them.
	tree, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.failSyntax(text, err)
		return nil
	}
	return d.onlyDocument(tree)
}

// maxBlank bounds consecutive empty lines: after a block of text the lexer takes
// quadratic time for them.
const maxBlank = 1000

// longBlankRun returns the line at which there are too many empty lines; 0 for none.
func longBlankRun(text string) int {
	n, run := 0, 0
	for line := range strings.Lines(text) {
		n, run = n+1, run+1
		if strings.TrimSpace(line) != "" {
			run = 0
		}
		if run > maxBlank {
			return n
		}
	}
	return 0
}

// onlyDocument returns the body of the tree's only document.
func (d *decoder) onlyDocument(tree *ast.File) ast.Node {
	var body ast.Node
	for _, doc := range tree.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.NullType:
		case body == nil:
			body = doc.Body
		default:
			d.fail(position(doc.Body), "", errors.New("second document: want only one in a file"))
			return nil
		}
	}
	switch {
	case body != nil:
	case d.mayBeEmpty:
		return &ast.MappingNode{}
	default:
		d.fail(startOfFile(), "", errors.New("the file has no configuration"))
	}
	return body
}

// failSyntax reports the parser's error. There is only one, as the parser stops at the
// first.
func (d *decoder) failSyntax(text string, err error) {
	at, message := startOfFile(), err.Error()
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
		message = syntax.Message
		if syntax.Token != nil && syntax.Token.Position != nil {
			at = syntax.Token.Position
		}
	}
	if indentedByTab(text, at.Line) {
		message = "tabs can't indent: use spaces"
	}
	d.fail(at, "", fmt.Errorf("syntax: %s", message))
}

func indentedByTab(text string, line int) bool {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return false
	}
	l := lines[line-1]
	return strings.Contains(l[:len(l)-len(strings.TrimLeft(l, " \t"))], "\t")
}

// firstInvalid returns the position of the first byte that is not UTF-8, or nil.
func firstInvalid(text string) *token.Position {
	if utf8.ValidString(text) {
		return nil
	}
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			before := text[:i]
			line := before[strings.LastIndexByte(before, '\n')+1:]
			return &token.Position{Line: strings.Count(before, "\n") + 1, Column: utf8.RuneCountInString(line) + 1}
		}
	}
	return nil
}

// startOfFile returns the position of a file's first character.
func startOfFile() *token.Position { return &token.Position{Line: 1, Column: 1} }

// position returns the start of a node. A block mapping starts at its first key: its
// token is the first colon.
func position(n ast.Node) *token.Position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position
	}
	return startOfFile()
}

// The parser recurses for each level and each field of a block mapping, so both are
// bounded before it runs. A configuration has six levels.
const (
	maxDepth  = 16
	maxFields = 64
)

// checkTokens rejects parts of YAML that a configuration doesn't need (anchors, tags,
// directives) and excessive nesting. Without aliases a tree is never larger than its
// file.
func (d *decoder) checkTokens(tokens token.Tokens) {
	var s nesting
	for _, t := range tokens {
		if why := unsupportedToken(t.Type); why != "" {
			d.fail(t.Position, "", errors.New(why))
		}
		if err := s.add(t); err != nil {
			d.fail(t.Position, "", err)
			return
		}
	}
}

// unsupportedToken returns the reason for rejecting a token; empty if it is accepted.
func unsupportedToken(t token.Type) string {
	switch t {
	case token.AnchorType, token.AliasType, token.MergeKeyType:
		return "anchors, aliases and merge keys are not supported: repeat the value"
	case token.TagType:
		return "tags are not supported"
	case token.MappingKeyType:
		return `complex keys ("? key") are not supported: write "key: value"`
	case token.DirectiveType:
		return "directives are not supported"
	default:
		return ""
	}
}

// nesting tracks the nesting of a token stream.
type nesting struct {
	// blocks are the open block collections, by increasing column.
	blocks []block
	// flows counts the open brackets and braces.
	flows int
}

// block is a block collection: the column of its entries and its number of fields.
type block struct{ column, fields int }

func (s *nesting) add(t *token.Token) error {
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		s.flows++
	case token.MappingEndType, token.SequenceEndType:
		s.flows = max(0, s.flows-1)
	default: // neither opens nor closes anything
	}
	isField := t.NextType() == token.MappingValueType
	if s.flows == 0 && (isField || t.Type == token.SequenceEntryType) {
		s.enter(t.Position.Column, isField)
	}
	if len(s.blocks)+s.flows > maxDepth {
		return fmt.Errorf("nested too deeply: want at most %d levels", maxDepth)
	}
	if n := len(s.blocks); n > 0 && s.blocks[n-1].fields > maxFields {
		return fmt.Errorf("too many fields in one mapping: want at most %d", maxFields)
	}
	return nil
}

// enter adds an entry of a block that begins in column.
func (s *nesting) enter(column int, isField bool) {
	n := len(s.blocks)
	for n > 0 && s.blocks[n-1].column > column {
		n--
	}
	s.blocks = s.blocks[:n]
	if n == 0 || s.blocks[n-1].column < column {
		s.blocks = append(s.blocks, block{column: column})
	}
	if isField {
		s.blocks[len(s.blocks)-1].fields++
	}
}
