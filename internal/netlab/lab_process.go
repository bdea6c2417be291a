// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Start runs a process in a host until Stop, Kill or Down.
func (l *Lab) Start(ctx context.Context, host string, p Process) error {
	if err := p.check(); err != nil {
		return fmt.Errorf("lab %s: host %s: %w", l.state.Name, host, err)
	}
	return l.change(ctx, func() error { return l.start(host, p) })
}

// Restart runs a process of a host again that was stopped or killed, or has
// ended.
func (l *Lab) Restart(ctx context.Context, host, process string) error {
	return l.change(ctx, func() error {
		p, err := l.process(host, process)
		if err != nil {
			return err
		}
		return l.start(host, p.Process)
	})
}

// start is Start for a caller who holds the lock.
func (l *Lab) start(host string, p Process) error {
	h := l.state.Host(host)
	if h == nil {
		return fmt.Errorf("no host %s", host)
	}
	known := h.process(p.Name)
	if known != nil {
		if f := known.running(); f != nil {
			return errors.Join(fmt.Errorf("process %s: runs already", p.Name), f.Close())
		}
	}
	started, err := launch(h, p)
	if err != nil {
		return fmt.Errorf("process %s: %w", p.Name, err)
	}
	if known != nil {
		*known = started
	} else {
		h.Processes = append(h.Processes, started)
	}
	return writeState(l.dir, l.state)
}

// Stop ends a process that was started in a host, by SIGTERM and, if it takes
// longer than ten seconds, by SIGKILL.
func (l *Lab) Stop(ctx context.Context, host, process string) error {
	return l.end(ctx, host, process, func(ProcessState) error { return nil })
}

// Kill ends a process by SIGKILL, with all that it has started, and returns when
// it is gone.
func (l *Lab) Kill(ctx context.Context, host, process string) error {
	return l.end(ctx, host, process, func(p ProcessState) error { return p.signal(unix.SIGKILL) })
}

// end stops a process after it was hastened.
func (l *Lab) end(ctx context.Context, host, process string, hasten func(ProcessState) error) error {
	return l.change(ctx, func() error {
		p, err := l.process(host, process)
		if err != nil {
			return err
		}
		if p.PID == 0 {
			return fmt.Errorf("host %s: process %s was stopped before", host, process)
		}
		if err := errors.Join(hasten(*p), stop([]ProcessState{*p}, stopGrace)); err != nil {
			return fmt.Errorf("host %s: %w", host, err)
		}
		p.PID, p.StartTime = 0, 0
		return writeState(l.dir, l.state)
	})
}

// Signal sends a signal to a process of a host and to all that it has started:
// SIGSTOP halts it until SIGCONT.
func (l *Lab) Signal(ctx context.Context, host, process string, signal unix.Signal) error {
	return l.change(ctx, func() error {
		p, err := l.process(host, process)
		if err != nil {
			return err
		}
		if err := p.signal(signal); err != nil {
			return fmt.Errorf("host %s: %w", host, err)
		}
		return nil
	})
}

// process returns a host's process, for a caller who holds the lock.
func (l *Lab) process(host, name string) (*ProcessState, error) {
	h := l.state.Host(host)
	if h == nil {
		return nil, fmt.Errorf("no host %s", host)
	}
	p := h.process(name)
	if p == nil {
		return nil, fmt.Errorf("host %s: no process %s", host, name)
	}
	return p, nil
}
