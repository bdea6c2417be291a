// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
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
	// needed says whether it is set for a service.
	needed func(*lb.Service) bool
	// without is the effect in a container that can't set it; empty if the service doesn't work then.
	without string
	// forwarding makes the node a router, which Config.Forwarding has to allow.
	forwarding bool
}

func always(*lb.Service) bool { return true }

func translates(s *lb.Service) bool { return s.Forward == lb.NAT }

// sysctls are all settings that are changed (docs/design/ipvs.md has the reasons).
var sysctls = []sysctl{
	{"net/ipv4/vs/expire_nodest_conn", 1, always, "connections to a server that is removed or dead hang until they expire", false},
	{"net/ipv4/vs/expire_quiescent_template", 1, always, "clients with persistence stay with a drained server", false},
	{"net/ipv4/vs/conn_reuse_mode", 1, always, "a port that a client uses again may reach a server that takes no new connections", false},
	{"net/ipv4/vs/conntrack", 1, translates, "", false},
	{"net/ipv4/ip_forward", 1, func(s *lb.Service) bool { return translates(s) && s.Address.Is4() }, "", true},
	{"net/ipv6/conf/all/forwarding", 1, func(s *lb.Service) bool { return translates(s) && s.Address.Is6() }, "", true},
}

// tuned are the sysctls that this process has seen to.
type tuned map[string]bool

// tune sets the sysctls that a service needs, as far as it doesn't work without them. An earlier value is written to
// the tables before it is changed.
func (k *kernel) tune(svc *lb.Service) error {
	for i, s := range sysctls {
		if k.tuned[s.path] || !s.needed(svc) {
			continue
		}
		switch err := k.set(i, s); {
		case err == nil:
		case s.without != "" && (errors.Is(err, errNotWritable) || errors.Is(err, errMissing)):
			k.log.Warn("sysctl can't be set", slog.String("sysctl", s.name()), slog.Any("error", err), slog.String("without", s.without))
		default:
			return fmt.Errorf("%s needs %s=%d: %w", svc.Forward, s.name(), s.value, err)
		}
		k.tuned[s.path] = true
	}
	return nil
}

func (k *kernel) set(number int, s sysctl) error {
	value, err := s.read()
	if err != nil || value == s.value {
		return err
	}
	if s.forwarding && !k.forwarding {
		return fmt.Errorf("it is %d, and the node's administrator has to set it", value)
	}
	if err := k.tables.keepSetting(number, value); err != nil {
		return err
	}
	return s.write(s.value)
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
		if err := s.write(earlier); err != nil && !errors.Is(err, errNotWritable) { // so it wasn't written before
			return err
		}
	}
	clear(k.tuned)
	return nil
}

// Reasons why a container can't change a setting: only these may leave it as it is.
var (
	errNotWritable = errors.New("/proc/sys can't be written here: set it by securityContext.sysctls of the pod, the CNI plugin tuning, " +
		"--sysctl of a container engine, or on the machine, or mount the node's /proc/sys/net at /host/proc/sys/net")
	errMissing = errors.New("this network namespace doesn't have it, as in a user namespace before Linux 6.10")
)

// procSys has the settings; hostSys is where the chart mounts the node's /proc/sys/net, as a container's own is
// read-only. A file there belongs to the opener's network namespace, too. A test has others.
var procSys, hostSys = "/proc/sys", "/host/proc/sys"

func (s sysctl) file() string { return filepath.Join(procSys, s.path) }

// name is the setting's, as for sysctl(8).
func (s sysctl) name() string { return strings.ReplaceAll(s.path, "/", ".") }

func (s sysctl) read() (int, error) {
	text, err := os.ReadFile(s.file())
	if errors.Is(err, os.ErrNotExist) {
		err = errMissing
	}
	if err != nil {
		return 0, fmt.Errorf("sysctl %s: %w", s.path, err)
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("sysctl %s: %w", s.path, err)
	}
	return value, nil
}

func (s sysctl) write(value int) error {
	text := []byte(strconv.Itoa(value))
	err := os.WriteFile(s.file(), text, 0)
	if refused(err) {
		err = os.WriteFile(filepath.Join(hostSys, s.path), text, 0)
		if refused(err) || errors.Is(err, os.ErrNotExist) {
			return errNotWritable
		}
	}
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", s.path, err)
	}
	return nil
}

// refused reports that a file system is read-only, or that a security module refuses to write there.
func refused(err error) bool { return errors.Is(err, unix.EROFS) || errors.Is(err, os.ErrPermission) }

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
