// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"bytes"
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

// How long processes may take to end after SIGTERM, and again after SIGKILL: when
// one is stopped, which may have to take leave of others first, and when all are.
const (
	stopGrace  = 10 * time.Second
	evictGrace = 3 * time.Second
)

// launch starts a process in a host. It runs in a session of its own, so that
// it outlives its starter and the terminal.
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
	// Collects the child if it ends while its starter lives.
	go func() { _ = cmd.Wait() }()
	return ProcessState{Process: p, PID: cmd.Process.Pid, StartTime: started}, err
}

func logFile(h *HostState, process string) string {
	return filepath.Join(h.Directory, process+".log")
}

// startTime reads when a process was started: field 22 of proc_pid_stat(5),
// counted behind the name, which may hold blanks and parentheses.
func startTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const startField = 22 - 3 // the first field behind the name is the third
	if len(fields) <= startField {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields behind the name", pid, len(fields))
	}
	return strconv.ParseUint(fields[startField], 10, 64)
}

// running opens the process as a file that stands for it and for no other, and
// that can be read once it has ended. It returns nil if it is there no more.
func (p ProcessState) running() *os.File {
	if p.PID == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// Checked after opening: from here on the number can't be given to another.
	if started, err := startTime(p.PID); err != nil || started != p.StartTime || ended(f, 0) {
		_ = f.Close()
		return nil
	}
	return f
}

// ended waits up to timeout for the end of a process. A process that nobody
// has collected yet has ended.
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

// stop ends processes: all are asked with SIGTERM, and those that don't end in
// the grace get SIGKILL. Those that have ended before, or are named twice, are no
// error.
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

// inhabitants returns the processes in the namespace, whoever started them.
func (n namespace) inhabitants() ([]ProcessState, error) {
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
		// The start time is read first: if the number is given to another process
		// in between, it is not stopped.
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

// complaint describes a process that has ended on its own, with the last line
// of its log; it returns nil while the process runs, or if it was stopped.
func complaint(h *HostState, p ProcessState) error {
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
		last = []byte("it printed nothing")
	}
	return fmt.Errorf("host %s: process %s has ended: %s", h.Name, p.Name, last)
}

// signal reaches the process and its children, which are in a process group of
// its number. While it runs that number is nobody else's.
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
