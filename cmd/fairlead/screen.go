// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ANSI control sequences (ECMA-48, and xterm's alternate screen).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // alternate screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[2K"
	clearBelow  = "\x1b[J"
)

// screen is a terminal that is drawn on as a whole.
type screen struct {
	out *os.File
	// in is the terminal that keys come from, and before its state; nil if keys don't
	// come from a terminal.
	in     *os.File
	before *term.State
}

// openScreen takes over the terminal; nil if the output is none.
func openScreen(e env) *screen {
	out, ok := e.stdout.(*os.File)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	s := &screen{out: out}
	if in, ok := e.stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		s.readKeys(in)
	}
	if _, err := out.WriteString(enterScreen); err != nil {
		return nil
	}
	return s
}

// readKeys makes the terminal deliver keys as they are pressed, without echo; a
// read returns after a tenth of a second also without one. Ctrl-C is still a signal,
// which it isn't in x/term's raw mode.
func (s *screen) readKeys(in *os.File) {
	fd := int(in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return
	}
	now, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return
	}
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 0, 1
	if unix.IoctlSetTermios(fd, unix.TCSETS, now) == nil {
		s.in, s.before = in, before
	}
}

// wait waits for the next tick, and reports whether q was pressed or ctx has ended
// before.
func (s *screen) wait(ctx context.Context, tick <-chan time.Time) (quit bool) {
	keys := make([]byte, 16)
	for s.in != nil {
		n, err := unix.Read(int(s.in.Fd()), keys)
		if err != nil && !errors.Is(err, unix.EINTR) {
			s.in = nil // the terminal is closed
			break
		}
		if n > 0 && bytes.ContainsAny(keys[:n], "qQ") {
			return true
		}
		select {
		case <-ctx.Done():
			return true
		case <-tick:
			return false
		default:
		}
	}
	return waitForTick(ctx, tick)
}

// size returns columns and lines.
func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width == 0 || height == 0 {
		return 80, 24
	}
	return width, height
}

// show replaces the screen's text, as far as there is room.
func (s *screen) show(text string) error {
	width, height := s.size()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	var frame strings.Builder
	frame.WriteString(toTop)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			frame.WriteByte('\n')
		}
		letters := []rune(line)
		frame.WriteString(clearLine + string(letters[:min(len(letters), width)]))
	}
	frame.WriteString(clearBelow)
	_, err := s.out.WriteString(frame.String())
	return err
}

// close restores the terminal.
func (s *screen) close() error {
	_, err := s.out.WriteString(leaveScreen)
	if s.before != nil && s.in != nil {
		err = errors.Join(err, term.Restore(int(s.in.Fd()), s.before))
	}
	return err
}
