// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/balancer/plane"
	"fairlead.io/fairlead/internal/config"
)

func newConfigCommand(e env) *cobra.Command {
	var out cli.Output
	kubernetes := false
	parent := &cobra.Command{Use: "config", Short: "Check and import configuration files"}
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Validate configuration files without an agent",
		Long: `Validate configuration files, of agents and of reflectors, without running them.
Each error is printed with its line and column; the exit status is 1 if any file
has one.`,
		Args: cobra.MinimumNArgs(1),
	}
	out.Register(cmd)
	cmd.ValidArgsFunction = completeFiles
	cmd.Flags().BoolVar(&kubernetes, "kubernetes", false, "the files are for agents with --kubernetes")
	cmd.RunE = func(_ *cobra.Command, paths []string) error {
		checks := make([]configCheck, len(paths))
		valid := true
		for i, path := range paths {
			checks[i] = checkConfig(path, kubernetes)
			valid = valid && checks[i].Valid
		}
		if err := printChecks(e, out, checks); err != nil {
			return err
		}
		if !valid {
			return cli.ExitStatus(1)
		}
		return nil
	}
	parent.AddCommand(cmd, newImportCommand(e))
	return parent
}

// configCheck is the output of "config check -o json" about one file.
type configCheck struct {
	File     string `json:"file"`
	Valid    bool   `json:"valid"`
	Services int    `json:"services"`
	Backends int    `json:"backends"`
	// Reflector is set for a valid file of a reflector, which has neither services
	// nor backends.
	Reflector *reflectorSize   `json:"reflector,omitempty"`
	Errors    []configError    `json:"errors"`
	Warnings  []config.Warning `json:"warnings"`
}

// reflectorSize is how much a reflector's file has.
type reflectorSize struct {
	Ranges  int `json:"ranges"`
	Routers int `json:"routers"`
}

// configError has no place where the file can't be read at all.
type configError struct {
	*config.Place
	Text string `json:"text"`
}

// String returns the place and the error, on one line.
func (c configError) String() string {
	if c.Place == nil {
		return c.Text
	}
	return c.Place.String() + ": " + c.Text
}

func checkConfig(path string, kubernetes bool) configCheck {
	check := configCheck{File: path, Errors: []configError{}, Warnings: []config.Warning{}}
	conf, err := loadConfig(path, kubernetes)
	wrong, placed := errors.AsType[config.Errors](err)
	check.Valid = err == nil
	switch r := conf.Reflector; {
	case err == nil && r != nil:
		check.Reflector = &reflectorSize{Ranges: len(r.BGP.Clients), Routers: len(r.BGP.Routers)}
		check.Warnings = append(check.Warnings, r.Warnings...)
	case err == nil:
		check.Services, check.Backends = len(conf.Node.Services), conf.Node.Backends()
		check.Warnings = append(check.Warnings, conf.Node.Warnings...)
	case placed:
		for _, w := range wrong {
			check.Errors = append(check.Errors, configError{Place: &w.Place, Text: w.Err.Error()})
		}
	default:
		check.Errors = append(check.Errors, configError{Text: err.Error()})
	}
	return check
}

func loadConfig(path string, kubernetes bool) (c config.Either, err error) {
	if kubernetes {
		c.Node, err = config.Load(path, config.ParseKubernetes)
		return c, err
	}
	return config.Load(path, func(name, text string) (config.Either, error) {
		return config.ParseEither(name, text, plane.Limits())
	})
}

// contents sums up a valid file in a few words.
func (c *configCheck) contents() string {
	if r := c.Reflector; r != nil {
		return count(r.Ranges, "range") + " of clients, " + count(r.Routers, "router")
	}
	return count(c.Services, "service") + ", " + count(c.Backends, "backend")
}

// printChecks writes JSON or YAML, or one line for each error and warning and for each
// valid file.
func printChecks(e env, out cli.Output, checks []configCheck) error {
	if !out.Table() {
		return out.Print(e.stdout, checks)
	}
	for _, c := range checks {
		for _, wrong := range c.Errors {
			fmt.Fprintln(e.stderr, wrong)
		}
		for _, w := range c.Warnings {
			fmt.Fprintln(e.stderr, w)
		}
		if c.Valid {
			fmt.Fprintf(e.stdout, "%s: ok: %s\n", c.File, c.contents())
		}
	}
	return nil
}

// count returns for example "1 service" or "12 services".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
