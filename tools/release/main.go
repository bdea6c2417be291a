// SPDX-License-Identifier: Apache-2.0

// Command release writes a release's files in addition to executables, charts and
// images. scripts/release.sh calls it.
//
//	go -C tools run ./release licenses >LICENSES.txt
//	go -C tools run ./release sbom VERSION FILE... >fairlead.spdx.json
//	go -C tools run ./release chart PACKAGE DIR
//
// "licenses" prints the licences of Fairlead and of all modules in its executable. It
// fails if a module has none, or one that isn't known to permit this. "sbom" prints an
// SPDX 2.3 document of these executables and Python wheels, and "chart" makes an OCI layout of a packaged
// chart. The time in them is SOURCE_DATE_EPOCH (reproducible-builds.org).
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "licenses":
		return printLicenses(os.Stdout)
	case len(args) > 2 && args[0] == "sbom":
		created, err := epoch()
		if err != nil {
			return err
		}
		return printSBOM(os.Stdout, args[1], created, args[2:])
	case len(args) == 3 && args[0] == "chart":
		created, err := epoch()
		if err != nil {
			return err
		}
		return writeChart(context.Background(), args[1], args[2], created)
	}
	return fmt.Errorf("usage: release licenses | sbom VERSION FILE... | chart PACKAGE DIR")
}

// epoch returns the time of SOURCE_DATE_EPOCH in RFC 3339.
func epoch() (string, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return "", fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC().Format(time.RFC3339), nil
}
