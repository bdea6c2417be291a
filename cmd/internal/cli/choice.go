// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Choice is a flag's value: one of a list.
type Choice struct {
	value  string
	values []string
}

// NewChoice returns a choice among these values.
func NewChoice(value string, values ...string) Choice { return Choice{value: value, values: values} }

// String implements pflag.Value.
func (c *Choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *Choice) Type() string { return strings.Join(c.values, "|") }

// Set implements pflag.Value.
func (c *Choice) Set(text string) error {
	if !slices.Contains(c.values, text) {
		last := len(c.values) - 1
		return fmt.Errorf("want %s or %s", strings.Join(c.values[:last], ", "), c.values[last])
	}
	c.value = text
	return nil
}

// Register makes it a flag of a command. A shell completes its values.
func (c *Choice) Register(cmd *cobra.Command, name, shorthand, usage string) {
	cmd.Flags().VarP(c, name, shorthand, usage)
	Complete(cmd, name, cobra.FixedCompletions(c.values, cobra.ShellCompDirectiveNoFileComp))
}

// Complete sets how a shell completes a flag's value.
func Complete(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, values) // fails only for a flag that isn't there
}

// Output is the format of a command's output: a table for people, JSON or YAML for
// programs.
type Output struct{ choice Choice }

// Register makes it the flag -o of a command.
func (o *Output) Register(cmd *cobra.Command) {
	o.choice = NewChoice("table", "table", "json", "yaml")
	o.choice.Register(cmd, "output", "o", "table for people, json or yaml for programs")
}

// Table reports whether the output is for people.
func (o Output) Table() bool { return !o.JSON() && !o.YAML() }

// JSON reports whether the output is JSON.
func (o Output) JSON() bool { return o.choice.value == "json" }

// YAML reports whether the output is YAML.
func (o Output) YAML() bool { return o.choice.value == "yaml" }

// Print writes a value as JSON or YAML.
func (o Output) Print(w io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return o.PrintJSON(w, append(text, '\n'))
}

// PrintJSON writes JSON as it is, or as YAML with the same fields, sorted by name as
// kubectl does.
func (o Output) PrintJSON(w io.Writer, text []byte) error {
	if o.YAML() {
		var err error
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err := w.Write(text)
	return err
}
