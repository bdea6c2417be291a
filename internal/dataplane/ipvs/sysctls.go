// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// sysctl is a setting of the network namespace. The tables name it by its place in sysctls,
// so new ones are appended.
type sysctl struct {
	path  string
	value int
	// needed says whether a service needs it.
	needed func(*lb.Service) bool
	// forwarding makes the node a router, which Config.Forwarding has to allow.
	forwarding bool
}

func always(*lb.Service) bool { return true }

func translates(s *lb.Service) bool { return s.Forward == lb.NAT }

// sysctls are all settings that are changed (docs/design/ipvs.md has the reasons).
var sysctls = []sysctl{
	{"net/ipv4/vs/expire_nodest_conn", 1, always, false},
	{"net/ipv4/vs/expire_quiescent_template", 1, always, false},
	{"net/ipv4/vs/conn_reuse_mode", 1, always, false},
	{"net/ipv4/vs/conntrack", 1, translates, false},
	{"net/ipv4/ip_forward", 1, func(s *lb.Service) bool { return translates(s) && s.Address.Is4() }, true},
	{"net/ipv6/conf/all/forwarding", 1, func(s *lb.Service) bool { return translates(s) && s.Address.Is6() }, true},
}

// tuned are the sysctls that this process has seen to.
type tuned map[string]bool

// tune sets the sysctls that a service needs. An earlier value is written to the tables
// before it is changed.
func (k *kernel) tune(svc *lb.Service) error {
	for i, s := range sysctls {
		if k.tuned[s.path] || !s.needed(svc) {
			continue
		}
		value, err := s.read()
		if err != nil {
			return err
		}
		if value != s.value {
			if s.forwarding && !k.forwarding {
				name := strings.ReplaceAll(s.path, "/", ".")
				return fmt.Errorf("%s is %d: nat needs %s=1, which the node's administrator has to set", name, value, name)
			}
			if err := k.tables.keepSetting(i, value); err != nil {
				return err
			}
			if err := s.write(s.value); err != nil {
				return err
			}
		}
		k.tuned[s.path] = true
	}
	return nil
}

// restore puts earlier values back, except where another program has changed the value since.
func (k *kernel) restore() error {
	kept, err := k.tables.settings()
	if err != nil {
		return err
	}
	for i, earlier := range kept {
		if i >= len(sysctls) {
			continue
		}
		s := sysctls[i]
		if value, err := s.read(); err != nil {
			return err
		} else if value != s.value {
			continue
		}
		if err := s.write(earlier); err != nil {
			return err
		}
	}
	clear(k.tuned)
	return nil
}

func (s sysctl) file() string { return filepath.Join("/proc/sys", s.path) }

func (s sysctl) read() (int, error) {
	text, err := os.ReadFile(s.file())
	if err != nil {
		return 0, fmt.Errorf("sysctl %s: %w", s.path, err)
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("sysctl %s: %w", s.path, err)
	}
	return value, nil
}

// hostRoot is where the chart mounts the node's /proc/sys/net: a container's own is read-only.
const hostRoot = "/host"

func (s sysctl) write(value int) error {
	text := []byte(strconv.Itoa(value))
	err := os.WriteFile(s.file(), text, 0)
	if errors.Is(err, unix.EROFS) {
		err = os.WriteFile(filepath.Join(hostRoot, s.file()), text, 0)
	}
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", s.path, err)
	}
	return nil
}

// keepSetting records the earlier value of a sysctl, unless there is one.
func (t *tables) keepSetting(number, value int) error {
	kept, err := t.settings()
	if err != nil {
		return err
	}
	if _, known := kept[number]; known {
		return nil
	}
	word := func(n int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	err = t.conn.SetAddElements(t.family[unix.AF_INET].settings, []nftables.SetElement{{Key: word(number), Val: word(value)}})
	if err == nil {
		err = t.conn.Flush()
	}
	if err != nil {
		return fmt.Errorf("nftables map settings: %w", err)
	}
	return nil
}

// settings are the earlier values of sysctls by their numbers.
func (t *tables) settings() (map[int]int, error) {
	family := t.family[unix.AF_INET]
	if present, err := t.present(); err != nil || !slices.Contains(present, family) {
		return nil, err
	}
	elements, err := t.conn.GetSetElements(family.settings)
	if err != nil {
		return nil, fmt.Errorf("nftables map settings: %w", err)
	}
	kept := map[int]int{}
	for _, e := range elements {
		kept[int(binary.NativeEndian.Uint32(e.Key))] = int(int32(binary.NativeEndian.Uint32(e.Val)))
	}
	return kept, nil
}
