// SPDX-License-Identifier: Apache-2.0

// Package sink is the end of the wire in measurements: it counts the frames that
// arrive at an interface and drops them.
//
// It is used by internal/bench. Its program is bpf/sink.bpf.c.
package sink

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" sink ../../../../bpf/sink.bpf.c

// Sink is an interface that swallows what arrives.
type Sink struct {
	objects sinkObjects
}

// Received is what has arrived: frames, and the bytes in them.
type Received struct {
	Frames, Bytes uint64
}

// Attach makes the interface of this index, in the calling thread's network
// namespace, a sink as long as it lives, in place of any other XDP program.
func Attach(ifindex int) (*Sink, error) {
	s := &Sink{}
	if err := loadSinkObjects(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	link, err := netlink.LinkByIndex(ifindex)
	if err == nil {
		err = netlink.LinkSetXdpFdWithFlags(link, s.objects.Swallow.FD(), unix.XDP_FLAGS_DRV_MODE)
	}
	if err != nil {
		s.objects.Close()
		return nil, fmt.Errorf("sink: %w", err)
	}
	return s, nil
}

// Received counts everything since Attach.
func (s *Sink) Received() (Received, error) {
	var perCPU []sinkReceived
	if err := s.objects.sinkMaps.Received.Lookup(uint32(0), &perCPU); err != nil {
		return Received{}, fmt.Errorf("sink: %w", err)
	}
	var sum Received
	for _, r := range perCPU {
		sum.Frames += r.Frames
		sum.Bytes += r.Bytes
	}
	return sum, nil
}

// Close ends the counting; the interface goes on swallowing.
func (s *Sink) Close() error { return s.objects.Close() }
