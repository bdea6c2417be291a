// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"fairlead.io/fairlead/internal/control"
)

// format is the value of a flag: JSON for programs, or what people read.
type format struct {
	json  bool
	human string // "table" or "text"
}

// String, Set and Type make it a flag's value.
func (f *format) String() string {
	if f.json {
		return "json"
	}
	return f.human
}

func (f *format) Set(text string) error {
	if text != "json" && text != f.human {
		return fmt.Errorf("want %s or json", f.human)
	}
	f.json = text == "json"
	return nil
}

func (f *format) Type() string { return f.human + "|json" }

// registerOutput makes it the flag -o.
func (f *format) registerOutput(flags *pflag.FlagSet) {
	f.human = "table"
	flags.VarP(f, "output", "o", "table for people or json for programs")
}

// registerLog makes it the flag --log-format.
func (f *format) registerLog(flags *pflag.FlagSet) {
	f.human = "text"
	flags.Var(f, "log-format", "text or json")
}

// logger returns a log of that format.
func (f *format) logger(w io.Writer) *slog.Logger {
	if f.json {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// printJSON writes a value in lines.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// reader has the flags of a command that reads an agent's state.
type reader struct {
	socket string
	output format
}

func (r *reader) register(flags *pflag.FlagSet) {
	registerSocket(flags, &r.socket)
	r.output.registerOutput(flags)
}

func registerSocket(flags *pflag.FlagSet, socket *string) {
	flags.StringVar(socket, "socket", control.DefaultSocket, "the agent's control socket")
}

// printAnswer writes an agent's answer: JSON as it came, or as a table.
func printAnswer[T any](w io.Writer, o format, answer []byte, table func(T) string) error {
	if o.json {
		_, err := w.Write(answer)
		return err
	}
	var state T
	if err := json.Unmarshal(answer, &state); err != nil {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	_, err := io.WriteString(w, table(state))
	return err
}
