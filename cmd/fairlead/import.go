// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/config/keepalived"
	"fairlead.io/fairlead/internal/lb"
)

// exitFindings is the status of an import that is complete except for the findings
// that it reports.
const exitFindings = cli.ExitStatus(3)

func newImportCommand(e env) *cobra.Command {
	var o keepalived.Options
	var marks []string
	parent := &cobra.Command{Use: "import", Short: "Translate configurations of other load balancers"}
	cmd := &cobra.Command{
		Use:   "keepalived FILE",
		Short: "Translate the virtual servers of keepalived.conf",
		Long: `Translate the virtual servers of a keepalived.conf(5), or of standard input ("-"),
with the files that it includes, into a configuration on standard output, which
"fairlead config check" accepts. What has no counterpart is reported on standard
error with its file and line, and in a comment of the configuration.

The exit status is 0 if everything was translated, 3 if something is reported, and
1, without any output, if the file can't be read.`,
		Example: `  fairlead config import keepalived --interface eth0 keepalived.conf >fairlead.yaml
  fairlead config import keepalived --interface eth0 --mark 1=192.0.2.1:80/tcp,192.0.2.1:443/tcp keepalived.conf`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Interfaces, "interface", nil, "interface on which clients' packets arrive (required; may be repeated)")
	flags.StringArrayVar(&marks, "mark", nil, "VIPs whose packets have a firewall mark, as mark=address:port/protocol,... (may be repeated)")
	flags.StringVar(&o.ConfigID, "config-id", "", `select the lines that begin with "@" and this, as keepalived's option does`)
	_ = cmd.MarkFlagRequired("interface") // fails only for a flag that isn't there
	cli.Complete(cmd, "interface", completeInterfaces)
	cmd.ValidArgsFunction = completeFiles
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		for _, mark := range marks {
			if err := addMark(&o, mark); err != nil {
				return err
			}
		}
		return importKeepalived(e, args[0], o)
	}
	parent.AddCommand(cmd)
	return parent
}

func importKeepalived(e env, path string, o keepalived.Options) error {
	text, err := readInput(e, path)
	if err != nil {
		return err
	}
	result, err := keepalived.Import(path, text, o)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(e.stdout, result.YAML); err != nil {
		return err
	}
	for _, f := range result.Findings {
		fmt.Fprintln(e.stderr, f)
	}
	if len(result.Findings) > 0 {
		return exitFindings
	}
	return nil
}

// readInput returns the content of a file, or of standard input.
func readInput(e env, path string) (string, error) {
	if path != "-" {
		return keepalived.ReadFile(path)
	}
	text, err := io.ReadAll(e.stdin)
	return string(text), err
}

// addMark reads a value such as "1=192.0.2.1:80/tcp,192.0.2.1:443/tcp".
func addMark(o *keepalived.Options, text string) error {
	number, list, _ := strings.Cut(text, "=")
	mark, err := strconv.ParseUint(number, 10, 32)
	if err != nil || mark == 0 {
		return cli.Usagef("--mark: %q: want for example 1=192.0.2.1:80/tcp", text)
	}
	vips, err := parseEach("mark", strings.Split(list, ","), lb.ParseVIP)
	if err != nil {
		return err
	}
	o.AddMark(uint32(mark), vips)
	return nil
}
