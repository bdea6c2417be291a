// SPDX-License-Identifier: Apache-2.0

package file

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// The parser recurses for each level and for each field of a block mapping, so
// both are bounded before it sees the file. The configuration itself has six
// levels and no more than twelve fields in a mapping.
const (
	maxDepth  = 16
	maxFields = 64
)

// checkTokens refuses the parts of YAML that a configuration doesn't need: what
// makes text stand for something else (anchors, tags, directives), and shapes
// that no configuration has. Without aliases a tree is never larger than its
// file.
func (d *decoder) checkTokens(tokens token.Tokens) {
	var s shape
	for _, t := range tokens {
		if why := refused(t.Type); why != "" {
			d.fail(t.Position, "", errors.New(why))
		}
		if err := s.add(t); err != nil {
			d.fail(t.Position, "", err)
			return
		}
	}
}

// refused says why a token isn't wanted; empty if it is.
func refused(t token.Type) string {
	switch t {
	case token.AnchorType, token.AliasType, token.MergeKeyType:
		return "anchors, aliases and merge keys are not read: write the value out"
	case token.TagType:
		return "tags are not read: the field says the type"
	case token.MappingKeyType:
		return `complex keys ("? key") are not read: write "key: value"`
	case token.DirectiveType:
		return "directives are not read"
	default:
		return ""
	}
}

// shape follows the nesting of a stream of tokens.
type shape struct {
	// blocks are the open block collections, by growing column.
	blocks []block
	// flows counts the open brackets and braces.
	flows int
}

// block is one block collection: the column in which its entries begin, and the
// number of fields it has had.
type block struct{ column, fields int }

func (s *shape) add(t *token.Token) error {
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

// enter takes note of a block's entry that begins in column.
func (s *shape) enter(column int, isField bool) {
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
