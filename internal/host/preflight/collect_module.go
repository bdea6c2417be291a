// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// Modules are the states of the kernel's modules.
type Modules struct {
	// States of IPVS, its schedulers and nftables.
	States map[string]ModuleState
	// OnRequest says that the kernel loads modules that it needs: kernel.modprobe has a program,
	// and kernel.modules_disabled isn't set.
	OnRequest bool
	// IPVSAlias says that the module of IPVS is loaded when a process looks for its family of
	// generic netlink (since 5.16).
	IPVSAlias bool
}

// ModuleState says whether the kernel has a module.
type ModuleState int

// The states. The zero value is the kernel's without the module.
const (
	ModuleAbsent ModuleState = iota
	// ModuleLoaded includes modules that are built in.
	ModuleLoaded
	// ModuleAvailable modules are in /lib/modules.
	ModuleAvailable
	// ModuleUnseen modules aren't loaded, and /lib/modules of this kernel can't be seen here.
	ModuleUnseen
)

// ipvsFamily is the generic netlink family of IPVS, ipvsAlias the module alias for it.
const (
	ipvsFamily = "IPVS"
	ipvsAlias  = "alias net-pf-16-proto-16-family-IPVS "
)

// collectModules reads the modules of IPVS below a root directory; registered says that IPVS has
// its family, as it may be built in. It loads none: looking for the family by its name would.
func collectModules(root, release string, registered bool) (m Modules, err error) {
	var texts [6]string
	dir := filepath.Join("lib/modules", release)
	for i, file := range []string{
		"proc/modules", "proc/sys/kernel/modprobe", "proc/sys/kernel/modules_disabled",
		dir + "/modules.builtin", dir + "/modules.dep", dir + "/modules.alias",
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return m, err
		}
		texts[i] = string(text)
	}
	loaded, builtin, files := map[string]bool{}, moduleNames(texts[3]), moduleNames(texts[4])
	for line := range strings.Lines(texts[0]) {
		name, _, _ := strings.Cut(line, " ")
		loaded[name] = true
	}
	m.OnRequest = strings.TrimSpace(texts[1]) != "" && strings.TrimSpace(texts[2]) != "1"
	m.IPVSAlias = strings.Contains("\n"+texts[5], "\n"+ipvsAlias)
	unseen := len(builtin)+len(files) == 0 && (registered || len(loaded) > 0)
	m.States = map[string]ModuleState{}
	for _, name := range ipvsModules {
		switch {
		case loaded[name] || builtin[name] || registered && name == moduleIPVS:
			m.States[name] = ModuleLoaded
		case files[name]:
			m.States[name] = ModuleAvailable
		case unseen:
			m.States[name] = ModuleUnseen
		}
	}
	return m, nil
}

// moduleNames returns the names in modules.dep and modules.builtin: each line begins with a path
// such as kernel/net/netfilter/ipvs/ip_vs.ko.xz.
func moduleNames(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, _, module := strings.Cut(path.Base(file), ".ko")
		if module {
			names[strings.ReplaceAll(name, "-", "_")] = true
		}
	}
	return names
}

// hasIPVS reports whether IPVS has registered its family.
func hasIPVS() (bool, error) {
	families, err := netlink.GenlFamilyList()
	if err != nil {
		return false, fmt.Errorf("generic netlink families: %w", err)
	}
	return slices.ContainsFunc(families, func(f *netlink.GenlFamily) bool { return f.Name == ipvsFamily }), nil
}
