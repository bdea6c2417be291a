// SPDX-License-Identifier: Apache-2.0

// Package version has the linker's and the Go toolchain's record of the build. Both
// commands print it, and benchmark reports name its commit.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the newest tag. The Makefile sets it with -ldflags.
var Version = "dev"

// Revision is the commit, set likewise.
var Revision = ""

// Commit returns the revision that the binary was built from, with "-dirty" appended
// if the working tree had changes, or "unknown" outside of a checkout.
func Commit() string {
	if Revision != "" {
		return Revision
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return revision + dirty
}

// String returns version, commit, compiler and platform in one line.
func String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s/%s)", Version, Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
