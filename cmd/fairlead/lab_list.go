// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/netlab"
)

func newLabListCommand(e env, labs netlab.Labs) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the labs with their hosts",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.RunE = func(*cobra.Command, []string) error {
		states, err := labs.List()
		if err != nil {
			return err
		}
		switch output {
		case "table":
			return printLabs(e.stdout, states)
		case "json":
			encoder := json.NewEncoder(e.stdout)
			encoder.SetIndent("", "  ")
			return encoder.Encode(states)
		default:
			return fmt.Errorf("unknown output %q: want table or json", output)
		}
	}
	return cmd
}

func printLabs(w io.Writer, states []netlab.State) error {
	if len(states) == 0 {
		_, err := fmt.Fprintln(w, "no labs")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LAB\tTOPOLOGY\tHOST\tROLE\tNAMESPACE\tINTERFACES\tADDRESSES\tSOCKET")
	for _, s := range states {
		topology := s.Topology
		if !s.Ready {
			topology += " (incomplete)"
		}
		for _, h := range s.Hosts {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				s.Name, topology, h.Name, roleText(h), h.Namespace,
				dash(strings.Join(h.Interfaces, ",")), dash(joinAddresses(h.Addresses)), dash(h.Socket))
		}
	}
	return table.Flush()
}

// roleText is for example "router (frr)".
func roleText(h netlab.HostState) string {
	if h.Software == "" {
		return string(h.Role)
	}
	return fmt.Sprintf("%s (%s)", h.Role, h.Software)
}

func joinAddresses(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

// dash stands for what isn't there, so that every column has a word.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
