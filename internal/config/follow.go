// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// readFollow reads where the backends of a service are followed.
func readFollow(v value, f *source.Follow) {
	kind := ""
	v.readFields(
		optional("service", &f.Service, checked(text, checkServiceName)),
		optional("port", &f.Port, portOrName),
		optional("dns", &f.DNS, checked(text, lb.CheckDNSName)),
		optional("type", &kind, oneOf("srv", "a")),
	)
	given := func(field string) bool { return v.at(field).node != v.node || v.failedAny(field) }
	missing := func(field, want string) { v.fail(position(v.node), v.pathOf(field), errors.New("missing: want "+want)) }
	switch {
	case given("service") == given("dns"):
		v.failf("want a list, or either service or dns, where they are followed")
	case given("service") && given("type"):
		v.at("type").failf("only with dns")
	case given("service") && !given("port"):
		missing("port", "the name or the number of a port of the Service's endpoints")
	case given("dns") && !given("type"):
		missing("type", "srv or a")
	case given("dns") && kind == "srv" && given("port"):
		v.at("port").failf("not with type srv: the records have ports")
	case given("dns") && given("port") && !v.failedAny("port"):
		number[uint16](1, math.MaxUint16)(v.at("port"), &f.Number)
	}
	f.SRV = kind == "srv"
}

// checkFollow rejects services whose backends need more than addresses and ports.
func checkFollow(v value, f *source.Follow, s *lb.Service) {
	backends := v.at("backends")
	switch {
	case s.Forward.Overlay() != lb.SegmentUnset:
		backends.failf("want a list: with %s each backend needs a tunnelEnd and a mac", s.Forward)
	case s.FirewallMark != 0:
		backends.failf("want a list: not with firewallMark")
	case f.Number != 0 && f.Number != s.Port && s.Forward != 0 && !s.Forward.Translates():
		v.at("backends.port").failf("%d differs from the service's port %d, which %s doesn't translate", f.Number, s.Port, s.Forward)
	}
}

// portOrName reads a port's number, or its name.
func portOrName(v value, to *string) {
	if _, ok := v.node.(*ast.IntegerNode); ok {
		var n uint16
		number[uint16](1, math.MaxUint16)(v, &n)
		*to = strconv.Itoa(int(n))
		return
	}
	text(v, to)
}

func checkServiceName(name string) error {
	if bad := validation.IsDNS1123Label(name); bad != nil {
		return errors.New("bad name of a Service: " + strings.Join(bad, "; "))
	}
	return nil
}
