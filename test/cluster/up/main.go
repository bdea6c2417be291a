// SPDX-License-Identifier: Apache-2.0

// Command up starts etcd and an API server that knows Fairlead's kinds, runs a
// command, or a shell, that finds it by KUBECONFIG, and takes all away when that ends:
//
//	go run ./test/cluster/up bin/fairlab bench kubernetes
//
// It is run from within the repository, as root. With --build it instead builds the
// Kubernetes that tests run, unless it is in the cache, and prints its path.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"fairlead.io/fairlead/test/cluster"
)

// definitions are Fairlead's kinds, below the root of the repository.
const definitions = "deploy/helm/fairlead/crds"

func main() {
	build := flag.Bool("build", false, "build Kubernetes and print its path")
	flag.Parse()
	args := flag.Args()
	if len(args) == 0 {
		args = []string{cmp.Or(os.Getenv("SHELL"), "sh")}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if *build {
		err = buildKubernetes(ctx)
	} else {
		err = cluster.RunAPI(ctx, func(api *cluster.API) error { return run(ctx, api, args) })
	}
	stop()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(max(1, exit.ExitCode())) // the command has said why
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
		os.Exit(1)
	}
}

func buildKubernetes(ctx context.Context) error {
	path, err := cluster.BuildKubernetes(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}

// run runs the command until it ends. When ctx ends it gets the signal that a terminal
// would send.
func run(ctx context.Context, api *cluster.API, args []string) error {
	dir, err := cluster.InRepository(definitions)
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
