// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/await"
)

func TestTopWithoutTerminal(t *testing.T) {
	a := startAgent(t)
	got := a.show("top", "--count", "1")
	for _, want := range []string{"lb1  ", "SERVICE  VIP              BACKENDS", "web      10.0.0.21:80  ", "EXIT  PACKETS/S\n"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("top lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("control sequences where no terminal is: %q", got)
	}
	lines := a.show("top", "--count", "2", "--limit", "1", "-o", "json")
	for line := range strings.Lines(lines) {
		var top observe.Top
		if err := json.Unmarshal([]byte(line), &top); err != nil || len(top.Backends) != 1 || top.Node != "lb1" {
			t.Errorf("%v: %q", err, line)
		}
	}
	if strings.Count(lines, "\n") != 2 {
		t.Errorf("%q, want two lines", lines)
	}
}

// terminal is a pseudo terminal.
type terminal struct {
	ours, theirs *os.File
}

func newTerminal(t *testing.T) terminal {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	if err := unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 12, Col: 30}); err != nil {
		t.Fatal(err)
	}
	return terminal{ours, theirs}
}

func (x terminal) settings(t *testing.T) unix.Termios {
	t.Helper()
	settings, err := unix.IoctlGetTermios(int(x.theirs.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *settings
}

// collect reads the terminal's output.
func (x terminal) collect() *syncBuffer {
	written := &syncBuffer{}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := x.ours.Read(buffer)
			if err != nil {
				return
			}
			_, _ = written.Write(buffer[:n])
		}
	}()
	return written
}

// On a terminal top takes a screen of its own, keeps within it, and gives the
// terminal back as it was when q is pressed.
func TestTopOnTerminal(t *testing.T) {
	a := startAgent(t)
	x := newTerminal(t)
	before := x.settings(t)
	written := x.collect()
	ended := make(chan int)
	go func() {
		e := env{stdin: x.theirs, stdout: x.theirs, stderr: x.theirs}
		ended <- run(newRootCommand(e), []string{"top", "--socket", a.socket}, e)
	}()
	until(t, "the screen is shown", func() bool { return strings.Contains(written.String(), clearBelow) })
	if during := x.settings(t); during.Lflag&(unix.ICANON|unix.ECHO) != 0 || during.Lflag&unix.ISIG == 0 {
		t.Errorf("local modes %#x: want keys at once, and Ctrl-C", during.Lflag)
	}
	if _, err := x.ours.WriteString("xq"); err != nil {
		t.Fatal(err)
	}
	select {
	case status := <-ended:
		if status != 0 {
			t.Errorf("status %d: %s", status, written.String())
		}
	case <-time.After(await.Patience):
		t.Fatal("q doesn't end it")
	}
	if after := x.settings(t); after != before {
		t.Errorf("the terminal is left as %+v, was %+v", after, before)
	}
	until(t, "the screen is left", func() bool { return strings.HasSuffix(written.String(), leaveScreen) })
	first, _, _ := strings.Cut(strings.TrimPrefix(written.String(), enterScreen+toTop), clearBelow)
	lines := strings.Split(first, "\r\n")
	if len(lines) > 12 {
		t.Errorf("%d lines on a screen of 12", len(lines))
	}
	for _, line := range lines {
		if text := strings.TrimPrefix(line, clearLine); len([]rune(text)) > 30 {
			t.Errorf("%q is too wide for the screen", text)
		}
	}
}
