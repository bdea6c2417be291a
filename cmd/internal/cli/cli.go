// SPDX-License-Identifier: Apache-2.0

// Package cli is the shared part of the commands fairlead and fairlab: exit statuses,
// output formats, flags with a list of values, and manual pages.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Exit statuses. A command may have others of its own.
const (
	failed     = 1
	wrongUsage = 2
)

// ExitStatus is an error that ends the process with this status. Its reason has been
// printed.
type ExitStatus int

// Error implements error.
func (e ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageError is an error of the command line itself.
type usageError struct{ error }

// Usage marks an error as one of the command line, so that the exit status is 2.
func Usage(err error) error { return usageError{err} }

// Usagef returns a formatted usage error.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Run executes one command line, prints its error, and returns the exit status: 0, 1 for a
// failure, 2 for an error of the command line, or the status of an ExitStatus.
func Run(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	err := execute(ctx, root, args)
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[ExitStatus](err); ok {
		return int(exit)
	}
	fmt.Fprintf(stderr, "%s: %s\n", root.Name(), Printable(err.Error()))
	if _, ok := errors.AsType[usageError](err); ok {
		return wrongUsage
	}
	return failed
}

// execute runs a command. An error before the command's own function runs is one of the
// command line.
func execute(ctx context.Context, root *cobra.Command, args []string) error {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	if err := unknownCommand(root, args); err != nil {
		return err
	}
	running := false
	observe(root, func() { running = true })
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !running {
		return Usage(err)
	}
	return err
}

// observe calls begin when the function of a command begins.
func observe(cmd *cobra.Command, begin func()) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			begin()
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		observe(sub, begin)
	}
}

// unknownCommand returns the error for a word in place of a command below another one,
// where cobra prints a help text and reports success.
func unknownCommand(root *cobra.Command, args []string) error {
	// An error is cobra's own to report.
	cmd, rest, _ := root.Find(args)
	if !cmd.HasParent() || cmd.Runnable() {
		return nil
	}
	for _, word := range rest {
		if !strings.HasPrefix(word, "-") {
			return Usagef("unknown command %q for %q", word, cmd.CommandPath())
		}
	}
	return nil
}

// Printable returns a text for the terminal in which characters that aren't printable are escaped, but line
// ends and tabs: others, such as an agent on a foreign node, may have written parts of it.
func Printable(text string) string {
	shown := func(r rune) bool { return r == '\n' || r == '\t' || strconv.IsPrint(r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !shown(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if shown(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
