// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/control"
)

// logFlags set the level and the format of logs.
type logFlags struct {
	format, level cli.Choice
}

// register makes them the flags --log-format and --log-level.
func (l *logFlags) register(cmd *cobra.Command) {
	l.format, l.level = cli.NewChoice("text", "text", "json"), cli.NewChoice("info", "debug", "info", "warn", "error")
	l.format.Register(cmd, "log-format", "", "format of the log")
	l.level.Register(cmd, "log-level", "", "least level that is logged")
}

// logger returns a log with these flags.
func (l *logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.level.String())) // knows all levels of the flag
	options := &slog.HandlerOptions{Level: level}
	if l.format.String() == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// reader has the flags of a command that reads an agent's state.
type reader struct {
	socket string
	output cli.Output
}

func (r *reader) register(cmd *cobra.Command) {
	registerSocket(cmd, &r.socket, control.DefaultSocket, "the agent's control socket")
	r.output.Register(cmd)
}

// registerSocket makes it the flag --socket, with a default that the environment may
// replace.
func registerSocket(cmd *cobra.Command, socket *string, value, usage string) {
	cmd.Flags().StringVar(socket, "socket", cmp.Or(os.Getenv("FAIRLEAD_SOCKET"), value), usage+" (environment: FAIRLEAD_SOCKET)")
	cli.Complete(cmd, "socket", completeFiles)
}

// formatAnswer returns an agent's answer as it is printed. JSON is as the agent wrote it,
// or a single line if there will be others.
func formatAnswer[T any](o cli.Output, answer []byte, repeated bool, table func(T) string) (string, error) {
	var text bytes.Buffer
	switch {
	case o.Table():
		var state T
		if err := json.Unmarshal(answer, &state); err != nil {
			return "", fmt.Errorf("the agent's answer: %w", err)
		}
		return cli.Printable(table(state)), nil
	case o.JSON() && repeated:
		if err := json.Compact(&text, answer); err != nil {
			return "", fmt.Errorf("the agent's answer: %w", err)
		}
		text.WriteByte('\n')
	default:
		if err := o.PrintJSON(&text, answer); err != nil {
			return "", fmt.Errorf("the agent's answer: %w", err)
		}
	}
	return text.String(), nil
}
