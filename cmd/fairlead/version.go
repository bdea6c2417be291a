// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/preflight"
)

// version and revision are set by the linker, from the newest tag and from the
// commit; see the Makefile.
var version, revision = "dev", ""

func newVersionCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the compiler",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(e.stdout, "fairlead %s (commit %s, %s, %s/%s)\n",
				version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// commit is the version control revision that the binary was built from, with
// "-dirty" behind it if the tree had changes; "unknown" outside of a checkout.
func commit() string {
	if revision != "" {
		return revision
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	stamped, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			stamped = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return stamped + dirty
}

// kernel is the release that runs, "unknown" if it doesn't say.
func kernel() string {
	release, err := preflight.KernelRelease()
	if err != nil {
		return "unknown"
	}
	return release
}
