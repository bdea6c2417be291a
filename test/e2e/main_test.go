// SPDX-License-Identifier: Apache-2.0

// Package e2e_test runs the whole product as its users do: the fairlead
// executable in labs of network namespaces, between a real client and real
// servers. It stands at the end of the story of DESIGN.md §1: what the packages
// promise one by one has to come true here for packets.
//
// Each test has labs of its own, in a directory of its own, and takes them
// down. What the packets say is read from the kernels of the namespaces
// (wire_test.go), what Fairlead says from its control sockets (agent_test.go).
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMain removes what killed runs have left, builds the executable and puts it
// first in PATH, where tests and labs find it.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // every test says why it is skipped
	}
	if err := removeAbandoned(context.Background(), os.TempDir()); err != nil {
		fmt.Fprintln(os.Stderr, err) // a lab of another's name is no hindrance
	}
	dir, err := buildFairlead()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// buildFairlead returns the directory that it has made for the executable.
func buildFairlead() (dir string, err error) {
	dir, err = os.MkdirTemp("", fmt.Sprintf("fairlead-e2e-%d-", os.Getpid()))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "fairlead"), "fairlead.io/fairlead/cmd/fairlead")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("go build: %w", err)
	}
	return dir, os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
