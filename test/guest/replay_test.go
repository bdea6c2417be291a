// SPDX-License-Identifier: Apache-2.0

package guest

import (
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

// event is one object of go tool test2json's output.
type event struct {
	Action string
	Test   string // empty in events of the whole binary
	Output string
}

// replay runs the machine and makes sub-tests of t of what it tests, while it
// does. An error is what no sub-test shows.
func replay(ctx context.Context, t *testing.T, m machine) error {
	t.Helper()
	var status int
	output, guest := io.Pipe()
	events, converted := io.Pipe()
	var running errgroup.Group
	running.Go(func() (err error) {
		// See machine.run; the thread ends with the goroutine.
		runtime.LockOSThread()
		status, err = m.run(ctx, guest)
		return errors.Join(err, guest.Close())
	})
	running.Go(func() error {
		convert := exec.CommandContext(ctx, "go", "tool", "test2json")
		convert.Stdin, convert.Stdout = output, converted
		return errors.Join(convert.Run(), converted.Close())
	})
	err := (&player{decoder: json.NewDecoder(events)}).play(t, "")
	if err != nil {
		// Nothing reads any more: let the writers end.
		_, _ = io.Copy(io.Discard, events)
	}
	err = errors.Join(err, running.Wait())
	if status != 0 {
		err = errors.Join(err, fmt.Errorf("guest's tests: exit status %d", status))
	}
	return err
}

// player turns events into tests. Those of a test are between its own "run" and
// its result, since no guest test is parallel.
type player struct{ decoder *json.Decoder }

// play gives t what the guest's test of that name did, until its result.
func (p *player) play(t *testing.T, name string) error {
	t.Helper()
	for {
		var e event
		if err := p.decoder.Decode(&e); errors.Is(err, io.EOF) && name == "" {
			return nil
		} else if err != nil {
			return fmt.Errorf("no result of the guest's test %q: %w", name, err)
		}
		switch {
		case e.Action == "run":
			if err := p.descend(t, e.Test); err != nil {
				return err
			}
		case e.Action == "output" && isMessage(e.Output):
			t.Log(strings.TrimSpace(e.Output))
		case e.Test != name:
		case e.Action == "skip":
			t.SkipNow()
		case e.Action == "fail":
			t.Fail()
			return nil
		case e.Action == "pass":
			return nil
		}
	}
}

// descend plays a sub-test.
func (p *player) descend(t *testing.T, name string) (err error) {
	t.Helper()
	t.Run(name[strings.LastIndex(name, "/")+1:], func(t *testing.T) {
		if err = p.play(t, name); err != nil {
			t.FailNow() // Run says why
		}
	})
	return err
}

// isMessage says whether a line was printed by a test and not by the testing package.
func isMessage(line string) bool {
	line = strings.TrimSpace(line)
	return line != "" && line != "PASS" && line != "FAIL" &&
		!strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ")
}
