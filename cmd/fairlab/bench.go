// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/version"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

func newBenchCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure Fairlead's claims about itself",
		Long: `Measure Fairlead's claims about itself and what they are compared with, in one
run on this machine. The report goes to standard output, as a table, JSON or YAML;
progress goes to standard error. Root is needed. A bench that is interrupted by Ctrl-C
removes what it made, and reports what it has measured so far.`,
		Args: cobra.NoArgs,
	}
	all := []*measurement{
		newBenchPacket(), newBenchForward(), newBenchHTTP(), newBenchHealth(), newBenchFlood(), newBenchLimit(), newBenchLatency(),
		newBenchChurn(), newBenchECMP(), newBenchKubernetes(), newBenchAPI(), newBenchOpenStack(), newBenchLookups(),
	}
	for _, m := range all {
		cmd.AddCommand(m.command(e))
	}
	cmd.AddCommand(newBenchAllCommand(e, all), newBenchHealthServersCommand(), newBenchReportCommand(e), newBenchReportsCommand(e))
	return cmd
}

// measurement is the command of one bench.
type measurement struct {
	name, short, long string
	run               func(context.Context, bench.Config) (*bench.Report, error)
	flags             *pflag.FlagSet
	// reduced are the numbers that --quick reduces, by their flags.
	reduced map[string]func()
	quick   bool
	// cell and resume are the flags of that name.
	cell, resume string
}

func newMeasurement(name, short, long string) *measurement {
	m := &measurement{name: name, short: short, long: long, flags: pflag.NewFlagSet(name, pflag.ContinueOnError), reduced: map[string]func(){}}
	m.flags.BoolVar(&m.quick, "quick", false, "measure less, in a minute or two")
	m.flags.StringVar(&m.cell, "cell", "", "measure only the cells whose names match this regular expression")
	m.flags.StringVar(&m.resume, "resume", "", "continue the incomplete report in this file, written by -o json with the same flags")
	return m
}

// number adds the flag of a number, which is another one with --quick.
func (m *measurement) number(to *int, flag string, usual, quick int, usage string) {
	m.flags.IntVar(to, flag, usual, fmt.Sprintf("%s; %d with --quick", usage, quick))
	m.reduced[flag] = func() { *to = quick }
}

// seed adds the flag --seed.
func (m *measurement) seed(seed *uint64) {
	m.flags.Uint64Var(seed, "seed", rand.Uint64(), "repeat the changes of an earlier run")
	m.flags.Lookup("seed").DefValue = "random"
}

func (m *measurement) command(e env) *cobra.Command {
	cmd := &cobra.Command{Use: m.name, Short: m.short, Long: m.long, Args: cobra.NoArgs}
	cmd.Flags().AddFlagSet(m.flags)
	var output cli.Output
	output.Register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := m.measure(cmd.Context(), e, !output.Table())
		if report == nil {
			return err
		}
		if output.Table() {
			return errors.Join(err, report.WriteTable(e.stdout))
		}
		var text bytes.Buffer
		return errors.Join(err, report.WriteJSON(&text), output.PrintJSON(e.stdout, text.Bytes()))
	}
	return cmd
}

// measure returns the report, also one of a part if it fails. A kept report needs digests.
func (m *measurement) measure(ctx context.Context, e env, kept bool) (*bench.Report, error) {
	for flag, reduce := range m.reduced {
		if m.quick && !m.flags.Changed(flag) {
			reduce()
		}
	}
	cfg := bench.Config{
		Labs: netlab.Labs{Dir: netlab.DefaultDir}, Commit: version.Commit(), Quick: m.quick,
		Progress: func(line string) { fmt.Fprintln(e.stderr, line) },
	}
	var err error
	if m.cell != "" {
		if cfg.Only, err = regexp.Compile(m.cell); err != nil {
			return nil, cli.Usagef("--cell: %w", err)
		}
	}
	if m.resume != "" {
		text, err := os.ReadFile(m.resume)
		if err == nil {
			err = json.Unmarshal(text, &cfg.Earlier)
		}
		if err != nil {
			return nil, cli.Usagef("--resume %s: %w", m.resume, err)
		}
	}
	measured, unknown := bench.Digests(".", m.name, cfg.Commit)
	if unknown != nil && kept {
		fmt.Fprintf(e.stderr, "the report will hold no digests of what it measures: %v\n", unknown)
	}
	report, err := m.run(ctx, cfg)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err)
	}
	if report != nil {
		maps.Copy(report.Measured, measured)
	}
	return report, err
}

func newBenchAllCommand(e env, all []*measurement) *cobra.Command {
	var quick bool
	cmd := &cobra.Command{
		Use:   "all FOLDER",
		Short: "Run every bench that this machine can run",
		Long: `Run every bench that this machine can run, one after the other, and write the report
of each as NAME.json into a folder. The benches that can't run here are named with what
they lack: a program, a cluster, or OpenStack. With a cluster they are all but OpenStack's:

    go run ./test/cluster/up bin/fairlab bench all FOLDER`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "measure less, each bench in a minute or two")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		var failed error
		for _, m := range all {
			if m.name == lookups {
				continue // it measures no claim
			}
			m.quick = quick
			report, err := m.measure(cmd.Context(), e, true)
			if _, unavailable := errors.AsType[bench.Unavailable](err); unavailable {
				fmt.Fprintf(e.stdout, "%s: skipped: %v\n", m.name, err)
				continue
			}
			if report != nil {
				var text bytes.Buffer
				file := filepath.Join(args[0], m.name+".json")
				if err := errors.Join(report.WriteJSON(&text), os.WriteFile(file, text.Bytes(), 0o644)); err != nil {
					return err
				}
				fmt.Fprintf(e.stdout, "%s: %s\n", m.name, file)
			}
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("bench %s: %w", m.name, err))
			}
			if cmd.Context().Err() != nil {
				break
			}
		}
		return failed
	}
	return cmd
}

func newBenchReportsCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reports [TREE]",
		Short: "Check that the committed reports are current",
		Long: `Check that the reports in docs/reports of a source tree (default: the current
folder) are current: the code that a bench measures (the instructions of the BPF
programs, or Go packages without comments, formatting and tests) has the digests
that the report holds. The others are listed with what has changed, and are an
error, as is a report without digests. A bench writes digests with -o json if the
current folder is the root of the checkout that fairlab was built from, without
changes outside of docs.`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		root := "."
		if len(args) > 0 {
			root = args[0]
		}
		reports, err := bench.CommittedReports(root)
		if err != nil {
			return err
		}
		stale := 0
		table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "BENCH\tCOMMIT\tSTARTED\tSTATE")
		for _, r := range reports {
			if r.Stale != "" {
				stale++
			}
			fmt.Fprintf(table, "%s\t%.12s\t%s\t%s\n", r.Bench, r.Commit, r.Started.Format("2006-01-02"), cmp.Or(r.Stale, "current"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		if stale > 0 {
			return fmt.Errorf("%d of %d reports have to be measured again", stale, len(reports))
		}
		return nil
	}
	return cmd
}
