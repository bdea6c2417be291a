// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// readyTimeout is how long a program may take to become ready; most need a second or two
// on a free machine.
const readyTimeout = 2 * time.Minute

// process is a program that runs on a machine until it is stopped. Its output is
// appended to its log.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// ended is closed when the process has ended.
	ended chan struct{}
}

// launch starts a process on the machine, with additions to the environment. Its log is NAME.log in
// the machine's directory.
func (m *Machine) launch(name string, env []string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(m.dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Dir, p.cmd.Env = m.dir, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := m.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.ended)
	}()
	return p, nil
}

// alive returns an error with the end of the log if the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %s", p.name, tail(p.log, 5))
	default:
		return nil
	}
}

// await waits until ready returns nil, for readyTimeout, or until the process ends.
func (p *process) poll(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	return poll(ctx, func() error {
		if err := p.alive(); err != nil {
			giveUp(err)
			return err
		}
		return ready(ctx)
	})
}

// stop sends a signal and waits for the end.
func (p *process) stop(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	const grace = 20 * time.Second
	select {
	case <-p.ended:
		return nil
	case <-time.After(grace):
		return fmt.Errorf("%s: runs %s after %s", p.name, grace, signal)
	}
}

// tail returns the last lines of a log.
func tail(log string, lines int) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
