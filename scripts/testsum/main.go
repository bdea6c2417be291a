// SPDX-License-Identifier: Apache-2.0

// Command testsum runs "go test -json" with its own arguments and says what came
// of it: one line for each package, the whole output of what failed, the reason
// of every skip, how the output of each failure begins, and at last "N passed,
// N failed, N skipped". It exits as go test did. Packages whose tests start API
// servers come after all others, and those with whole clusters at last.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	status, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		status = 1
	}
	os.Exit(status)
}

// run returns the exit status of go test, that of the first round that failed.
func run(ctx context.Context, args []string) (int, error) {
	all, err := rounds(ctx, args)
	if err != nil {
		return 0, err
	}
	s := newSummary(os.Stdout)
	status := 0
	for _, r := range all {
		code, err := test(ctx, s, r)
		if err != nil {
			return 0, err
		}
		if status == 0 {
			status = code
		}
	}
	s.finish(status == 0)
	return status, nil
}

// test runs one round and returns go test's exit status.
func test(ctx context.Context, s *summary, args []string) (int, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	readErr := s.read(events)
	waitErr := cmd.Wait()
	var exit *exec.ExitError
	if waitErr != nil && !errors.As(waitErr, &exit) {
		return 0, waitErr
	}
	return cmd.ProcessState.ExitCode(), readErr
}
