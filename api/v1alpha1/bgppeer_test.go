// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import "strings"

func bgpPeers() *samples {
	const notAddress = "spec.address: want a unicast address in canonical form that needs no zone"
	return &samples{
		kind:    "BGPPeer",
		minimal: `{address: 192.0.2.1, asn: 65000}`,
		full: `
address: 2001:db8::1
asn: 4294967294
nodeSelector: {matchLabels: {rack: r1}}
passive: true
passwordSecretRef: {name: bgp, key: tor}
multihop: 2
holdTime: 9s
restartTime: 2m0s
bfd: {enabled: true, interval: 50ms, multiplier: 5, multihop: false}
`,
		accepted: map[string]accepted{
			"minimal":           {``, ``},
			"empty parts":       {`{bfd: {}, passwordSecretRef: {name: bgp}}`, `{bfd: {enabled: true}, passwordSecretRef: {key: password}}`},
			"without bfd":       {`{bfd: {enabled: false}}`, ``},
			"lowest":            {`{asn: 1, port: 1, multihop: 2, holdTime: 3s, restartTime: 0s, bfd: {interval: 10ms, multiplier: 1}}`, `{bfd: {enabled: true}}`},
			"highest":           {`{asn: 4294967294, port: 65535, multihop: 255, holdTime: 65535s, restartTime: 1h8m15s, bfd: {interval: 1m, multiplier: 255}}`, `{bfd: {enabled: true}}`},
			"near":              {`{ttlSecurity: 1}`, ``},
			"far":               {`{ttlSecurity: 254}`, ``},
			"passive":           {`{passive: true}`, ``},
			"port, not passive": {`{passive: false, port: 179}`, ``},
			"on the node":       {`{address: 127.0.0.1}`, ``},
			"on the node (v6)":  {`{address: "::1"}`, ``},
			"link-local of v4":  {`{address: 169.254.0.1}`, ``},
		},
		refused: map[string]refusal{
			"no address":       {`{address: null}`, "spec.address: Required value"},
			"no asn":           {`{asn: null}`, "spec.asn: Required value"},
			"a name":           {`{address: router}`, notAddress},
			"not canonical":    {`{address: "2001:DB8::1"}`, notAddress},
			"mapped":           {`{address: "::ffff:192.0.2.1"}`, notAddress},
			"a zone":           {`{address: "fe80::1%eth0"}`, notAddress},
			"link-local":       {`{address: "fe80::1"}`, notAddress},
			"unspecified":      {`{address: 0.0.0.0}`, notAddress},
			"multicast":        {`{address: 224.0.0.1}`, notAddress},
			"broadcast":        {`{address: 255.255.255.255}`, notAddress},
			"a long address":   {`{address: "` + strings.Repeat("1", 40) + `"}`, "spec.address: may not be more than 39 bytes"},
			"low asn":          {`{asn: 0}`, "spec.asn: greater than or equal to 1"},
			"high asn":         {`{asn: 4294967295}`, "spec.asn: less than or equal to 4294967294"},
			"low port":         {`{port: 0}`, "spec.port: greater than or equal to 1"},
			"high port":        {`{port: 65536}`, "spec.port: less than or equal to 65535"},
			"port and passive": {`{port: 1179, passive: true}`, "spec.port: not with passive"},
			"nodes":            {`{nodeSelector: {matchExpressions: [{key: a, operator: Is, values: [b]}]}}`, "spec.nodeSelector: " + unselective},
			"no secret":        {`{passwordSecretRef: {key: a}}`, "spec.passwordSecretRef.name: Required value"},
			"empty secret":     {`{passwordSecretRef: {name: ""}}`, "spec.passwordSecretRef.name: at least 1 chars long"},
			"long secret":      {`{passwordSecretRef: {name: ` + strings.Repeat("a", 254) + `}}`, "spec.passwordSecretRef.name: may not be more than 253 bytes"},
			"long key":         {`{passwordSecretRef: {name: a, key: ` + strings.Repeat("a", 254) + `}}`, "spec.passwordSecretRef.key: may not be more than 253 bytes"},
			"bad key":          {`{passwordSecretRef: {name: a, key: a/b}}`, "spec.passwordSecretRef.key: should match"},
			"low multihop":     {`{multihop: 1}`, "spec.multihop: greater than or equal to 2"},
			"high multihop":    {`{multihop: 256}`, "spec.multihop: less than or equal to 255"},
			"low security":     {`{ttlSecurity: 0}`, "spec.ttlSecurity: greater than or equal to 1"},
			"high security":    {`{ttlSecurity: 255}`, "spec.ttlSecurity: less than or equal to 254"},
			"both":             {`{multihop: 2, ttlSecurity: 1}`, "spec.ttlSecurity: not with multihop"},
			"no time":          {`{holdTime: soon}`, "spec.holdTime: want whole seconds"},
			"days":             {`{holdTime: 1d}`, "spec.holdTime: want whole seconds"},
			"short hold":       {`{holdTime: 2s}`, "spec.holdTime: want whole seconds"},
			"long hold":        {`{holdTime: 65536s}`, "spec.holdTime: want whole seconds"},
			"split hold":       {`{holdTime: 3500ms}`, "spec.holdTime: want whole seconds"},
			"short restart":    {`{restartTime: -1s}`, "spec.restartTime: want whole seconds"},
			"long restart":     {`{restartTime: 4096s}`, "spec.restartTime: want whole seconds"},
			"split restart":    {`{restartTime: 1.5s}`, "spec.restartTime: want whole seconds"},
			"short interval":   {`{bfd: {interval: 9ms}}`, "spec.bfd.interval: want 10ms to 60s"},
			"long interval":    {`{bfd: {interval: 61s}}`, "spec.bfd.interval: want 10ms to 60s"},
			"low multiplier":   {`{bfd: {multiplier: 0}}`, "spec.bfd.multiplier: greater than or equal to 1"},
			"hops of bfd":      {`{bfd: {multihop: 2}}`, "spec.bfd.multihop: "},
			"high multiplier":  {`{bfd: {multiplier: 256}}`, "spec.bfd.multiplier: less than or equal to 255"},
		},
	}
}
