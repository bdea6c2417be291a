// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

// What can't be measured is said before anything is built.
func TestBenchForwardRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		`no device is called "toaster": there are none, reflector, l2dsr`: {"--device", "reflector,toaster"},
		`frame size "9000"`: {"--frame", "64,9000"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(append([]string{"bench", "forward"}, args...), env{stdout: &stdout, stderr: &stderr})
		if status != 1 || stdout.Len() > 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%v: status %d, %q, %q, want an error with %q", args, status, &stdout, &stderr, want)
		}
	}
}
