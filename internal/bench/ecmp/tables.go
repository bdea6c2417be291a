// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/bench/ecmp/fib"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab/operator"
)

// secondVIP is the host route to the second service of table 6.2 (c).
func secondVIP(f family) netip.Prefix {
	if f == ipv4 {
		return netip.MustParsePrefix("10.1.2.1/32")
	}
	return netip.MustParsePrefix("fd00:10:1:2::1/128")
}

// stage is one part of table 6.2: who serves the first service and who the
// second.
type stage struct {
	name          string
	first, second []int
}

// stages are those of table 6.2, in its order. One more balancer is drained
// throughout.
func stages() []stage {
	return []stage{
		{"a", []int{1}, nil},
		{"b", []int{0, 1, 2}, nil},
		{"c", []int{0, 1, 2}, []int{1, 2}},
	}
}

// runTables checks the router's tables in the stages of table 6.2.
func (s *site) runTables(ctx context.Context, cfg *Config, how Setting, report *bench.Report) error {
	wrong, checked := map[family]int{}, 0
	for _, stage := range stages() {
		if err := s.enter(ctx, stage); err != nil {
			return fmt.Errorf("table 6.2 (%s): %w", stage.name, err)
		}
		tables := s.stageTables(stage)
		if err := s.await(ctx, tables); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			cfg.progress("table 6.2 (%s) is wrong: %v", stage.name, err)
		}
		for prefix, want := range tables {
			if checked++; !s.routes.Hops(prefix).Equal(want) {
				wrong[familyOf(prefix.Addr())]++
			}
		}
		cfg.progress("%s: table 6.2 (%s): %s", how, stage.name, s.tableText())
	}
	if err := errors.Join(s.offerSecond(ctx, nil), s.restore(ctx)); err != nil {
		return err
	}
	for _, f := range families() {
		report.Add("tables_wrong", "tables", bench.Runs{float64(wrong[f])}, how.labels("family", string(f)))
	}
	report.Judge(fmt.Sprintf("%s: wrong of the %d tables 6.2 (a) to (c)", how, checked),
		"dissertation, table 6.2", bench.AtMost(0), float64(wrong[ipv4]+wrong[ipv6]))
	return nil
}

// enter has those balancers serve that do in the stage.
func (s *site) enter(ctx context.Context, stage stage) error {
	var out, in []int
	for n, standing := range s.fleet {
		switch wanted := slices.Contains(stage.first, n); {
		case wanted && standing == drained:
			in = append(in, n)
		case !wanted && standing == serving:
			out = append(out, n)
		}
	}
	if err := s.make(ctx, change{undrain, in}); err != nil {
		return err
	}
	if err := s.make(ctx, change{drain, out}); err != nil {
		return err
	}
	return s.offerSecond(ctx, stage.second)
}

// stageTables are the right tables in the stage.
func (s *site) stageTables(stage stage) map[netip.Prefix]fib.Hops {
	tables := map[netip.Prefix]fib.Hops{}
	for _, f := range families() {
		tables[s.vips[f]] = s.hops(f, stage.first)
		if stage.second != nil {
			tables[secondVIP(f)] = s.hops(f, stage.second)
		}
	}
	return tables
}

// tableText is the router's table, for people.
func (s *site) tableText() string {
	var lines []string
	for _, f := range families() {
		for _, prefix := range []netip.Prefix{s.vips[f], secondVIP(f)} {
			if hops := s.routes.Hops(prefix); len(hops) > 0 {
				lines = append(lines, fmt.Sprintf("%s %s", prefix, hops))
			}
		}
	}
	return strings.Join(lines, "; ")
}

// offerSecond gives some balancers the second service and takes it from the
// others.
func (s *site) offerSecond(ctx context.Context, offering []int) error {
	state := s.State()
	for n, name := range s.names {
		services := s.topology.Services
		if slices.Contains(offering, n) {
			services = append(slices.Clone(services), s.secondServices()...)
		}
		if err := operator.Configure(ctx, state.Host(name), s.topology.Host(name).Agent.With(services)); err != nil {
			return err
		}
	}
	return nil
}

// secondServices are the first ones for HTTP at another address.
func (s *site) secondServices() []lb.Service {
	var services []lb.Service
	for _, service := range s.topology.Services {
		if service.Protocol == lb.TCP && service.Port == webPort {
			service.Name = "second-" + service.Name
			service.Address = secondVIP(familyOf(service.Address)).Addr()
			services = append(services, service)
		}
	}
	return services
}
