// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/ipvs"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/health"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/golden"
)

const parityHead = `# Data planes

What services may have on each data plane. A service that has something else is refused, with the field and its value.
With [` + "`kind: auto`" + `](configuration.md#kinds) each service is on the first data plane that can serve it. This page is
generated from the ` + "`Limits`" + ` of both: ` + "`go test -run TestParity -update ./test/dataplane`" + `.

`

// capabilityText explains capabilities whose name isn't a field with a value.
var capabilityText = map[dataplane.Capability]string{
	dataplane.Ring: "all nodes choose the same backend for a flow",
	"tracking":     "`tracking: full`",
	"unavailable":  "`unavailable: reject`",
	"membership":   "nodes that are balancers and backends (Kubernetes)",
	"mac":          "`mac` of a backend, without tunnel",
}

// describe is a capability in words.
func describe(c dataplane.Capability) string {
	if text := capabilityText[c]; text != "" {
		return text
	}
	field, value, has := strings.Cut(string(c), " ")
	if mode, other := strings.CutPrefix(string(c), "other family "); other {
		return "backends of the other IP family with `" + mode + "`"
	}
	if !has {
		return "`" + field + "`"
	}
	return "`" + field + ": " + value + "`"
}

// The page about data planes lists their Limits, in the order of the fields of a service.
func TestParity(t *testing.T) {
	planes := []struct {
		limits dataplane.Limits
		plane  any
	}{{xdp.Limits(), (*xdp.Plane)(nil)}, {ipvs.Limits(), (*ipvs.Plane)(nil)}}
	everything := dataplanetest.Limits().Capabilities()
	var page strings.Builder
	page.WriteString(parityHead)
	row := func(name string, has func(i int) string) {
		fmt.Fprintf(&page, "| %s |", name)
		for i := range planes {
			fmt.Fprintf(&page, " %s |", has(i))
		}
		page.WriteString("\n")
	}
	row("a service with", func(i int) string { return "`" + planes[i].limits.Kind + "`" })
	row("---", func(int) string { return "---" })
	for _, c := range everything {
		row(describe(c), func(i int) string { return yes(slices.Contains(planes[i].limits.Capabilities(), c)) })
	}
	row("backends of a service, at most", func(i int) string { return fmt.Sprint(planes[i].limits.MaxBackends) })
	for _, ability := range []struct {
		text string
		has  func(any) bool
	}{
		{"`fairlead trace`", is[dataplane.Tracer]},
		{"`fairlead flows`", is[dataplane.FlowLister]},
		{"health checks along the path of clients' packets", is[health.Paths]},
		{"passive health checks", is[dataplane.RefusalReporter]},
		{"unused addresses of announced aggregates get no packets", is[dataplane.Discarder]},
	} {
		row(ability.text, func(i int) string { return yes(ability.has(planes[i].plane)) })
	}
	for _, p := range planes {
		for _, c := range p.limits.Capabilities() {
			if !slices.Contains(everything, c) {
				t.Errorf("%s has %q, which the fake data plane lacks", p.limits.Kind, c)
			}
		}
	}
	golden.File(t, "../../docs/reference/dataplanes.md", page.String())
}

func is[T any](plane any) bool {
	_, is := plane.(T)
	return is
}

func yes(has bool) string {
	if has {
		return "yes"
	}
	return "no"
}

// Each capability has a test in the contract suite, or else no data plane is tested for it.
func TestCapabilitiesAreTested(t *testing.T) {
	for _, limits := range []dataplane.Limits{xdp.Limits(), ipvs.Limits(), dataplanetest.Limits()} {
		if missing := dataplanetest.Missing(limits.Capabilities()); len(missing) > 0 {
			t.Errorf("%s: no contract test is for %q", limits.Kind, missing)
		}
	}
	if missing := dataplanetest.Missing([]dataplane.Capability{"wings"}); len(missing) != 1 {
		t.Errorf("an unknown capability has a test")
	}
}
