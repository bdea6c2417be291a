// SPDX-License-Identifier: Apache-2.0

// Package cluster runs real Kubernetes for tests, out of the binary that
// test/cluster/binary builds. It stands beside the story of DESIGN.md §1, as
// internal/netlab does: it makes the world in which that story is played.
//
// There are two sizes. [StartAPI] is an API server with its etcd, for tests of what
// reads and writes objects; it is there in some seconds and has no nodes.
//
// Everything runs on a [Machine], a set of Linux namespaces whose processes are
// killed by the kernel when the test's process ends, however that ends. Nothing of
// a cluster has a name that two could want, so that any number run side by side.
package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// needRoot skips the test of somebody who may make no namespaces.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
}

// Await calls condition until it returns nil, and fails the test with the last
// error if that takes longer than timeout.
func Await(t testing.TB, timeout time.Duration, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := await(ctx, condition); err != nil {
		t.Fatalf("waited %s in vain for %s: %v", timeout, what, err)
	}
}

// await calls condition until it returns nil or ctx ends, and returns its last
// error.
func await(ctx context.Context, condition func() error) error {
	const pause = 50 * time.Millisecond
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
