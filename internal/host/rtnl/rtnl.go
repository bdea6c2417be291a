// SPDX-License-Identifier: Apache-2.0

// Package rtnl reads tables of the kernel by rtnetlink.
package rtnl

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// attempts bounds how often a table is read again that changes all the time.
const attempts = 16

// Dump reads a table, and reads it again if it has changed meanwhile: the kernel marks such a dump
// (NLM_F_DUMP_INTR), as it may lack entries. The error is netlink.ErrDumpInterrupted if it always has.
func Dump[T any](read func() (T, error)) (all T, err error) {
	for range attempts {
		if all, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
