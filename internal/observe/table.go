// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"
)

// writeTable lays out lines of cells that end in tabs, with two blanks between
// columns.
func writeTable(w io.Writer, fill func(io.Writer)) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fill(table)
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := text.WriteTo(w)
	return err
}

// WriteServices prints services for people, in the order given.
func WriteServices(w io.Writer, services []Service) error {
	return writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tVIP\tFORWARD\tBACKENDS\tPACKETS\tPACKETS/S\tBITS/S\tSTATUS")
		for _, s := range services {
			forward := "-"
			if s.Forward != 0 {
				forward = s.Forward.String()
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d/%d\t%d\t%s\t%s\t%s\n", s.Name, s.VIP, forward,
				s.BackendsInUse, s.Backends, s.Packets, human(s.PacketsPerSecond), bits(s.BytesPerSecond), s.Condition())
		}
	})
}

// ConditionOK is the condition of a service that is as it should be.
const ConditionOK = "ok"

// Condition says in a few words how the service is.
func (s Service) Condition() string {
	missing, unhealthy := s.Backends-s.BackendsDrained-s.BackendsInUse, s.Backends-s.BackendsHealthy
	switch {
	case s.Error != "" && s.Deleting:
		return "error: deleting: " + oneLine(s.Error)
	case s.Error != "":
		return "error: " + oneLine(s.Error)
	case s.Deleting:
		return "deleting"
	case !s.Programmed:
		return "pending"
	case s.Backends == 0:
		return "degraded: no backends"
	case s.Panic:
		return fmt.Sprintf("panic: %d of %d backends unhealthy, health is ignored", unhealthy, s.Backends)
	case s.Drained:
		return "drained"
	case missing > 0 && unhealthy > 0:
		return fmt.Sprintf("degraded: %d of %d backends not in use, %d unhealthy", missing, s.Backends, unhealthy)
	case missing > 0:
		return fmt.Sprintf("degraded: %d of %d backends not in use", missing, s.Backends)
	case s.BackendsInUse == 0:
		return "degraded: all backends have weight 0"
	default:
		return ConditionOK
	}
}

// oneLine puts an error that joins others on one line.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// WriteBackends prints backends for people, in the order given.
func WriteBackends(w io.Writer, backends []Backend) error {
	return writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tVIP\tBACKEND\tWEIGHT\tSHARE\tPACKETS\tPACKETS/S\tBITS/S\tNEXT HOP\tHEALTH\tSTATUS")
		for _, b := range backends {
			hop, condition := "-", "ok"
			if b.NextHop != "" {
				hop = b.NextHop
			}
			switch {
			case b.InUse && b.Reason != "":
				condition = "in use: " + b.Reason
			case !b.InUse:
				condition = "out: " + b.Reason
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", b.Service, b.VIP,
				netip.AddrPortFrom(b.Address, b.Port), b.Weight, percent(b.Share),
				b.Packets, human(b.PacketsPerSecond), bits(b.BytesPerSecond), hop, b.Health, condition)
		}
	})
}

// WriteStatus prints the agent's status for people, who read it at the given
// time. Exits that no packet took are left out.
func WriteStatus(w io.Writer, s Status, now time.Time) error {
	err := writeTable(w, func(t io.Writer) {
		fmt.Fprintf(t, "node\t%s\n", s.Node)
		fmt.Fprintf(t, "%s\t%s (commit %s)%s, up %s\n", cmp.Or(s.Role, "agent"), s.Version, s.Commit, process(s.PID), age(s.Started, now))
		fmt.Fprintf(t, "config\t%s, loaded %s ago, digest %s\n", s.Config.Path, age(s.Config.Loaded, now), short(s.Config.Digest))
		if s.Config.Error != "" {
			fmt.Fprintf(t, "\trefused %s ago, what was loaded runs on:\n\t%s\n", age(s.Config.Refused, now), strings.ReplaceAll(s.Config.Error, "\n", "\n\t"))
		}
		s.Kubernetes.write(t, now)
		if s.Listen != "" {
			fmt.Fprintf(t, "page\thttp://%s/\n", s.Listen)
		}
		if s.Role == RoleReflector {
			fmt.Fprintf(t, "bgp\t%s\n", s.BGP)
			return
		}
		fmt.Fprintf(t, "revision\t%d\n", s.Revision)
		writeDataPlane(t, s.DataPlane)
		if s.Draining {
			fmt.Fprintf(t, "draining\tfor %s\n", age(s.DrainingSince, now))
		}
		fmt.Fprintf(t, "services\t%d: %d programmed, %d failed%s%s\n", s.Services.Total, s.Services.Programmed, s.Services.Failed,
			some(s.Services.Panic, "in panic"), some(s.Services.Drained, "drained"))
		fmt.Fprintf(t, "backends\t%d: %d in use%s%s\n", s.Backends.Total, s.Backends.InUse,
			some(s.Backends.Unhealthy, "unhealthy"), some(s.Backends.Drained, "drained"))
		if s.BGP.Enabled {
			fmt.Fprintf(t, "bgp\t%s\n", s.BGP)
		}
	})
	if err != nil || s.Role == RoleReflector {
		return err
	}
	return writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "\nEXIT\tPACKETS\tPACKETS/S")
		for _, e := range s.Exits {
			if e.Packets > 0 {
				fmt.Fprintf(t, "%s\t%d\t%s\n", e.Name, e.Packets, human(e.PacketsPerSecond))
			}
		}
	})
}

// process names a process, but the only one of a container: its number is the same
// everywhere, and not the one by which the node knows it.
func process(pid int) string {
	if pid == 1 {
		return ""
	}
	return fmt.Sprintf(", pid %d", pid)
}

// some counts what normally isn't there.
func some(n int, what string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d %s", n, what)
}

func writeDataPlane(t io.Writer, d DataPlane) {
	fmt.Fprintf(t, "data plane\t%s\n", d.Kind)
	for _, a := range d.Attachments {
		fmt.Fprintf(t, "\t%s %s", a.Interface, a.Mode)
		if a.Adopted {
			fmt.Fprint(t, ", adopted")
		}
		if a.Reason != "" {
			fmt.Fprintf(t, ": %s", a.Reason)
		}
		fmt.Fprintln(t)
	}
}

// short is enough of a digest to tell two apart.
func short(digest string) string { return digest[:min(12, len(digest))] }

// age writes how long ago a moment was, in full seconds.
func age(then, now time.Time) time.Duration { return now.Sub(then).Round(time.Second) }
