// SPDX-License-Identifier: Apache-2.0

package rtnl_test

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/host/rtnl"
)

// A dump is repeated while the kernel says that its table has changed, but not for ever.
func TestDump(t *testing.T) {
	for _, interrupted := range []int{0, 3, 1000} {
		reads := 0
		n, err := rtnl.Dump(func() (int, error) {
			if reads++; reads <= interrupted {
				return 0, netlink.ErrDumpInterrupted
			}
			return reads, nil
		})
		if interrupted == 1000 {
			if !errors.Is(err, netlink.ErrDumpInterrupted) {
				t.Errorf("%d reads, and error %v", reads, err)
			}
		} else if err != nil || n != interrupted+1 {
			t.Errorf("read %d, %v; want the result of read %d", n, err, interrupted+1)
		}
	}
}
