// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
)

// logFormat is the value of the flag --log-format.
type logFormat string

const (
	logText logFormat = "text"
	logJSON logFormat = "json"
)

// String, Set and Type make it a flag's value.
func (f *logFormat) String() string { return string(*f) }

func (f *logFormat) Set(text string) error {
	switch logFormat(text) {
	case logText, logJSON:
		*f = logFormat(text)
		return nil
	default:
		return fmt.Errorf("want %s or %s", logText, logJSON)
	}
}

func (f *logFormat) Type() string { return "text|json" }

// logger returns a log of that format.
func (f *logFormat) logger(w io.Writer) *slog.Logger {
	if *f == logJSON {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}
