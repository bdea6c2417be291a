// SPDX-License-Identifier: Apache-2.0

// Package tune shows settings of a machine that decide which CPUs handle packets: channels,
// interrupts, packet steering (RPS, RFS, XPS) and offloads. It advises values for a use of the
// machine, writes them, and restores the former ones. "fairlead tune" runs it.
package tune

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"fairlead.io/fairlead/internal/host/preflight"
)

// Profile is the use of a machine for which values are advised.
type Profile string

// The profiles. XDP is a balancer with native XDP, Kernel one whose packets take the network stack
// (IPVS, iptables, generic XDP). The packets of Server are for sockets, as on a backend or a proxy.
const (
	XDP    Profile = "xdp"
	Kernel Profile = "kernel"
	Server Profile = "server"
)

// Change is the result of settings that Apply writes. Of preflight's results, OK needs nothing and
// Warn needs the operator.
const Change preflight.Result = "change"

// Setting is one setting of the machine, or a finding about it.
type Setting struct {
	Result preflight.Result `json:"result,omitempty"`
	// Interface is set for settings of one interface.
	Interface string `json:"interface,omitempty"`
	Name      string `json:"setting"`
	// File has the setting, if it is in a file.
	File string `json:"file,omitempty"`
	// Now is the present value, as the kernel prints it.
	Now string `json:"now"`
	// Advice is another value, or a task for the operator; empty with OK.
	Advice string `json:"advice,omitempty"`
	// CPUs has the CPUs of an advised mask as a list, such as "1-7,9-15".
	CPUs string `json:"cpus,omitempty"`
	// Reason is for the advice, or for its absence.
	Reason string `json:"reason,omitempty"`

	kind kind
	// queue is its number, or the rank of the interrupt's queue.
	queue int
	// write changes the setting; nil for findings.
	write func(value string) error
}

// kind says how a value is chosen and compared. Those from interrupt on have one for each queue.
type kind int

const (
	finding kind = iota
	channels
	offload
	flowEntries
	interrupt
	rps
	flowCount
	xps
)

// is reports whether the setting has this value. Masks may differ in leading zeros.
func (s Setting) is(value string) bool {
	now, err := parseMask(s.Now)
	mask, errMask := parseMask(value)
	if isMask := s.kind == interrupt || s.kind == rps || s.kind == xps; isMask && err == nil && errMask == nil {
		return slices.Equal(now, mask)
	}
	return s.Now == value
}

// judged returns the setting with its result.
func (s Setting) judged() Setting {
	switch {
	case s.Advice == "" || s.is(s.Advice):
		s.Result, s.Advice, s.CPUs = preflight.OK, "", ""
	case s.kind == finding:
		s.Result = preflight.Warn
	default:
		s.Result = Change
	}
	return s
}

// String is the setting's name, which is unique.
func (s Setting) String() string {
	if s.Interface == "" {
		return s.Name
	}
	return s.Interface + ": " + s.Name
}

// WriteTable prints a line for each setting. A reason is printed once for lines in sequence.
func WriteTable(w io.Writer, settings []Setting) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RESULT\tSETTING\tNOW\tADVICE\tREASON")
	before := ""
	for _, s := range settings {
		advice, reason := s.Advice, s.Reason
		if s.CPUs != "" {
			advice += " (CPU " + s.CPUs + ")"
		}
		if reason == before {
			reason = ""
		}
		before = s.Reason
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", s.Result, s, s.Now, advice, reason)
	}
	return table.Flush()
}
