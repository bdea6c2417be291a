// SPDX-License-Identifier: Apache-2.0

package routehook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// outputDelay is how long a call waits for the end of output after the program's own end: a
// process that it has left behind may keep the output open.
const outputDelay = time.Second

// call runs the program once. It has the agent's environment, and no input. The error
// contains the last line of its output.
func (h *Hook) call(ctx context.Context, c call) error {
	limited, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	var output excerpt
	cmd := exec.CommandContext(limited, h.Program, c.verb, c.prefix.String())
	cmd.Dir, cmd.Env = "/", append(os.Environ(), h.environment(c)...)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputDelay
	began := time.Now()
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay) && limited.Err() == nil:
		err = nil // the program itself has succeeded
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("killed after %s", h.Timeout)
	}
	log := h.Log.With(slog.String("call", c.verb), slog.String("prefix", c.prefix.String()),
		slog.Duration("took", time.Since(began).Round(time.Millisecond)), slog.String("output", output.String()))
	if err != nil {
		log.Warn("route hook failed", slog.Any("error", err))
		if last := output.lastLine(); last != "" {
			err = fmt.Errorf("%w: %s", err, last)
		}
		return err
	}
	level := slog.LevelInfo
	if c.again {
		level = slog.LevelDebug
	}
	log.Log(ctx, level, "route hook succeeded")
	return nil
}

// environment returns the program's variables in addition to the agent's
// environment.
func (h *Hook) environment(c call) []string {
	address := ""
	if a := h.Address(c.prefix); a.IsValid() {
		address = a.String()
	}
	return []string{"FAIRLEAD_NODE=" + h.Node, "FAIRLEAD_ADDRESS=" + address}
}

// maxOutput is how much of a call's output is kept, in bytes: its end.
const maxOutput = 4096

// excerpt keeps the end of the written text.
type excerpt struct {
	text []byte
	cut  bool
}

// Write implements io.Writer.
func (e *excerpt) Write(p []byte) (int, error) {
	e.text = append(e.text, p...)
	if over := len(e.text) - maxOutput; over > 0 {
		e.text, e.cut = append(e.text[:0], e.text[over:]...), true
	}
	return len(p), nil
}

// String is the text without blanks around it.
func (e *excerpt) String() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(e.text), "\ufffd"))
	if e.cut {
		text = "…" + text
	}
	return text
}

// maxLine is the longest last line in bytes that becomes part of an error.
const maxLine = 200

// lastLine returns the last line of the text, or its end.
func (e *excerpt) lastLine() string {
	text := e.String()
	line := text[strings.LastIndexByte(text, '\n')+1:]
	if over := len(line) - maxLine; over > 0 {
		line = "…" + strings.ToValidUTF8(line[over:], "")
	}
	return line
}
