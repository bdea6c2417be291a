// SPDX-License-Identifier: Apache-2.0

package file

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

// MaxSize is the size in bytes up to which a configuration file is read: about
// twice what 4,096 services with 32 backends each take.
const MaxSize = 8 << 20

// parseTree returns the syntax tree of the file's one document. It is nil if
// that failed; the errors are then in d.
func (d *decoder) parseTree(data []byte) ast.Node {
	if len(data) > MaxSize {
		d.fail(start(), "", fmt.Errorf("%d bytes are too many: want at most %d", len(data), MaxSize))
		return nil
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	if at := firstInvalid(text); at != nil {
		d.fail(at, "", errors.New("not UTF-8 text"))
		return nil
	}
	if line := blankRun(text); line > 0 {
		at := &token.Position{Line: line, Column: 1}
		d.fail(at, "", fmt.Errorf("too many empty lines: want at most %d in a row", maxBlank))
		return nil
	}
	tokens := lexer.Tokenize(text)
	if d.checkTokens(tokens); len(d.errs) > 0 {
		return nil
	}
	// Duplicate keys are the walker's to report: it goes on behind them.
	tree, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.failSyntax(text, err)
		return nil
	}
	return d.onlyDocument(tree)
}

// maxBlank bounds the empty lines in a row: behind a block of text the lexer's
// time grows with their square.
const maxBlank = 1000

// blankRun returns the line at which there are too many empty ones; 0 if there
// is none.
func blankRun(text string) int {
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

// onlyDocument returns the body of the one document in the tree.
func (d *decoder) onlyDocument(tree *ast.File) ast.Node {
	var body ast.Node
	for _, doc := range tree.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.NullType:
		case body == nil:
			body = doc.Body
		default:
			d.fail(position(doc.Body), "", errors.New("another document begins here: want only one in the file"))
			return nil
		}
	}
	if body == nil {
		d.fail(start(), "", errors.New("the file has no configuration"))
	}
	return body
}

// failSyntax reports what the parser says. It stops at the first error, so that
// there is only one.
func (d *decoder) failSyntax(text string, err error) {
	at, message := start(), err.Error()
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
	n := 0
	for l := range strings.Lines(text) {
		if n++; n == line {
			indent := l[:len(l)-len(strings.TrimLeft(l, " \t"))]
			return strings.Contains(indent, "\t")
		}
	}
	return false
}

// firstInvalid returns the place of the first byte that is not UTF-8, or nil.
func firstInvalid(text string) *token.Position {
	if utf8.ValidString(text) {
		return nil
	}
	at := start()
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			break
		}
		at.Column++
		if r == '\n' {
			at.Line, at.Column = at.Line+1, 1
		}
	}
	return at
}

// start is the first character of a file.
func start() *token.Position { return &token.Position{Line: 1, Column: 1} }

// position returns where a node begins. A block mapping's own token is its
// first colon; it begins with its first key.
func position(n ast.Node) *token.Position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position
	}
	return start()
}
