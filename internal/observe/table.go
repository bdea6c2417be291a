// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// table lays out lines of cells that end in tabs, with two blanks between
// columns.
func table(fill func(io.Writer)) string {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fill(t)
	_ = t.Flush() // a Builder takes everything
	return text.String()
}

// FormatServices is a table of services in the order given.
func FormatServices(services []Service) string {
	return table(func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tVIP\tFORWARD\tBACKENDS\tPACKETS\tPACKETS/S\tBITS/S\tSTATUS")
		for _, s := range services {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d/%d\t%d\t%s\t%s\t%s\n", s.Name, s.VIP, orDash(s.ForwardText()),
				s.BackendsInUse, s.Backends, s.Packets, human(s.PacketsPerSecond), bits(s.BytesPerSecond), s.Condition()+s.secondChoice())
		}
	})
}

// secondChoice names the data plane of a service, and the reason, if it isn't the first choice.
func (s Service) secondChoice() string {
	if s.DataPlaneReason == "" {
		return ""
	}
	return fmt.Sprintf("; on %s: %s", s.DataPlane, oneLine(s.DataPlaneReason))
}

// ForwardText is the forwarding mode; empty while the service is deleted.
func (s Service) ForwardText() string {
	if s.Forward == 0 {
		return ""
	}
	return s.Forward.String()
}

// ConditionOK is the condition of a healthy service.
const ConditionOK = "ok"

// Condition is the state of the service in a few words.
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

// FormatBackends is a table of backends in the order given.
func FormatBackends(backends []Backend) string {
	return table(func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tVIP\tBACKEND\tWEIGHT\tSHARE\tPACKETS\tPACKETS/S\tBITS/S\tNEXT HOP\tHEALTH\tSTATUS")
		for _, b := range backends {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", b.Service, b.VIP,
				b.id(), b.Weight, percent(b.Share),
				b.Packets, human(b.PacketsPerSecond), bits(b.BytesPerSecond), orDash(b.NextHop), b.Health, b.condition())
		}
	})
}

// id is the backend's within its service.
func (b Backend) id() lb.BackendID { return netip.AddrPortFrom(b.Address, b.Port) }

// condition is the state of the backend in a few words.
func (b Backend) condition() string {
	switch {
	case b.InUse && b.Reason != "":
		return "in use: " + b.Reason
	case !b.InUse:
		return "out: " + b.Reason
	}
	return ConditionOK
}

// FormatStatus is the agent's status as it is at a time. Exits that no packet took are
// omitted.
func FormatStatus(s Status, now time.Time) string {
	text := table(func(t io.Writer) {
		fmt.Fprintf(t, "node\t%s\n", s.Node)
		fmt.Fprintf(t, "%s\t%s (commit %s)%s, up %s\n", cmp.Or(s.Role, "agent"), s.Version, s.Commit, process(s.PID), age(s.Started, now))
		fmt.Fprintf(t, "config\t%s, loaded %s ago, digest %s\n", s.Config.Path, age(s.Config.Loaded, now), short(s.Config.Digest))
		if s.Config.Error != "" {
			fmt.Fprintf(t, "\trefused %s ago, the loaded one stays in force:\n\t%s\n", age(s.Config.Refused, now), strings.ReplaceAll(s.Config.Error, "\n", "\n\t"))
		}
		writeServer(t, "kubernetes", s.Kubernetes, now)
		writeServer(t, "api server", s.APIServer, now)
		writeFollowed(t, s.FollowedBackends, now)
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
			fmt.Fprintf(t, "%s\t%s\n", s.BGP.label(), s.BGP)
		}
	})
	if s.Role == RoleReflector {
		return text
	}
	return text + table(func(t io.Writer) {
		fmt.Fprintln(t, "\nEXIT\tPACKETS\tPACKETS/S")
		for _, e := range s.Exits {
			if e.Packets > 0 {
				fmt.Fprintf(t, "%s\t%d\t%s\n", e.Name, e.Packets, human(e.PacketsPerSecond))
			}
		}
	})
}

