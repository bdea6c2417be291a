// SPDX-License-Identifier: Apache-2.0

package podroute

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Share has the prefixes that the balancer pods of a namespace may announce, and parts of them.
type Share struct {
	Namespace string
	// Prefixes are masked; at least one. No two namespaces have a common address.
	Prefixes []netip.Prefix
}

// ParseShares reads the shares of namespaces: "shop=10.1.0.0/24,fd00:10::/64" each.
func ParseShares(texts []string) (shares []Share, err error) {
	for _, text := range texts {
		share, wrong := parseShare(text)
		for i := range shares {
			other := &shares[i]
			if wrong == nil && other.Namespace == share.Namespace {
				wrong = fmt.Errorf("namespace %s is given twice", share.Namespace)
			}
			for _, p := range share.Prefixes {
				if j := slices.IndexFunc(other.Prefixes, p.Overlaps); wrong == nil && j >= 0 {
					wrong = fmt.Errorf("%s overlaps with %s of namespace %s", p, other.Prefixes[j], other.Namespace)
				}
			}
		}
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w", text, wrong))
			continue
		}
		shares = append(shares, share)
	}
	return shares, err
}

func parseShare(text string) (s Share, err error) {
	namespace, prefixes, found := strings.Cut(text, "=")
	if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 || !found {
		return s, errors.New("want NAMESPACE=PREFIX, with commas between prefixes")
	}
	s.Namespace = namespace
	s.Prefixes, err = parsePrefixes(prefixes)
	return s, err
}

// parsePrefixes reads prefixes with commas in between.
func parsePrefixes(text string) (prefixes []netip.Prefix, err error) {
	for text := range strings.SplitSeq(text, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if p.Bits() == 0 {
			return nil, fmt.Errorf("%s is the default route", p)
		}
		prefixes = append(prefixes, p.Masked())
	}
	return prefixes, nil
}

// allows reports whether all addresses of a prefix are in the share.
func (s *Share) allows(prefix netip.Prefix) bool {
	return slices.ContainsFunc(s.Prefixes, func(p netip.Prefix) bool { return p.Bits() <= prefix.Bits() && p.Contains(prefix.Addr()) })
}
