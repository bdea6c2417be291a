// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

// secondVIP is the host route to the second service of table 6.2 (c).
func secondVIP(f family) netip.Prefix {
	if f == ipv4 {
		return netip.MustParsePrefix("10.1.2.1/32")
	}
	return netip.MustParsePrefix("fd00:10:1:2::1/128")
}

// tableCase is one part of table 6.2: the balancers that serve the first service and
// the second.
type tableCase struct {
	name          string
	first, second []int
}

// tableCases are in the order of the table. One more balancer is drained throughout.
func tableCases() []tableCase {
	return []tableCase{
		{"a", []int{1}, nil},
		{"b", []int{0, 1, 2}, nil},
		{"c", []int{0, 1, 2}, []int{1, 2}},
	}
}

// measureTables checks the router's tables in all cases of table 6.2.
func (t *testbed) measureTables(ctx context.Context) error {
	wrong, checked := map[family]int{}, 0
	for _, c := range tableCases() {
		if err := t.enter(ctx, c); err != nil {
			return fmt.Errorf("table 6.2 (%s): %w", c.name, err)
		}
		tables := map[netip.Prefix]netlab.Hops{}
		for _, f := range families() {
			tables[t.vips[f]] = t.hops(f, c.first)
			if c.second != nil {
				tables[secondVIP(f)] = t.hops(f, c.second)
			}
		}
		if err := t.await(ctx, tables); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			t.config.Log("table 6.2 (%s) is wrong: %v", c.name, err)
		}
		for prefix, want := range tables {
			if checked++; !slices.Equal(t.routes.Hops(prefix), want) {
				wrong[familyOf(prefix.Addr())]++
			}
		}
		t.config.Log("%s: table 6.2 (%s): %s", t.setting, c.name, t.tableText())
	}
	if err := errors.Join(t.offerSecond(ctx, nil), t.restore(ctx)); err != nil {
		return err
	}
	for _, f := range families() {
		t.report.Add("tables_wrong", "tables", bench.Runs{float64(wrong[f])}, t.setting.labels(f))
	}
	t.report.Judge(fmt.Sprintf("%s: wrong of the %d tables 6.2 (a) to (c)", t.setting, checked),
		"dissertation, table 6.2", bench.AtMost(0), float64(wrong[ipv4]+wrong[ipv6]))
	return nil
}

// enter makes exactly the balancers of a case serve.
func (t *testbed) enter(ctx context.Context, c tableCase) error {
	var out, in []int
	for n, state := range t.fleet {
		switch wanted := slices.Contains(c.first, n); {
		case wanted && state == drained:
			in = append(in, n)
		case !wanted && state == serving:
			out = append(out, n)
		}
	}
	if err := t.apply(ctx, change{undrain, in}); err != nil {
		return err
	}
	if err := t.apply(ctx, change{drain, out}); err != nil {
		return err
	}
	return t.offerSecond(ctx, c.second)
}

// tableText is the router's table as text.
func (t *testbed) tableText() string {
	var lines []string
	for _, f := range families() {
		for _, prefix := range []netip.Prefix{t.vips[f], secondVIP(f)} {
			if hops := t.routes.Hops(prefix); len(hops) > 0 {
				lines = append(lines, fmt.Sprintf("%s %s", prefix, hops))
			}
		}
	}
	return strings.Join(lines, "; ")
}

// offerSecond configures the second service on exactly these balancers: the first
// one's TCP services at another address.
func (t *testbed) offerSecond(ctx context.Context, offering []int) error {
	both := slices.Clone(t.topology.Services)
	for _, service := range t.topology.Services {
		if service.Protocol == lb.TCP {
			service.Name = "second-" + service.Name
			service.Address = secondVIP(familyOf(service.Address)).Addr()
			both = append(both, service)
		}
	}
	lab := t.State()
	for n, name := range t.names {
		services := t.topology.Services
		if slices.Contains(offering, n) {
			services = both
		}
		if err := lab.Host(name).Configure(ctx, t.topology.Host(name).Agent.With(services)); err != nil {
			return err
		}
	}
	return nil
}
