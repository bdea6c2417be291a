// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Meter reads the processor time of a lab's hosts.
type Meter struct{ lab *Lab }

// NewMeter has each interface of all hosts receive in a kernel thread of its own (threaded NAPI).
// Otherwise a veth pair's receiver works in the time of its sender. It needs receive offload at
// the receiving end, and no TCP segmentation offload at the sending one (veth_xmit).
func NewMeter(ctx context.Context, l *Lab) (*Meter, error) {
	const script = `for i; do echo 1 >/sys/class/net/$i/threaded || exit; done`
	for _, h := range l.State().Hosts {
		var ends []string
		err := l.Do(h.Name, func() (err error) {
			ends, err = setReceive()
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", h.Name, err)
		}
		// ip mounts the namespace's /sys.
		args := append([]string{"ip", "netns", "exec", h.Namespace, "sh", "-c", script, "sh"}, ends...)
		if _, err := l.Run(ctx, h.Name, args...); err != nil {
			return nil, fmt.Errorf("threaded NAPI: %w", err)
		}
	}
	return &Meter{l}, nil
}

// setReceive sets the offloads of all ends of veth pairs and returns their names.
func setReceive() (ends []string, err error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("ethtool: %w", err)
	}
	defer tool.Close()
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if link.Type() != "veth" {
			continue
		}
		name := link.Attrs().Name
		ends = append(ends, name)
		err := tool.Change(name, map[string]bool{
			"rx-gro":               true,
			"tx-tcp-segmentation":  false,
			"tx-tcp6-segmentation": false, "tx-tcp-ecn-segmentation": false, "tx-tcp-mangleid-segmentation": false,
		})
		if err != nil {
			return nil, fmt.Errorf("interface %s: features: %w", name, err)
		}
	}
	return ends, nil
}

// Busy returns the processor time of each host so far: its processes, and its kernel threads
// that receive. Processes that end leave the sum.
func (m *Meter) Busy() (map[string]time.Duration, error) {
	pids := map[string][]int{}
	for _, h := range m.lab.State().Hosts {
		processes, err := namespace(h.Namespace).processes()
		if err != nil {
			return nil, err
		}
		for _, p := range processes {
			pids[h.Name] = append(pids[h.Name], p.PID)
		}
		err = m.lab.Do(h.Name, func() error {
			threads, err := receivers()
			pids[h.Name] = append(pids[h.Name], threads...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("host %s: threaded NAPI: %w", h.Name, err)
		}
	}
	// All at nearly the same time: the search above takes longer.
	all := map[string]time.Duration{}
	for host, own := range pids {
		for _, pid := range own {
			busy, err := runTime(pid)
			if err != nil {
				return nil, err
			}
			all[host] += busy
		}
	}
	return all, nil
}

// runTime is the processor time of a process with all its threads.
func runTime(pid int) (total time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return 0, err
		}
		own, _, _ := strings.Cut(string(text), " ")
		nanoseconds, err := strconv.ParseInt(own, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		total += time.Duration(nanoseconds)
	}
	return total, nil
}

// Of include/uapi/linux/netdev.h.
const (
	napiGet = 11 // NETDEV_CMD_NAPI_GET, since Linux 6.8
	napiPID = 4  // NETDEV_A_NAPI_PID
)

// receivers returns the kernel threads that receive in the calling thread's network namespace.
func receivers() (pids []int, err error) {
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return nil, err
	}
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_DUMP)
	request.AddRawData([]byte{napiGet, 1, 0, 0}) // the header of netlink generic: command, version, zero
	messages, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		attributes, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, err
		}
		for _, a := range attributes {
			if a.Attr.Type == napiPID {
				pids = append(pids, int(binary.NativeEndian.Uint32(a.Value)))
			}
		}
	}
	return pids, nil
}
