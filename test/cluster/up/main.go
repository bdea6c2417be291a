// SPDX-License-Identifier: Apache-2.0

// Command up starts etcd and an API server that knows Fairlead's kinds, runs a
// command, or a shell, that finds it by KUBECONFIG, and takes all away when that ends:
//
//	go run ./test/cluster/up bin/fairlead bench kubernetes
//
// It is run from within the repository, as root.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"fairlead.io/fairlead/test/cluster"
)

// definitions are Fairlead's kinds, below the root of the repository.
const definitions = "deploy/helm/fairlead/crds"

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{cmp.Or(os.Getenv("SHELL"), "sh")}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := cluster.RunAPI(ctx, func(api *cluster.API) error { return run(ctx, api, args) })
	stop()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(max(1, exit.ExitCode())) // the command has said why
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
		os.Exit(1)
	}
}

// run runs the command until it ends. When ctx ends it is told to, as the terminal
// tells it.
func run(ctx context.Context, api *cluster.API, args []string) error {
	dir, err := find(definitions)
	if err != nil {
		return err
	}
	if err := api.Define(ctx, dir); err != nil {
		return err
	}
	kubeconfig, err := api.AdminKubeconfig()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	const patience = time.Minute
	cmd.WaitDelay = patience
	return cmd.Run()
}

// find looks for a folder of the repository, upwards from the working directory.
func find(folder string) (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, folder)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s: no folder above %s has it", folder, start)
		}
	}
}
