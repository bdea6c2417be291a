// SPDX-License-Identifier: Apache-2.0

package file

import (
	"cmp"
	"fmt"
	"strings"
)

// Place is a spot in a configuration file.
type Place struct {
	File string `json:"file"`
	// Line and Column count from 1; Column counts characters, not bytes.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path names the field, for example "services[0].backends[2].weight"; empty
	// where no field is meant.
	Path string `json:"path,omitempty"`
}

// String returns for example "fairlead.yaml:12:7: services[0].port".
func (p Place) String() string {
	s := fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	if p.Path != "" {
		s += ": " + p.Path
	}
	return s
}

func (p Place) compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Line, o.Line), cmp.Compare(p.Column, o.Column))
}

// Error is one thing that is wrong with a configuration file.
type Error struct {
	Place
	Err error
}

// Error returns the place and what is wrong there, on one line.
func (e *Error) Error() string { return e.Place.String() + ": " + e.Err.Error() }

// Unwrap returns what is wrong, without the place.
func (e *Error) Unwrap() error { return e.Err }

// Errors is everything that is wrong with one configuration file, in the order
// of the file; never empty where it is returned.
type Errors []*Error

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors one by one.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// Warning is something in a valid configuration file that doesn't do what its
// author may expect.
type Warning struct {
	Place
	Text string `json:"text"`
}

// String returns the place and the warning, on one line.
func (w Warning) String() string { return w.Place.String() + ": warning: " + w.Text }
