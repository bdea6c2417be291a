// SPDX-License-Identifier: Apache-2.0

// Package preflight checks this kernel and these interfaces for the features that Fairlead needs,
// and suggests fixes for missing ones. "fairlead preflight" runs it. [Collect] reads the system,
// [Check] is pure. Nothing is changed, and no module is loaded.
package preflight

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"text/tabwriter"
)

// Result is how a check ended.
type Result string

// The results. OK needs nothing; Warn works with a restriction; with Fail the
// agent would not work.
const (
	OK   Result = "ok"
	Warn Result = "warn"
	Fail Result = "fail"
)

// Finding is the outcome of one check, in words for people.
type Finding struct {
	// Check names the subject, for example "kernel" or "xdp".
	Check string `json:"check"`
	// Interface is set for the checks of one interface.
	Interface string `json:"interface,omitempty"`
	Result    Result `json:"result"`
	// Found is the present state, Needed the state that Fairlead wants.
	Found  string `json:"found"`
	Needed string `json:"needed"`
	// Fix suggests a remedy; empty with OK.
	Fix string `json:"fix,omitempty"`
}

// Needs describes the node's planned use.
type Needs struct {
	// VLAN says that a service or a backend is in a VLAN, so that tags must be
	// visible to XDP programs.
	VLAN bool
	// Probes says that backends which answer clients directly have health checks,
	// whose answers come from IPv4 VIPs.
	Probes bool
	// Native says that XDP must run in the driver: generic mode is an error and
	// not a warning.
	Native bool
	// Forwarding says that packets are left to the kernel's forwarding path.
	Forwarding bool
	// QUIC says that a service reads connection IDs, which takes bpf_xdp_load_bytes (Linux 5.18).
	QUIC bool
	// IPVS says whether the data plane is IPVS.
	IPVS Use
	// Schedulers of the services on IPVS, by their names in configurations.
	Schedulers []string
	// VIPs are the addresses of services.
	VIPs []netip.Addr
	// Passwords says that BGP sessions have passwords.
	Passwords bool
}

// Use says whether something is used.
type Use int

// The uses. With Optional no service needs it yet; with Partial some do; with Required nothing else
// is used.
const (
	Unused Use = iota
	Optional
	Partial
	Required
)

// Check judges the facts. The findings are in the order in which one thing
// needs another: the kernel, the process, the interfaces.
func Check(f Facts, n Needs) []Finding {
	var findings []Finding
	if n.IPVS != Required {
		findings = append(findings, kernel(f, n), btf(f.BTF), jit(f.JIT))
	}
	if n.IPVS != Unused {
		findings = append(findings, ipvs(f, n))
		findings = append(findings, ipvsParts(f, n)...)
	}
	findings = append(findings, capabilities(f, n))
	if n.IPVS >= Partial {
		findings = append(findings, sysctls(f))
	}
	if n.IPVS != Required {
		findings = append(findings, mounted(f))
	}
	if n.Forwarding {
		findings = append(findings, forwarding(f.NotForwarding))
	}
	if n.Passwords {
		findings = append(findings, passwords(f.MD5Err))
	}
	for _, i := range f.Interfaces {
		findings = append(findings, checkInterface(i, f.Kernel, n)...)
	}
	for i := range findings {
		if findings[i].Result == OK {
			findings[i].Fix = ""
		}
	}
	return findings
}

// Failed reports whether a finding is a failure.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Result == Fail })
}

// WriteTable prints the findings: a line each, and below findings with a fix the
// need and the fix.
func WriteTable(w io.Writer, findings []Finding) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		check := f.Check
		if f.Interface != "" {
			check = f.Interface + ": " + check
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Result, check, f.Found)
		if f.Result != OK {
			fmt.Fprintf(table, "\t\t  needed: %s\n", f.Needed)
		}
		if f.Fix != "" {
			fmt.Fprintf(table, "\t\t  fix: %s\n", f.Fix)
		}
	}
	return table.Flush()
}
