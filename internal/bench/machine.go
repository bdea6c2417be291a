// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine names the kernel's release and the processor with its number of
// cores.
func machine() (kernel, cpu string, err error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", "", fmt.Errorf("kernel: %w", err)
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", "", fmt.Errorf("cpu: %w", err)
	}
	model := modelName(string(info))
	if model == "" {
		model = runtime.GOARCH // Arm's kernels give no name
	}
	return unix.ByteSliceToString(name.Release[:]), fmt.Sprintf("%s x %d", model, runtime.NumCPU()), nil
}

// modelName is the first "model name" of /proc/cpuinfo, or empty.
func modelName(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
