// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
)

// unselective is the API server's error for an invalid selector.
const unselective = "want the operators In and NotIn with values"

func addressPools() *samples {
	const (
		notCIDR      = "spec.addresses[0]: want a CIDR of unicast addresses"
		notRange     = "spec.addresses[0]: want a range of unicast addresses"
		notCommunity = "spec.announce.communities[0]: want two numbers up to 65535"
	)
	return &samples{
		kind:    "AddressPool",
		minimal: `{addresses: [192.0.2.0/24]}`,
		full: `
addresses: [192.0.2.0/24, "2001:db8::10-2001:db8::1f"]
autoAssign: false
priority: -10
retainFor: 720h0m0s
skipZeroAnd255: true
external: true
namespaceSelector: {matchLabels: {team: a}}
serviceSelector: {matchExpressions: [{key: tier, operator: In, values: [front]}, {key: old, operator: DoesNotExist}]}
announce: {aggregate: true, communities: ["65000:100", "4294967295:0:1"], localPreference: 4294967295, med: 0, prepend: 16}
`,
		accepted: map[string]accepted{
			"minimal": {``, `{autoAssign: true}`},
			"all forms": {`{addresses: [192.0.2.1/32, 192.0.2.10-192.0.2.20, 198.51.100.7-198.51.100.7, 10.0.0.0-10.255.255.255,
				169.254.1.0/24, "2001:db8::/32", "2001:db8::-2001:db8::ffff:ffff:ffff:ffff", "fe80::1/128", "64:ff9b::/96"]}`, `{autoAssign: true}`},
			"as many as may be":   {`{addresses: [` + numbered(64, "10.0.%d.0/24") + `]}`, `{autoAssign: true}`},
			"lowest communities":  {`{announce: {communities: ["0:0", "65535:65535", "65535:0:0"], localPreference: 0, prepend: 0}}`, `{autoAssign: true}`},
			"as many communities": {`{announce: {communities: [` + numbered(32, `"65000:%d"`) + `], med: 4294967295}}`, `{autoAssign: true}`},
			"no time":             {`{retainFor: 0s}`, `{autoAssign: true}`},
			"external":            {`{external: true, namespaceSelector: {}}`, `{autoAssign: true}`},
			"not external":        {`{external: false}`, `{autoAssign: true}`},
			"longest time":        {`{retainFor: 720h}`, `{autoAssign: true}`},
			"selectors of all":    {`{namespaceSelector: {}, serviceSelector: {matchExpressions: [{key: a, operator: Exists, values: []}]}}`, `{autoAssign: true}`},
		},
		refused: map[string]refusal{
			"no addresses":      {`{addresses: null}`, "spec.addresses: Required value"},
			"empty addresses":   {`{addresses: []}`, "spec.addresses: should have at least 1 items"},
			"many addresses":    {`{addresses: [` + numbered(65, "10.0.%d.0/24") + `]}`, "spec.addresses: must have at most 64 items"},
			"twice":             {`{addresses: [192.0.2.0/24, 192.0.2.0/24]}`, "spec.addresses[1]: Duplicate value"},
			"a long one":        {`{addresses: ["` + strings.Repeat("1", 80) + `"]}`, "spec.addresses[0]: may not be more than 79 bytes"},
			"a word":            {`{addresses: [all]}`, notCIDR},
			"a bare address":    {`{addresses: [192.0.2.1]}`, notCIDR},
			"bits behind":       {`{addresses: [192.0.2.1/24]}`, notCIDR},
			"not canonical":     {`{addresses: ["2001:DB8::/32"]}`, notCIDR},
			"everything":        {`{addresses: [0.0.0.0/0]}`, notCIDR},
			"everything of v6":  {`{addresses: ["::/0"]}`, notCIDR},
			"this network":      {`{addresses: [0.0.0.0/32]}`, notCIDR},
			"loopback":          {`{addresses: [127.0.1.0/24]}`, notCIDR},
			"around loopback":   {`{addresses: [126.0.0.0/7]}`, notCIDR},
			"multicast":         {`{addresses: [239.0.0.0/8]}`, notCIDR},
			"broadcast":         {`{addresses: [255.255.255.0/24]}`, notCIDR},
			"loopback of v6":    {`{addresses: ["::1/128"]}`, notCIDR},
			"multicast of v6":   {`{addresses: ["ff02::/16"]}`, notCIDR},
			"mapped":            {`{addresses: ["::ffff:192.0.2.0/120"]}`, notCIDR},
			"around mapped":     {`{addresses: ["::fff0:0:0/92"]}`, notCIDR},
			"three ends":        {`{addresses: [192.0.2.1-192.0.2.2-192.0.2.3]}`, notRange},
			"no end":            {`{addresses: [192.0.2.1-]}`, notRange},
			"two families":      {`{addresses: ["192.0.2.1-2001:db8::1"]}`, notRange},
			"far ends":          {`{addresses: [192.0.2.1-193.0.2.2]}`, notRange},
			"far ends of v6":    {`{addresses: ["2001:db8::1-2001:db8:0:1::1"]}`, notRange},
			"ends with spaces":  {`{addresses: [192.0.2.1 - 192.0.2.2]}`, notRange},
			"ends with a zone":  {`{addresses: ["fe80::1%eth0-fe80::2%eth0"]}`, notRange},
			"end not canonical": {`{addresses: ["2001:db8::1-2001:DB8::2"]}`, notRange},
			"to broadcast":      {`{addresses: [255.255.255.1-255.255.255.255]}`, notRange},
			"from nothing":      {`{addresses: ["::-::ff"]}`, notRange},
			"mapped ends":       {`{addresses: ["::ffff:10.0.0.1-::ffff:10.0.0.2"]}`, notRange},
			"priority":          {`{priority: 2147483648}`, "<nil>: of type integer with format int32 in spec.priority"},
			"namespaces":        {`{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}`, "spec.namespaceSelector: " + unselective},
			"services":          {`{serviceSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}`, "spec.serviceSelector: " + unselective},
			"external to all":   {`{external: true}`, "spec.namespaceSelector: an external pool needs one"},
			"negative time":     {`{retainFor: -1s}`, "spec.retainFor: want 0s to 720h"},
			"long time":         {`{retainFor: 721h}`, "spec.retainFor: want 0s to 720h"},
			"no duration":       {`{retainFor: 1d}`, "spec.retainFor"},
			"community of one":  {`{announce: {communities: ["65000"]}}`, notCommunity},
			"community of four": {`{announce: {communities: ["1:1:1:1"]}}`, notCommunity},
			"great community":   {`{announce: {communities: ["65536:1"]}}`, notCommunity},
			"greater community": {`{announce: {communities: ["1:1:4294967296"]}}`, notCommunity},
			"graceful shutdown": {`{announce: {communities: ["65535:0"]}}`, notCommunity},
			"leading zeros":     {`{announce: {communities: ["1:01"]}}`, notCommunity},
			"community twice":   {`{announce: {communities: ["1:1", "1:1"]}}`, "spec.announce.communities[1]: Duplicate value"},
			"many communities":  {`{announce: {communities: [` + numbered(33, `"65000:%d"`) + `]}}`, "spec.announce.communities: must have at most 32 items"},
			"long community":    {`{announce: {communities: ["` + strings.Repeat("1", 33) + `"]}}`, "spec.announce.communities[0]: may not be more than 32 bytes"},
			"low preference":    {`{announce: {localPreference: -1}}`, "spec.announce.localPreference: greater than or equal to 0"},
			"high preference":   {`{announce: {localPreference: 4294967296}}`, "spec.announce.localPreference: less than or equal to 4294967295"},
			"low med":           {`{announce: {med: -1}}`, "spec.announce.med: greater than or equal to 0"},
			"high med":          {`{announce: {med: 4294967296}}`, "spec.announce.med: less than or equal to 4294967295"},
			"low prepend":       {`{announce: {prepend: -1}}`, "spec.announce.prepend: greater than or equal to 0"},
			"high prepend":      {`{announce: {prepend: 17}}`, "spec.announce.prepend: less than or equal to 16"},
		},
	}
}

// numbered lists n texts that have each another number from 0 on.
func numbered(n int, format string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(all, ", ")
}
