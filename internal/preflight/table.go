// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable prints the findings for people: a line each, and below those that
// ask for something what is needed and how to get there.
func WriteTable(w io.Writer, findings []Finding) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		check := f.Check
		if f.Interface != "" {
			check = f.Interface + ": " + check
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Result, check, f.Found)
		if f.Result != OK {
			fmt.Fprintf(table, "\t\t  needed: %s\n", f.Needed)
		}
		if f.Fix != "" {
			fmt.Fprintf(table, "\t\t  fix: %s\n", f.Fix)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, text.String())
	return err
}
