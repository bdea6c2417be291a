// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one object of go test's output; see "go doc test2json".
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output events: the package that did not build
	Test        string // empty in events of a whole package
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // the package that kept this one's tests from being built
}

// counts tells tests apart by their result; a subtest is a test too.
type counts struct{ passed, failed, skipped int }

func (c *counts) add(o counts) {
	c.passed += o.passed
	c.failed += o.failed
	c.skipped += o.skipped
}

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

// summary turns the events of one go test run into text.
type summary struct {
	w io.Writer
	// output collects what tests print until their result is known, by package
	// and test.
	output   map[[2]string][]string
	packages map[string]*counts
	// skips and failures are what the end repeats, a line each.
	skips, failures []string
	total           counts
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, output: map[[2]string][]string{}, packages: map[string]*counts{}}
}

// read prints what events are worth printing until they end.
func (s *summary) read(events io.Reader) error {
	decoder := json.NewDecoder(events)
	for {
		var e event
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("events of go test: %w", err)
		}
		s.handle(e)
	}
}

func (s *summary) handle(e event) {
	key := [2]string{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		key = [2]string{e.ImportPath, ""}
		s.output[key] = append(s.output[key], e.Output)
	case e.Action == "output":
		if !isProgress(e.Output) {
			s.output[key] = append(s.output[key], e.Output)
		}
	case !slices.Contains([]string{"pass", "fail", "skip"}, e.Action):
	case e.Test == "":
		s.endPackage(e)
		delete(s.output, key)
	default:
		s.endTest(e)
		delete(s.output, key)
	}
}

// isProgress tells the lines that say only which test runs now.
func isProgress(line string) bool {
	return strings.HasPrefix(line, "=== ")
}

func (s *summary) endTest(e event) {
	c := s.counts(e.Package)
	output := s.output[[2]string{e.Package, e.Test}]
	switch e.Action {
	case "pass":
		c.passed++
	case "skip":
		c.skipped++
		s.skips = append(s.skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(output)))
	case "fail":
		c.failed++
		fmt.Fprintf(s.w, "FAIL  %s %s\n%s", e.Package, e.Test, strings.Join(output, ""))
		s.failures = append(s.failures, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(output)))
	}
}

// reason is how what a test printed begins, without the line with its result, as one
// line. Later come, if anything, the states of whole labs.
func reason(output []string) string {
	const most = 1000
	var lines []string
	length := 0
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--- ") {
			continue
		}
		if length += len(line); length > most && len(lines) > 0 {
			return strings.Join(append(lines, "..."), " ")
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return "no reason given"
	}
	return strings.Join(lines, " ")
}

// endPackage prints the package's line. A package that fails without a failed
// test (it did not build, ran into a time limit, exited) counts as one failure.
func (s *summary) endPackage(e event) {
	c := s.counts(e.Package)
	verdict := "ok  "
	switch {
	case e.Action == "fail":
		verdict = "FAIL"
		if c.failed == 0 {
			c.failed = 1
			s.failures = append(s.failures, e.Package+": no test of it failed, but the package did")
			s.printUnfinished(e)
		}
	case *c == counts{}:
		verdict = "-   " // no test
	}
	fmt.Fprintf(s.w, "%s  %s  %.1fs  %s\n", verdict, e.Package, e.Elapsed, c)
	s.total.add(*c)
}

// printUnfinished prints all that a package printed outside of finished tests.
func (s *summary) printUnfinished(e event) {
	fmt.Fprint(s.w, strings.Join(s.output[[2]string{e.FailedBuild, ""}], ""))
	for key, output := range s.output {
		if key[0] == e.Package {
			fmt.Fprint(s.w, strings.Join(output, ""))
		}
	}
}

func (s *summary) counts(pkg string) *counts {
	c, ok := s.packages[pkg]
	if !ok {
		c = &counts{}
		s.packages[pkg] = c
	}
	return c
}

// finish prints the skipped tests, what failed and the total. A run that failed without any
// package to blame counts as one failure.
func (s *summary) finish(success bool) {
	if !success && s.total.failed == 0 {
		s.total.failed = 1
	}
	for _, skip := range s.skips {
		fmt.Fprintf(s.w, "skipped  %s\n", skip)
	}
	for _, failure := range s.failures {
		fmt.Fprintf(s.w, "failed  %s\n", failure)
	}
	fmt.Fprintln(s.w, s.total)
}
