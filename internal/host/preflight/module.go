// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// moduleIPVS is the kernel module of IPVS. It depends on nf_conntrack, so modprobe loads both.
// moduleTables is the module of nftables.
const (
	moduleIPVS   = "ip_vs"
	moduleTables = "nf_tables"
)

// defaultScheduler is a service's default.
const defaultScheduler = "maglev"

// schedulerModule returns the module of a scheduler; IPVS calls Maglev hashing mh.
func schedulerModule(name string) string {
	if name == defaultScheduler {
		name = "mh"
	}
	return moduleIPVS + "_" + name
}

// ipvs wants IPVS in the kernel, or its module. The agent can't load modules itself, since that
// takes CAP_SYS_MODULE; the kernel does when an agent looks for IPVS (since 5.16) and when a
// service has a scheduler, by running modprobe in the host's namespaces.
func ipvs(facts Facts, n Needs) Finding {
	f := Finding{Check: "ipvs", Result: OK, Needed: "module " + moduleIPVS + ", loaded by the node's administrator or by the kernel on request"}
	m := facts.Modules
	switch m.States[moduleIPVS] {
	case ModuleLoaded:
		f.Found = "there"
	case ModuleAvailable:
		f.Found = "module " + moduleIPVS + ", not loaded; the kernel loads it when the agent starts"
		if !m.OnRequest || !m.IPVSAlias {
			f.Result, f.Found = missingIPVS(n), "module "+moduleIPVS+", not loaded"
			f.Fix = loadModules(moduleIPVS)
		}
	case ModuleUnseen:
		f.Result, f.Found = unseenIPVS(n), "not loaded; /lib/modules/"+facts.Kernel+" can't be seen here"
		f.Fix = "on the node: " + loadModules(moduleIPVS)
	default:
		f.Result, f.Found = missingIPVS(n), "this kernel has no IPVS"
		f.Fix = "use a kernel with CONFIG_IP_VS, as those of distributions (Ubuntu: package linux-modules-extra)"
	}
	if n.IPVS == Partial {
		f.Needed += ": services of this configuration need it, which XDP can't serve"
	}
	if n.IPVS == Optional {
		f.Needed = "optional: " + f.Needed
	}
	return f
}

// ipvsParts wants nftables, by which packets get firewall marks and other sources, and the
// schedulers of services, or the default one, if there is IPVS.
func ipvsParts(facts Facts, n Needs) (findings []Finding) {
	if facts.Modules.States[moduleIPVS] == ModuleAbsent {
		return nil
	}
	modules := []string{moduleTables}
	schedulers := n.Schedulers
	if len(schedulers) == 0 {
		schedulers = []string{defaultScheduler}
	}
	for _, s := range schedulers {
		if module := schedulerModule(s); !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	for _, module := range modules {
		f := Finding{Check: "ipvs: " + module, Result: OK, Needed: "module " + module}
		switch facts.Modules.States[module] {
		case ModuleLoaded:
			f.Found = "there"
		case ModuleAvailable:
			f.Found = "not loaded; the kernel loads it when a service needs it"
			if !facts.Modules.OnRequest {
				f.Result, f.Found, f.Fix = missingIPVS(n), "not loaded", loadModules(module)
			}
		case ModuleUnseen:
			f.Result, f.Found = unseenIPVS(n), "not loaded; /lib/modules/"+facts.Kernel+" can't be seen here"
			f.Fix = "on the node: " + loadModules(module)
		default:
			f.Result, f.Found = missingIPVS(n), "this kernel has no such module"
			f.Fix = "use a kernel with CONFIG_" + strings.ToUpper(module)
		}
		findings = append(findings, f)
	}
	return findings
}

// missingIPVS is the result where a module is missing, unseenIPVS where one may be missing: both
// are information only where IPVS is optional.
func missingIPVS(n Needs) Result {
	if n.IPVS >= Partial {
		return Fail
	}
	return OK
}

func unseenIPVS(n Needs) Result {
	if n.IPVS >= Partial {
		return Warn
	}
	return OK
}

// loadModules says how an administrator loads a module, now and at boot.
func loadModules(module string) string {
	return fmt.Sprintf("modprobe %[1]s, and a line %[1]s in /etc/modules-load.d/fairlead.conf", module)
}

// sysctls wants /proc/sys/net to be writable.
func sysctls(facts Facts) Finding {
	f := Finding{Check: "sysctls", Result: OK, Found: "/proc/sys/net can be written", Needed: "a writable /proc/sys/net, for net.ipv4.vs"}
	switch {
	case facts.SysctlErr == nil:
	case errors.Is(facts.SysctlErr, unix.EROFS):
		f.Result, f.Found = Warn, "/proc/sys is read-only: nat needs net.ipv4.vs.conntrack=1 there, and connections to dead backends hang until they expire"
		f.Fix = "set net.ipv4.vs.* in the container, or mount the node's /proc/sys/net at /host/proc/sys/net (docs/design/ipvs.md)"
	default:
		f.Result, f.Found, f.Fix = Fail, "/proc/sys/net: "+facts.SysctlErr.Error(), "run it as root"
	}
	return f
}

// ipvsModules are those whose states are collected.
var ipvsModules = []string{
	moduleIPVS, moduleTables, "ip_vs_mh", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_sh",
}
