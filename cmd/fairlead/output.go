// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"fairlead.io/fairlead/internal/observe"
)

// output is the value of the flag -o: tables are for people, JSON for programs.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

// String, Set and Type make it a flag's value.
func (o *output) String() string { return string(*o) }

func (o *output) Set(text string) error {
	switch output(text) {
	case outputTable, outputJSON:
		*o = output(text)
		return nil
	default:
		return fmt.Errorf("want %s or %s", outputTable, outputJSON)
	}
}

func (o *output) Type() string { return "table|json" }

func (o *output) register(flags *pflag.FlagSet) {
	*o = outputTable
	flags.VarP(o, "output", "o", "table for people or json for programs")
}

// reader has the flags of a command that reads an agent's state.
type reader struct {
	socket string
	output output
}

func (r *reader) register(flags *pflag.FlagSet) {
	registerSocket(flags, &r.socket)
	r.output.register(flags)
}

func registerSocket(flags *pflag.FlagSet, socket *string) {
	flags.StringVar(socket, "socket", observe.DefaultSocket, "the agent's control socket")
}

// printAnswer writes an agent's answer: JSON as it came, or as a table.
func printAnswer[T any](w io.Writer, o output, answer []byte, table func(io.Writer, T) error) error {
	if o == outputJSON {
		_, err := w.Write(answer)
		return err
	}
	var state T
	if err := json.Unmarshal(answer, &state); err != nil {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	return table(w, state)
}
