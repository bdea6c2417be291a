// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// separator begins the lines of the guest's first process (boot).
const separator = "\x1c"

// replay runs the machine and makes sub-tests of t of its tests meanwhile: one for each
// package, and below it the package's tests. Its error is one that no sub-test shows.
func replay(ctx context.Context, t *testing.T, m *machine) error {
	t.Helper()
	output, guest := io.Pipe()
	var running errgroup.Group
	running.Go(func() error {
		// See machine.run; the thread ends with the goroutine.
		runtime.LockOSThread()
		err := m.run(ctx, guest)
		return errors.Join(err, guest.Close())
	})
	err := playPackages(ctx, t, m, bufio.NewReader(output))
	if err != nil {
		// Nothing reads any more: let the guest end.
		_, _ = io.Copy(io.Discard, output)
	}
	if err = errors.Join(err, running.Wait()); err != nil {
		err = fmt.Errorf("%w\nconsole:\n%s", err, m.lastWords())
	}
	return err
}

// playPackages plays the guest's output.
func playPackages(ctx context.Context, t *testing.T, m *machine, output *bufio.Reader) error {
	t.Helper()
	for {
		line, err := output.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return errors.New("the guest ended before its tests")
		}
		if err != nil {
			return err
		}
		line, own := strings.CutPrefix(strings.TrimSpace(line), separator)
		pkg, begins := strings.CutPrefix(line, "run ")
		switch {
		case own && line == "off":
			return nil
		case own && begins:
			t.Run(pkg, func(t *testing.T) {
				before := m.processorTime()
				if err := playPackage(ctx, t, output); err != nil {
					t.Error(err)
				}
				t.Logf("%.0f s of processor time, with the kernel's start %.0f s", (m.processorTime() - before).Seconds(), m.processorTime().Seconds())
			})
		}
	}
}

// playPackage plays the output of one test binary.
func playPackage(ctx context.Context, t *testing.T, output *bufio.Reader) error {
	t.Helper()
	text, binary := io.Pipe()
	events, converted := io.Pipe()
	var running errgroup.Group
	running.Go(func() error {
		err := copyOutput(binary, output)
		return errors.Join(err, binary.Close())
	})
	running.Go(func() error {
		convert := exec.CommandContext(ctx, "go", "tool", "test2json", "-t") // with times
		convert.Stdin, convert.Stdout = text, converted
		return errors.Join(convert.Run(), converted.Close())
	})
	err := (&player{tests: map[string]*guestTest{}}).play(t, json.NewDecoder(events))
	if err != nil {
		_, _ = io.Copy(io.Discard, events)
	}
	return errors.Join(err, running.Wait())
}

// copyOutput copies lines up to the one that says how the test binary ended.
func copyOutput(to io.Writer, output *bufio.Reader) error {
	for {
		line, err := output.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return errors.New("the guest ended during these tests")
		}
		if err != nil {
			return err
		}
		if status, ends := strings.CutPrefix(line, separator+"end "); ends {
			if status = strings.TrimSpace(status); status != "0" {
				return fmt.Errorf("the tests' exit status is %s", status)
			}
			return nil
		}
		if _, err := io.WriteString(to, line); err != nil {
			return err
		}
	}
}

// event is one object of go tool test2json's output.
type event struct {
	Action     string
	Test       string // empty in events of the whole binary
	Output     string
	Elapsed    float64 // seconds
	Key, Value string  // of testing.T.Attr
}

// guestTest is the progress of a test of the guest.
type guestTest struct {
	label    string // its name without its parent's
	output   []string
	attrs    [][2]string
	subtests []*guestTest
	result   string // "pass", "fail" or "skip"; empty before the end
	elapsed  float64
}

// player turns events into tests. Tests of the guest may be parallel: each is played when
// it has ended with all its sub-tests.
type player struct {
	tests map[string]*guestTest
	// output of the binary outside of tests.
	output []string
}

func (p *player) play(t *testing.T, events *json.Decoder) error {
	t.Helper()
	for {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if e.Test == "" {
			if isMessage(e.Output) {
				p.output = append(p.output, strings.TrimSpace(e.Output))
			}
			continue
		}
		test, root := p.find(e.Test)
		test.add(e)
		if root && test.result != "" {
			test.replay(t)
			delete(p.tests, e.Test)
		}
	}
	for name, test := range p.tests {
		if name == test.label { // has not ended
			test.replay(t)
		}
	}
	if len(p.output) > 0 {
		t.Log(strings.Join(p.output, "\n"))
	}
	return nil
}

// find returns the test of a name, and whether it is none's sub-test.
func (p *player) find(name string) (test *guestTest, root bool) {
	if test := p.tests[name]; test != nil {
		return test, name == test.label
	}
	test = &guestTest{label: name}
	p.tests[name] = test
	// The names of sub-tests may have slashes.
	for end := strings.LastIndexByte(name, '/'); end > 0; end = strings.LastIndexByte(name[:end], '/') {
		if parent := p.tests[name[:end]]; parent != nil {
			test.label = name[end+1:]
			parent.subtests = append(parent.subtests, test)
			return test, false
		}
	}
	return test, true
}

func (g *guestTest) add(e event) {
	switch e.Action {
	case "output":
		if isMessage(e.Output) {
			g.output = append(g.output, strings.TrimSpace(e.Output))
		}
	case "attr":
		g.attrs = append(g.attrs, [2]string{e.Key, e.Value})
	case "pass", "fail", "skip":
		g.result, g.elapsed = e.Action, e.Elapsed
	}
}

// replay makes a sub-test of t.
func (g *guestTest) replay(t *testing.T) {
	t.Helper()
	t.Run(g.label, func(t *testing.T) {
		for _, line := range g.output {
			t.Log(line)
		}
		for _, attr := range g.attrs {
			t.Attr(attr[0], attr[1])
		}
		for _, s := range g.subtests {
			s.replay(t)
		}
		switch g.result {
		case "skip":
			t.SkipNow()
		case "fail":
			t.Fail()
		case "":
			t.Error("the test has no result")
		}
		t.Logf("%.2f s in the guest", g.elapsed)
	})
}

// isMessage says whether a line was printed by a test and not by the testing package.
func isMessage(line string) bool {
	line = strings.TrimSpace(line)
	return line != "" && line != "PASS" && line != "FAIL" &&
		!strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ")
}
