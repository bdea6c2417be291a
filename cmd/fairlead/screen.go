// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ANSI control sequences (ECMA-48, and xterm's alternate screen).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[2K"
	clearBelow  = "\x1b[J"
)

// screen is a terminal that is drawn on as a whole.
type screen struct {
	out *os.File
	// in is where keys come from and before how it was set; nil if keys don't
	// come from a terminal.
	in     *os.File
	before *unix.Termios
	keys   sync.WaitGroup
}

// openScreen takes over the terminal; nil if the output is none.
func openScreen(e env) *screen {
	out, ok := e.stdout.(*os.File)
	if !ok || !isTerminal(out) {
		return nil
	}
	s := &screen{out: out}
	if in, ok := e.stdin.(*os.File); ok && isTerminal(in) {
		s.readKeys(in)
	}
	if _, err := out.WriteString(enterScreen); err != nil {
		return nil
	}
	return s
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// readKeys makes the terminal hand over keys as they are pressed, without
// showing them; a read returns after a tenth of a second also without one.
// Ctrl-C is still a signal.
func (s *screen) readKeys(in *os.File) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return
	}
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 0, 1
	if unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &now) == nil {
		s.in, s.before = in, before
	}
}

// quitOnKey has quit called when q is pressed, until ctx ends.
func (s *screen) quitOnKey(ctx context.Context, quit func()) {
	if s.in != nil {
		s.keys.Go(func() { s.awaitKey(ctx, quit) })
	}
}

func (s *screen) awaitKey(ctx context.Context, quit func()) {
	keys := make([]byte, 16)
	for ctx.Err() == nil {
		n, err := unix.Read(int(s.in.Fd()), keys)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return // the terminal has gone
		}
		if n > 0 && bytes.ContainsAny(keys[:n], "qQ") {
			quit()
		}
	}
}

// size returns columns and lines.
func (s *screen) size() (width, height int) {
	size, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}

// show replaces what is on the screen, as far as there is room.
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

// close gives the terminal back as it was. The context of quitOnKey has ended.
func (s *screen) close() error {
	s.keys.Wait()
	_, err := s.out.WriteString(leaveScreen)
	if s.before != nil {
		err = errors.Join(err, unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, s.before))
	}
	return err
}
