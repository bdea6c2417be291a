// SPDX-License-Identifier: Apache-2.0

// Package kubectl runs commands of fairlead in the pods of a cluster's agents, by the
// user's kubectl: with its contexts, credentials and login. "kubectl fairlead" uses it.
package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// DefaultNamespace is where the documentation installs the chart.
	DefaultNamespace = "fairlead-system"
	// Timeout is how long an agent may take to answer a command that only reads.
	Timeout = 30 * time.Second

	// concurrent is how many commands run at the same time.
	concurrent = 16
	// maxOutput bounds a command's output, in bytes.
	maxOutput = 64 << 20
	// maxComplaint bounds the kept part of its standard error, in bytes.
	maxComplaint = 4 << 10
	// patience is how long kubectl may take to end before it is killed.
	patience = 5 * time.Second
)

// Client runs kubectl, which is found in PATH.
type Client struct {
	// Namespace of the agents' pods.
	Namespace string
	// Context and Kubeconfig are the flags of kubectl, which has defaults for empty ones.
	Context, Kubeconfig string
	// Stdin and Stderr of the first kubectl, so that a credential plugin can have
	// the user log in.
	Stdin  io.Reader
	Stderr io.Writer
	// Timeout bounds each command on an agent; 0 means as long as it takes.
	Timeout time.Duration
}

// command returns kubectl with arguments. When ctx ends it gets SIGTERM.
func (c *Client) command(ctx context.Context, args ...string) *exec.Cmd {
	flags := []string{"--namespace=" + c.Namespace}
	if c.Context != "" {
		flags = append(flags, "--context="+c.Context)
	}
	if c.Kubeconfig != "" {
		flags = append(flags, "--kubeconfig="+c.Kubeconfig)
	}
	cmd := exec.CommandContext(ctx, "kubectl", append(flags, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	return cmd
}

// output runs kubectl and returns its standard output. The error is its standard
// error, unless the command has an error of its own.
func output(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	printed := limited{limit: maxOutput}
	var complaint limited
	if cmd.Stderr == nil {
		complaint = limited{limit: maxComplaint, truncate: true}
		cmd.Stderr = &complaint
	}
	cmd.Stdout = &printed
	err := cmd.Run()
	switch {
	case printed.exceeded:
		return nil, fmt.Errorf("printed more than %d bytes", printed.limit)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err == nil:
		return printed.text.Bytes(), nil
	}
	if said := reason(complaint.text.String()); said != "" {
		return nil, errors.New(said)
	}
	return nil, err
}

// reason is an error as fairlead or kubectl printed it, without the prefix of
// either.
func reason(complaint string) string {
	var lines []string
	for line := range strings.Lines(complaint) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "command terminated with exit code ") {
			lines = append(lines, strings.TrimPrefix(line, "fairlead: "))
		}
	}
	return strings.Join(lines, "\n")
}

// limited keeps written bytes, up to a limit. Beyond the limit it drops the
// rest, or refuses it, which ends a process that writes.
type limited struct {
	text     bytes.Buffer
	limit    int
	truncate bool
	exceeded bool // something was refused
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	room := l.limit - l.text.Len()
	switch {
	case len(p) <= room:
		return l.text.Write(p)
	case l.truncate:
		l.text.Write(p[:room])
		return len(p), nil
	}
	l.exceeded = true
	return 0, errors.New("too long")
}
