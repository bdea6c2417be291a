// SPDX-License-Identifier: Apache-2.0

// Command kubernetes builds the Kubernetes that tests run, unless it is in the
// cache, and prints its path.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"fairlead.io/fairlead/test/cluster/binary"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	path, err := binary.Build(ctx, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
