// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Times after SIGTERM, and again after SIGKILL, within which a single process, which
// may close sessions first, or all processes have to end.
const (
	stopGrace  = 10 * time.Second
	evictGrace = 3 * time.Second
)

// launch starts a process in a host, in a session of its own, so that it outlives
// this process and the terminal.
func launch(h *HostState, p Process) (ProcessState, error) {
	log, err := os.OpenFile(logFile(h, p.Name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return ProcessState{}, err
	}
	defer log.Close()
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Dir = h.Directory
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A child is born in the namespace of the thread that forks it.
	if err := namespace(h.Namespace).do(cmd.Start); err != nil {
		return ProcessState{}, err
	}
	started, err := startTime(cmd.Process.Pid)
	// Reaps the child if it ends before this process.
	go func() { _ = cmd.Wait() }()
	return ProcessState{Process: p, PID: cmd.Process.Pid, StartTime: started}, err
}

func logFile(h *HostState, process string) string {
	return filepath.Join(h.Directory, process+".log")
}

// startTime is in clock ticks since boot.
func startTime(pid int) (uint64, error) { return stat(pid, 22) }

// stat returns the sum of fields of proc_pid_stat(5), counted after the name, which may
// contain blanks and parentheses.
func stat(pid int, numbers ...int) (sum uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	for _, number := range numbers {
		number -= 3 // the first field behind the name is the third
		if len(fields) <= number {
			return 0, fmt.Errorf("/proc/%d/stat: %d fields behind the name", pid, len(fields))
		}
		n, err := strconv.ParseUint(fields[number], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += n
	}
	return sum, nil
}

// tick is the unit of processor time in /proc (USER_HZ).
const tick = time.Second / 100

// Busy is the processor time of a process.
func (p ProcessState) Busy() (time.Duration, error) {
	const user, system = 14, 15
	ticks, err := stat(p.PID, user, system)
	return time.Duration(ticks) * tick, err
}

// running returns a pidfd of the process, nil if it has ended.
func (p ProcessState) running() *os.File {
	if p.PID == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// After opening: the number can't be reused any more.
	if started, err := startTime(p.PID); err != nil || started != p.StartTime || ended(f, 0) {
		_ = f.Close()
		return nil
	}
	return f
}

// ended waits up to timeout for the end of a process. A zombie has ended.
func ended(pidfd *os.File, timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	poll := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}}
	for {
		wait := max(0, time.Until(deadline).Milliseconds())
		n, err := unix.Poll(poll, int(wait))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// stop ends processes by SIGTERM and, after the grace, by SIGKILL. Processes that have
// ended before, or are named twice, aren't errors.
func stop(processes []ProcessState, grace time.Duration) error {
	var errs []error
	alive := map[string]*os.File{}
	for _, p := range processes {
		if f := p.running(); f != nil {
			defer f.Close()
			alive[fmt.Sprintf("process %s (%d)", p.Name, p.PID)] = f
		}
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		for name, f := range alive {
			err := unix.PidfdSendSignal(int(f.Fd()), signal, nil, 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
		deadline := time.Now().Add(grace)
		for name, f := range alive {
			if ended(f, time.Until(deadline)) {
				delete(alive, name)
			}
		}
	}
	for name := range alive {
		errs = append(errs, fmt.Errorf("%s: survives SIGKILL", name))
	}
	return errors.Join(errs...)
}

// processes returns all processes in the namespace.
func (n namespace) processes() ([]ProcessState, error) {
	home, err := os.Stat(n.path())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []ProcessState
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// The start time is read first: a process that reuses the number is not
		// stopped.
		started, err := startTime(pid)
		if err != nil {
			continue
		}
		if ns, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && os.SameFile(home, ns) {
			found = append(found, ProcessState{Process: Process{Name: "in " + string(n)}, PID: pid, StartTime: started})
		}
	}
	return found, nil
}

// Check returns an error with the last line of the log if a process of the host has
// ended that wasn't stopped.
func (h *HostState) Check(p ProcessState) error {
	if p.PID == 0 {
		return nil
	}
	if f := p.running(); f != nil {
		return f.Close()
	}
	text, err := os.ReadFile(logFile(h, p.Name))
	if err != nil {
		return errors.Join(fmt.Errorf("host %s: process %s has ended", h.Name, p.Name), err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	last := lines[len(lines)-1]
	if len(last) == 0 {
		last = []byte("no output")
	}
	return fmt.Errorf("host %s: process %s has ended: %s", h.Name, p.Name, last)
}

// signal signals the process group that the process leads.
func (p ProcessState) signal(signal unix.Signal) error {
	f := p.running()
	if f == nil {
		return fmt.Errorf("process %s: doesn't run", p.Name)
	}
	defer f.Close()
	if err := unix.Kill(-p.PID, signal); err != nil {
		return fmt.Errorf("process %s: %s: %w", p.Name, signal, err)
	}
	return nil
}

// Start runs a process in a host until Stop, Kill or Down.
func (l *Lab) Start(ctx context.Context, host string, p Process) error {
	if err := CheckName(p.Name); err != nil {
		return fmt.Errorf("lab %s: host %s: %w", l.state.Name, host, err)
	}
	return l.change(ctx, func() error { return l.start(host, p) })
}

// Restart starts a process of a host that has ended.
func (l *Lab) Restart(ctx context.Context, host, process string) error {
	return l.withProcess(ctx, host, process, func(p *ProcessState) error { return l.start(host, p.Process) })
}

// start is Start with the lab locked.
func (l *Lab) start(host string, p Process) error {
	h := l.state.Host(host)
	if h == nil {
		return fmt.Errorf("no host %s", host)
	}
	known := h.Process(p.Name)
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

// Kill ends a process and its children by SIGKILL, and returns when it has ended.
func (l *Lab) Kill(ctx context.Context, host, process string) error {
	return l.end(ctx, host, process, func(p ProcessState) error { return p.signal(unix.SIGKILL) })
}

// end calls first and stops a process.
func (l *Lab) end(ctx context.Context, host, process string, first func(ProcessState) error) error {
	return l.withProcess(ctx, host, process, func(p *ProcessState) error {
		if p.PID == 0 {
			return fmt.Errorf("host %s: process %s was stopped before", host, process)
		}
		if err := errors.Join(first(*p), stop([]ProcessState{*p}, stopGrace)); err != nil {
			return fmt.Errorf("host %s: %w", host, err)
		}
		p.PID, p.StartTime = 0, 0
		return writeState(l.dir, l.state)
	})
}

// Signal sends a signal to a process of a host and its children.
func (l *Lab) Signal(ctx context.Context, host, process string, signal unix.Signal) error {
	return l.withProcess(ctx, host, process, func(p *ProcessState) error {
		if err := p.signal(signal); err != nil {
			return fmt.Errorf("host %s: %w", host, err)
		}
		return nil
	})
}

// withProcess calls fn with a host's process and the lab locked.
func (l *Lab) withProcess(ctx context.Context, host, name string, fn func(*ProcessState) error) error {
	return l.change(ctx, func() error {
		h := l.state.Host(host)
		if h == nil {
			return fmt.Errorf("no host %s", host)
		}
		p := h.Process(name)
		if p == nil {
			return fmt.Errorf("host %s: no process %s", host, name)
		}
		return fn(p)
	})
}

// Run runs a command in a host, in its directory, and returns its output. The error of one that fails has its
// error output.
func (l *Lab) Run(ctx context.Context, host string, args ...string) (stdout string, err error) {
	h := l.State().Host(host)
	if h == nil {
		return "", fmt.Errorf("lab %s: no host %s", l.state.Name, host)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = h.Directory
	if stdout, err = namespace(h.Namespace).run(cmd); err != nil {
		err = fmt.Errorf("%s: %w", host, err)
	}
	return stdout, err
}
