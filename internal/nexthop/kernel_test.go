// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever a message holds, it is applied or refused. Its length is a multiple of
// four, which the kernel sees to and package nl relies on.
func FuzzApply(f *testing.F) {
	for _, kind := range []uint16{
		unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH,
		unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWROUTE, unix.RTM_DELROUTE, unix.RTM_NEWRULE,
	} {
		f.Add(kind, []byte{})
		f.Add(kind, make([]byte, 16))
		f.Add(kind, []byte("\x02\x08\x00\x00\x02\x00\x00\x00\x80\x00\x00\x01\x08\x00\x01\x00\x0a\x00\x00\x15"))
		f.Add(kind, []byte("\x0a\x80\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07\x00\x01\x00\x0a\x00\x00\x15"))
	}
	address, route := "\x02\x18\x80\x00\x02\x00\x00\x00", "\x02\x18\x00\x00\xfe\x00\x00\x01\x00\x00\x00\x00"
	const first, second = "\x08\x00\x01\x00\x0a\x00\x00\x15", "\x08\x00\x02\x00\x0a\x00\x00\x16" // attributes
	f.Add(uint16(unix.RTM_NEWADDR), []byte(address+first+second))
	f.Add(uint16(unix.RTM_DELADDR), []byte(address+"\x05\x00\x02\x00\x0a\x00\x00\x15")) // one byte
	f.Add(uint16(unix.RTM_NEWROUTE), []byte(route+first))
	f.Add(uint16(unix.RTM_NEWROUTE), []byte("\x0a"+route[1:]+"\x08\x00\x0f\x00\xfe\x00\x00\x00")) // IPv6, a table
	f.Add(uint16(unix.RTM_NEWROUTE), []byte(route[:9]+"\x02\x00\x00"))                            // cloned
	f.Add(uint16(unix.RTM_NEWLINK), []byte("\x00\x00\x01\x00\x02\x00\x00\x00\x43\x10\x01\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) {
		if kind == unix.RTM_NEWLINK || kind == unix.RTM_DELLINK {
			// The attributes are read by package netlink, which trusts the kernel.
			data = data[:min(len(data), unix.SizeofIfInfomsg)]
		}
		data = data[:len(data)&^3]
		table, _ := newFake(t)
		table.follow(vipOf(1), onLink("10.0.0.21"))
		m := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}
		if err := apply(table, &m); err == nil {
			changed(t, table)
		}
	})
}

func TestDecodeNeighbour(t *testing.T) {
	body := []byte{
		unix.AF_INET, 0, 0, 0, eth0, 0, 0, 0, unix.NUD_REACHABLE, 0, 0x10, 1,
		8, 0, 1, 0, 10, 0, 0, 21, // NDA_DST
		10, 0, 2, 0, 2, 0, 0, 0, 1, 1, 0, 0, // NDA_LLADDR
		8, 0, 15, 0, 1, 0, 0, 0, // NDA_FLAGS_EXT
		5, 0, 12, 0, markFairlead, 0, 0, 0, // NDA_PROTOCOL
	}
	key, n, err := decodeNeighbour(body)
	want := neighbour{state: unix.NUD_REACHABLE, mac: macBackend, managed: true, learned: true, marked: true}
	if err != nil || key != key0("10.0.0.21") || n != want {
		t.Errorf("got %+v, %+v, %v", key, n, err)
	}
	if _, _, err := decodeNeighbour(body[:11]); err == nil {
		t.Error("a short message is taken")
	}
}

// Without CAP_NET_ADMIN the kernel's limit of the receive buffer holds.
func TestSubscribeWithoutPrivileges(t *testing.T) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends without its capabilities
		header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		err := unix.Capset(&header, &none[0])
		if s, failed := subscribe(); failed != nil {
			err = failed
		} else {
			_ = s.close()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
