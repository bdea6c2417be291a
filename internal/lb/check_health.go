// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"strings"
)

func (h *HealthCheck) check(f *findings, path string) {
	f.add(path+".type", healthWords.check("health check", uint8(h.Type)))
	switch {
	case h.Type == HealthHTTP && !strings.HasPrefix(h.Path, "/"):
		f.add(path+".path", fmt.Errorf("bad path %q: want one that begins with /", h.Path))
	case h.Type == HealthTCP && h.Path != "":
		f.add(path+".path", errors.New("a tcp check has no path"))
	}
	if h.Interval <= 0 {
		f.add(path+".interval", fmt.Errorf("%s is not a time between probes: want more than 0s", h.Interval))
	}
	if h.Timeout <= 0 {
		f.add(path+".timeout", fmt.Errorf("%s is no time for a probe: want more than 0s", h.Timeout))
	}
	if h.Interval > 0 && h.Timeout > h.Interval {
		f.add(path+".timeout", fmt.Errorf("%s is longer than the interval of %s", h.Timeout, h.Interval))
	}
	f.add(path+".rise", checkCount(h.Rise))
	f.add(path+".fall", checkCount(h.Fall))
}

// checkCount checks a number of probes in a row.
func checkCount(n int) error {
	if n < 1 {
		return fmt.Errorf("%d is out of range: want at least 1", n)
	}
	return nil
}