// process is the process id, but in a container: there it is always 1, and not the
// node's number of the process.
func process(pid int) string {
	if pid == 1 {
		return ""
	}
	return fmt.Sprintf(", pid %d", pid)
}

// some formats a count that is normally 0, and nothing if it is.
func some(n int32, what string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d %s", n, what)
}

func writeDataPlane(t io.Writer, d DataPlane) {
	fmt.Fprintf(t, "data plane\t%s\n", d.Kind)
	if d.Reason != "" {
		fmt.Fprintf(t, "\t%s\n", oneLine(d.Reason))
	}
	if d.FilterPods {
		fmt.Fprintln(t, "\tpods of this node through netfilter")
	}
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

// short is enough of a digest to distinguish two.
func short(digest string) string { return digest[:min(12, len(digest))] }

// age is how long ago a time was, in full seconds.
func age(then, now time.Time) time.Duration { return now.Sub(then).Round(time.Second) }

// writeFollowed adds lines about services whose backends are followed.
func writeFollowed(t io.Writer, all []source.FollowedBackends, now time.Time) {
	label := "backends of"
	for i := range all {
		f := &all[i]
		fmt.Fprintf(t, "%s\t%s: %d from %s, %s\n", label, f.Service, f.Backends, f.From, answered(f, now))
		label = ""
	}
}

// answered is how current followed backends are.
func answered(f *source.FollowedBackends, now time.Time) string {
	text := "no answer yet"
	if !f.Answered.IsZero() {
		text = "as " + age(f.Answered, now).String() + " ago"
	}
	for _, why := range slices.Concat(f.Problems, []string{f.Error}) {
		if why != "" {
			text += "; " + why
		}
	}
	return text
}

// writeServer adds lines about an API server with a label to the table of a status; none for nil.
func writeServer(t io.Writer, label string, k *source.State, now time.Time) {
	if k == nil {
		return
	}
	reached := "reached for " + age(k.Since, now).String()
	if !k.Reachable {
		reached = "not reached for " + age(k.Since, now).String()
	}
	fmt.Fprintf(t, "%s\t%s, %s\n", label, k.Server, reached)
	if k.Error != "" {
		fmt.Fprintf(t, "\t%s\n", oneLine(k.Error))
	}
	switch {
	case !k.Restored.IsZero():
		fmt.Fprintf(t, "\tserves what was known %s ago\n", age(k.Restored, now))
	case k.Synced.IsZero():
		fmt.Fprint(t, "\tobjects not read yet\n")
	default:
		problems := ""
		if n := len(k.Problems); n > 0 {
			problems = ", " + counted(n, "problem", "problems")
		}
		fmt.Fprintf(t, "\t%s, read %s ago%s\n", counted(k.Objects, "object", "objects"), age(k.Synced, now), problems)
	}
	for _, p := range k.Problems {
		fmt.Fprintf(t, "\t%s\n", p)
	}
}

// String is the state, and why the last probe failed.
func (h Health) String() string {
	if h.Reason == "" {
		return string(h.State)
	}
	return fmt.Sprintf("%s: %s", h.State, oneLine(h.Reason))
}

func one(holds bool) int32 {
	if holds {
		return 1
	}
	return 0
}

// human writes a number with three digits and a decimal prefix: 0, 999, 1.23k,
// 45.6M. A rate that is not 0 is never shown as 0.
func human(v float64) string {
	switch {
	case v <= 0:
		return "0"
	case v < 1:
		return "<1"
	}
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	i := 0
	for v >= 999.5 && i < len(prefixes)-1 {
		v /= 1000
		i++
	}
	decimals := 0
	switch {
	case i == 0 || v >= 99.95:
	case v >= 9.995:
		decimals = 1
	default:
		decimals = 2
	}
	return strconv.FormatFloat(v, 'f', decimals, 64) + prefixes[i]
}

// counted writes how many there are: "1 flow", "2 flows".
func counted[N int | int32 | uint32 | uint64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// bits writes a rate of bytes as one of bits, which is how links are measured.
func bits(bytesPerSecond float64) string { return human(8 * bytesPerSecond) }

// percent writes a share with one decimal.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
