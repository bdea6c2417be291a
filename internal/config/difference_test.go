// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/lb"
)

// An update has only new and changed services, and the VIPs of removed services.
func TestUpdateHasDifference(t *testing.T) {
	service := func(name, address string) string {
		return fmt.Sprintf("  - {name: %s, address: %s, port: 80, forward: l2dsr, backends: []}\n", name, address)
	}
	parse := func(services ...string) *config.Config {
		t.Helper()
		c, err := config.Parse("f", "node: {name: lb1, interfaces: [eth0]}\nservices:\n"+strings.Join(services, ""), limits())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b, c := service("a", "10.1.1.1"), service("b", "10.1.1.2"), service("c", "10.1.1.3")
	applied := parse(a, b, c)
	for name, one := range map[string]struct {
		services []string
		want     string
	}{
		"same":      {[]string{a, b, c}, "[] []"},
		"reordered": {[]string{c, a, b}, "[] []"},
		"renamed":   {[]string{a, service("x", "10.1.1.2"), c}, "[x] []"},
		"new":       {[]string{service("x", "10.1.1.9"), a, b, c}, "[x] []"},
		"moved":     {[]string{a, b, service("c", "10.1.1.9")}, "[c] [tcp 10.1.1.3:80]"},
		"removed":   {[]string{a, c}, "[] [tcp 10.1.1.2:80]"},
	} {
		u := parse(one.services...).Update(applied)
		names := []string{}
		for i := range u.Changed {
			names = append(names, u.Changed[i].Name)
		}
		if have := fmt.Sprintf("%v %v", names, u.Removed); have != one.want || u.Whole {
			t.Errorf("%s: %s, whole %v; want %s", name, have, u.Whole, one.want)
		}
	}
	if u := applied.Update(nil); !u.Whole || !slices.EqualFunc(u.Changed, applied.Services, func(a, b lb.Service) bool { return a.Equal(&b) }) {
		t.Errorf("the first update is %+v", u)
	}
}
