// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
)

func loadBalancers() *samples {
	k := &samples{
		kind: "LoadBalancer",
		minimal: `
forward: nat
listeners: [{name: web, port: 80, pool: web, protocol: TCP, enabled: true}]
pools: [{name: web, sessionAffinity: None}]
`,
		full: `
address: 192.168.1.1
addressPool: public
ipFamily: IPv4
segment: {type: vxlan, id: 5001}
forward: vxlan
firewallMark: 4294967295
listeners:
  - {name: web, port: 80, protocol: TCP, pool: web, sourceRanges: [192.0.2.0/24, "2001:db8::/32"], limits: {newFlows: 1, newFlowsPerSource: 10000000}, idleTimeout: 1h0m0s, unavailable: reject, enabled: true}
  - {name: dns, port: 53, protocol: UDP, pool: dns, quic: {configID: 6, serverIDLength: 15, nonceLength: 4}, enabled: false}
pools:
  - name: web
    sessionAffinity: ClientIP
    sessionAffinityTimeout: 3h0m0s
    minHealthy: 2
    scheduler: wlc
    maxConnections: 2147483647
    healthCheck: {type: https, port: 8443, method: HEAD, path: /, host: a.example, expectedCodes: "200-299,404", interval: 1s, timeout: 1s, rise: 3, fall: 3}
    members:
      - {address: 192.168.1.21, port: 80, monitorAddress: 10.0.2.21, monitorPort: 65535, weight: 256, serverID: "00112233445566778899aAbBcCdDeE", backup: true, enabled: false, maxConnections: 2147483647, mac: "02:00:00:00:00:21", segment: {type: vxlan, id: 5002}, tunnelEnd: 10.0.2.41}
      - {address: 192.168.1.21, port: 81, weight: 0, mac: "02:00:00:00:00:AB", tunnelEnd: "2001:db8::41"}
  - {name: dns, sessionAffinity: None}
`,
		accepted: map[string]accepted{
			"minimal":          {``, ``},
			"address only":     {`{listeners: null, pools: null}`, ``},
			"none":             {`{listeners: [], pools: []}`, ``},
			"empty pool":       {`{listeners: [{name: web, port: 80, protocol: TCP, enabled: true, pool: ""}]}`, ``},
			"listener only":    {`{listeners: [{name: web, port: 80, protocol: TCP, enabled: true}], pools: null}`, ``},
			"pool only":        {`{listeners: null, forward: ipip, address: 192.0.2.1}`, ``},
			"address, no pool": {`{listeners: null, pools: null, address: 192.0.2.1}`, ``},
			"overlay, no pool": {`{listeners: null, pools: null, forward: vxlan}`, ``},
			"bare": {`{listeners: [{name: web, port: 80, pool: a}], pools: [{name: a, members: [{address: 10.0.0.1, port: 80}]}]}`,
				`{listeners: [{name: web, port: 80, pool: a, protocol: TCP, enabled: true}], pools: [{name: a, sessionAffinity: None, members: [{address: 10.0.0.1, port: 80, weight: 1}]}]}`},
			"two protocols": {`{listeners: [{name: a, port: 53, protocol: TCP, pool: web, enabled: true}, {name: b, port: 53, protocol: UDP, pool: web, enabled: true}]}`, ``},
			"two families":  {member(`{address: "2001:db8::2", port: 80, weight: 1}`, `{address: 192.0.2.1, forward: ipip}`), ``},
			"vlan":          {`{address: "fd00::1", segment: {type: vlan, id: 4094}, ipFamily: IPv6}`, ``},
			"member's vlan": {member(`{address: 10.0.0.1, port: 80, weight: 1, segment: {type: vlan, id: 1}}`, `{forward: l2dsr}`), ``},
			"largest vni":   {`{forward: ipip, address: "fd00::1", segment: {type: geneve, id: 16777215}}`, ``},
			"overlay from outside": {member(`{address: 10.0.0.1, port: 80, weight: 1, mac: "02:00:00:00:00:01", tunnelEnd: 10.0.0.9, segment: {type: geneve, id: 1}}`,
				`{forward: geneve}`), ``},
			"pools of other modes": {`{forward: nat, address: 192.0.2.1, pools: [{name: web, sessionAffinity: None, forward: ipip, members: [{address: "2001:db8::2", port: 80, weight: 1}]},
				{name: b, sessionAffinity: None, forward: geneve, members: [{address: 10.0.0.1, port: 80, weight: 1, mac: "02:00:00:00:00:01", tunnelEnd: 10.0.0.9, segment: {type: geneve, id: 1}}]}]}`, ``},
			"shortest times": {`{listeners: [{name: web, port: 80, pool: web, protocol: TCP, enabled: true, idleTimeout: 1s, unavailable: drop}],
				pools: [{name: web, sessionAffinity: ClientIP, sessionAffinityTimeout: 1s, minHealthy: 1}]}`, ``},
			"longest times": {`{listeners: [{name: web, port: 80, pool: web, protocol: TCP, enabled: true, idleTimeout: 24h}],
				pools: [{name: web, sessionAffinity: ClientIP, sessionAffinityTimeout: 24h, minHealthy: 256}]}`, ``},
			"quic": {`{listeners: [{name: web, port: 443, protocol: UDP, pool: web, quic: {serverIDLength: 1, nonceLength: 18}, enabled: true}]}`, ``},
			"longest names": {fmt.Sprintf(`{addressPool: %s, listeners: [{name: %[2]s, port: 65535, pool: %[2]s, protocol: TCP, enabled: true}], pools: [{name: %[2]s, sessionAffinity: None}]}`,
				strings.Repeat("a", 253), strings.Repeat("b", 63)), ``},
		},
		refused: map[string]refusal{
			"no forward":        {`{forward: null}`, "spec.forward: Required value"},
			"forward":           {`{forward: dsr}`, "spec.forward: Unsupported value"},
			"family":            {`{ipFamily: IPv5}`, "spec.ipFamily: Unsupported value"},
			"other family":      {`{address: 192.0.2.1, ipFamily: IPv6}`, "spec.ipFamily: the address is of the other family"},
			"other family (v6)": {`{address: "2001:db8::1", ipFamily: IPv4}`, "spec.ipFamily: the address is of the other family"},
			"mark and mode":     {`{firewallMark: 1, pools: [{name: web, forward: nat}]}`, "spec.firewallMark: joined listeners have one forwarding mode"},
			"mark 0":            {`{firewallMark: 0}`, "spec.firewallMark: greater than or equal to 1"},
			"great mark":        {`{firewallMark: 4294967296}`, "spec.firewallMark: less than or equal to 4294967295"},
			"long pool":         {`{addressPool: ` + strings.Repeat("a", 254) + `}`, "spec.addressPool: may not be more than 253 bytes"},

			"segment without type": {`{segment: {id: 1}}`, "spec.segment.type: Required value"},
			"segment without id":   {`{segment: {type: vlan}}`, "spec.segment.id: Required value"},
			"segment type":         {`{segment: {type: gre, id: 1}}`, "spec.segment.type: Unsupported value"},
			"segment 0":            {`{segment: {type: vlan, id: 0}}`, "spec.segment.id: greater than or equal to 1"},
			"vlan 4095":            {`{segment: {type: vlan, id: 4095}}`, "spec.segment.id: a VLAN id is 1 to 4094"},
			"great vni":            {`{segment: {type: vxlan, id: 16777216}}`, "spec.segment.id: less than or equal to 16777215"},
			"any in a segment":     {`{forward: ipip, segment: {type: vlan, id: 1}}`, "spec.address: an address in a segment has to be given"},
			"nat in a segment":     {`{address: 192.0.2.1, segment: {type: vxlan, id: 1}}`, "spec.segment: nat serves no clients"},
			"a pool of nat in one": {`{address: 192.0.2.1, forward: ipip, segment: {type: vxlan, id: 1}, pools: [{name: web, forward: nat}]}`, "spec.segment: nat serves no clients"},
		},
	}
	k.refused["listener of no pools"] = refusal{`{pools: null}`, "spec.listeners: a listener's pool is missing in pools"}
	addAddresses(k)
	addListeners(k)
	addPools(k)
	addMembers(k)
	addLimits(k, `{listeners: [{name: web, port: 80, pool: web, limits: %s}]}`, "spec.listeners[0].limits")
	addHealthChecks(k, `{pools: [{name: web, sessionAffinity: None, healthCheck: %s}]}`, "spec.pools[0].healthCheck", ``)
	return k
}

// addAddresses adds values that are not addresses to all fields of addresses.
func addAddresses(k *samples) {
	for name, address := range map[string]string{
		"name": "web.example.com", "not canonical": "2001:DB8::1", "mapped": "::ffff:192.0.2.1", "zone": "fe80::1%eth0", "unspecified": "0.0.0.0",
		"loopback": "127.0.0.1", "multicast": "ff02::1", "broadcast": "255.255.255.255", "CIDR": "192.0.2.1/32",
	} {
		for field, format := range map[string]string{
			"spec.address":                            `{address: "%s"}`,
			"spec.pools[0].members[0].address":        `{pools: [{name: web, members: [{address: "%s", port: 80}]}]}`,
			"spec.pools[0].members[0].monitorAddress": `{pools: [{name: web, members: [{address: 10.0.0.1, port: 80, monitorAddress: "%s"}]}]}`,
			"spec.pools[0].members[0].tunnelEnd":      `{pools: [{name: web, members: [{address: 10.0.0.1, port: 80, tunnelEnd: "%s"}]}]}`,
		} {
			k.refused[field+" "+name] = refusal{fmt.Sprintf(format, address), field + ": want a unicast address in canonical form"}
			k.refused[field+" long"] = refusal{fmt.Sprintf(format, strings.Repeat("1", 40)), field + ": may not be more than 39 bytes"}
		}
	}
}

// addListeners adds listeners that are refused: the minimal one with changes.
func addListeners(k *samples) {
	for name, c := range map[string]struct{ listeners, want string }{
		"many":         {`[` + numbered(65, `{name: l%[1]d, port: 1%[1]d, pool: web}`) + `]`, ": must have at most 64 items"},
		"same name":    {`[{name: a, port: 1, pool: web}, {name: a, port: 2, pool: web}]`, "[1]: Duplicate value"},
		"same port":    {`[{name: a, port: 1, pool: web}, {name: b, port: 1, pool: web}]`, ": two listeners have the same port and protocol"},
		"unknown pool": {`[{name: a, port: 1, pool: db}]`, ": a listener's pool is missing in pools"},
		"no name":      {`[{port: 1, pool: web}]`, "[0].name: Required value"},
		"no port":      {`[{name: a, pool: web}]`, "[0].port: Required value"},
		"empty name":   {`[{name: "", port: 1, pool: web}]`, "[0].name: at least 1 chars long"},
		"long name":    {`[{name: ` + strings.Repeat("a", 64) + `, port: 1, pool: web}]`, "[0].name: may not be more than 63 bytes"},
		"bad name":     {`[{name: A, port: 1, pool: web}]`, "[0].name: should match"},
		"long pool":    {`[{name: a, port: 1, pool: ` + strings.Repeat("a", 64) + `}]`, "[0].pool: may not be more than 63 bytes"},
		"low port":     {`[{name: a, port: 0, pool: web}]`, "[0].port: greater than or equal to 1"},
		"high port":    {`[{name: a, port: 65536, pool: web}]`, "[0].port: less than or equal to 65535"},
		"protocol":     {`[{name: a, port: 1, pool: web, protocol: SCTP}]`, "[0].protocol: Unsupported value"},
		"quic of TCP":  {`[{name: a, port: 1, pool: web, quic: {serverIDLength: 1, nonceLength: 4}}]`, "[0].quic: QUIC runs over UDP"},
		"quic config":  {quic(`configID: 7, serverIDLength: 1, nonceLength: 4`), "[0].quic.configID: less than or equal to 6"},
		"no config":    {quic(`configID: -1, serverIDLength: 1, nonceLength: 4`), "[0].quic.configID: greater than or equal to 0"},
		"no server ID": {quic(`nonceLength: 4`), "[0].quic.serverIDLength: Required value"},
		"no nonce":     {quic(`serverIDLength: 1`), "[0].quic.nonceLength: Required value"},
		"short ID":     {quic(`serverIDLength: 0, nonceLength: 4`), "[0].quic.serverIDLength: greater than or equal to 1"},
		"long ID":      {quic(`serverIDLength: 16, nonceLength: 4`), "[0].quic.serverIDLength: less than or equal to 15"},
		"short nonce":  {quic(`serverIDLength: 1, nonceLength: 3`), "[0].quic.nonceLength: greater than or equal to 4"},
		"long nonce":   {quic(`serverIDLength: 1, nonceLength: 19`), "[0].quic.nonceLength: less than or equal to 18"},
		"long both":    {quic(`serverIDLength: 15, nonceLength: 5`), "[0].quic.nonceLength: server ID and nonce have at most 19 bytes"},
		"short idle":   {`[{name: a, port: 1, pool: web, idleTimeout: 999ms}]`, "[0].idleTimeout: want 1s to 24h"},
		"long idle":    {`[{name: a, port: 1, pool: web, idleTimeout: 24h1s}]`, "[0].idleTimeout: want 1s to 24h"},
		"unavailable":  {`[{name: a, port: 1, pool: web, unavailable: Reject}]`, "[0].unavailable: Unsupported value"},
		"a source":     {`[{name: a, port: 1, pool: web, sourceRanges: [192.0.2.1]}]`, "[0].sourceRanges[0]: want a CIDR in canonical form"},
		"bits behind":  {`[{name: a, port: 1, pool: web, sourceRanges: [192.0.2.1/24]}]`, "[0].sourceRanges[0]: want a CIDR in canonical form"},
		"long source":  {`[{name: a, port: 1, pool: web, sourceRanges: ["` + strings.Repeat("1", 44) + `"]}]`, "[0].sourceRanges[0]: may not be more than 43 bytes"},
		"source twice": {`[{name: a, port: 1, pool: web, sourceRanges: [192.0.2.0/24, 192.0.2.0/24]}]`, "[0].sourceRanges[1]: Duplicate value"},
		"many sources": {`[{name: a, port: 1, pool: web, sourceRanges: [` + numbered(257, "10.%d.0.0/16") + `]}]`, "[0].sourceRanges: must have at most 256 items"},
	} {
		k.refused["listeners: "+name] = refusal{`{listeners: ` + c.listeners + `}`, "spec.listeners" + c.want}
	}
}

// quic is a listener with these fields of connection IDs.
func quic(fields string) string {
	return `[{name: a, port: 1, protocol: UDP, pool: web, quic: {` + fields + `}}]`
}

// addPools adds pools that are refused.
func addPools(k *samples) {
	for name, c := range map[string]struct{ pools, want string }{
		"many":      {`[{name: web}, ` + numbered(64, `{name: p%d}`) + `]`, ": must have at most 64 items"},
		"same name": {`[{name: web}, {name: web}]`, "[1]: Duplicate value"},
		"no name":   {`[{sessionAffinity: None}]`, "[0].name: Required value"},
		"no chars":  {`[{name: ""}]`, "[0].name: at least 1 chars long"},
		"long name": {`[{name: ` + strings.Repeat("a", 64) + `}]`, "[0].name: may not be more than 63 bytes"},
		"bad name":  {`[{name: a_b}]`, "[0].name: should match"},
		"affinity":  {`[{name: web, sessionAffinity: Cookie}]`, "[0].sessionAffinity: Unsupported value"},
		"scheduler": {`[{name: web, scheduler: mh}]`, "[0].scheduler: Unsupported value"},
		"forward":   {`[{name: web, forward: dsr}]`, "[0].forward: Unsupported value"},
		"forget":    {`[{name: web, sessionAffinity: ClientIP, sessionAffinityTimeout: 999ms}]`, "[0].sessionAffinityTimeout: want 1s to 24h"},
		"remember":  {`[{name: web, sessionAffinity: ClientIP, sessionAffinityTimeout: 24h1s}]`, "[0].sessionAffinityTimeout: want 1s to 24h"},
		"timeout":   {`[{name: web, sessionAffinityTimeout: 1h}]`, "[0].sessionAffinityTimeout: only with sessionAffinity ClientIP"},
		"no health": {`[{name: web, minHealthy: 0}]`, "[0].minHealthy: greater than or equal to 1"},
		"healthy":   {`[{name: web, minHealthy: 257}]`, "[0].minHealthy: less than or equal to 256"},
		"low max":   {`[{name: web, maxConnections: 0}]`, "[0].maxConnections: greater than or equal to 1"},
		"high max":  {`[{name: web, maxConnections: 2147483648}]`, "[0].maxConnections: less than or equal to 2147483647"},
	} {
		k.refused["pools: "+name] = refusal{`{pools: ` + c.pools + `}`, "spec.pools" + c.want}
	}
}

// member is a patch with one member in the pool, and the fields of another patch.
func member(text, patch string) string {
	return `{pools: [{name: web, sessionAffinity: None, members: [` + text + `]}], ` + strings.TrimPrefix(patch, "{")
}

// addMembers adds members that are refused by themselves or with other fields of the
// spec.
func addMembers(k *samples) {
	const good = `address: 10.0.0.1, port: 80`
	for name, c := range map[string]struct{ member, want string }{
		"no address":   {`port: 80`, ".members[0].address: Required value"},
		"no port":      {`address: 10.0.0.1`, ".members[0].port: Required value"},
		"low port":     {`address: 10.0.0.1, port: 0`, ".members[0].port: greater than or equal to 1"},
		"high port":    {`address: 10.0.0.1, port: 65536`, ".members[0].port: less than or equal to 65535"},
		"low monitor":  {good + `, monitorPort: 0`, ".members[0].monitorPort: greater than or equal to 1"},
		"high monitor": {good + `, monitorPort: 65536`, ".members[0].monitorPort: less than or equal to 65535"},
		"low weight":   {good + `, weight: -1`, ".members[0].weight: greater than or equal to 0"},
		"high weight":  {good + `, weight: 257`, ".members[0].weight: less than or equal to 256"},
		"low max":      {good + `, maxConnections: 0`, ".members[0].maxConnections: greater than or equal to 1"},
		"high max":     {good + `, maxConnections: 2147483648`, ".members[0].maxConnections: less than or equal to 2147483647"},
		"no server":    {good + `, serverID: ""`, ".members[0].serverID: should match"},
		"server":       {good + `, serverID: "0g"`, ".members[0].serverID: should match"},
		"long server":  {good + `, serverID: "` + strings.Repeat("00", 16) + `"`, ".members[0].serverID: may not be more than 30 bytes"},
		"mac":          {good + `, mac: "02:00:00:00:0g:01"`, ".members[0].mac: should match"},
		"long mac":     {good + `, mac: "02:00:00:00:00:01:02"`, ".members[0].mac: may not be more than 17 bytes"},
		"vlan":         {good + `, segment: {type: vlan, id: 4095}`, ".members[0].segment.id: a VLAN id is 1 to 4094"},
		"low id":       {good + `, segment: {type: vlan, id: 0}`, ".members[0].segment.id: greater than or equal to 1"},
		"high id":      {good + `, segment: {type: vxlan, id: 16777216}`, ".members[0].segment.id: less than or equal to 16777215"},
		"no id":        {good + `, segment: {type: vlan}`, ".members[0].segment.id: Required value"},
		"no type":      {good + `, segment: {id: 1}`, ".members[0].segment.type: Required value"},
		"type":         {good + `, segment: {type: mpls, id: 1}`, ".members[0].segment.type: Unsupported value"},
		"twice":        {good + `}, {` + good, ".members[1]: Duplicate value"},
	} {
		k.refused["members: "+name] = refusal{member("{"+c.member+"}", `{}`), "spec.pools[0]" + c.want}
	}
	k.refused["members: many"] = refusal{member(numbered(257, `{address: 10.0.0.1, port: 1%d}`), `{}`), "spec.pools[0].members: must have at most 256 items"}
	const behind = good + `, mac: "02:00:00:00:00:01", tunnelEnd: 10.0.0.9`
	for name, c := range map[string]struct{ member, patch, want string }{
		"the VIP":          {good, `{address: 10.0.0.1}`, "a member has the virtual address itself"},
		"of IPv6":          {`address: "2001:db8::1", port: 80`, `{address: 10.0.0.2}`, "nat translates within IPv4 or IPv6"},
		"without mac":      {good + `, tunnelEnd: 10.0.0.9, segment: {type: vxlan, id: 1}`, `{forward: vxlan}`, "need tunnelEnd and mac"},
		"without tunnel":   {good + `, mac: "02:00:00:00:00:01", segment: {type: geneve, id: 1}`, `{forward: geneve}`, "need tunnelEnd and mac"},
		"without segment":  {behind, `{forward: vxlan}`, "are in a segment of that type"},
		"in another":       {behind + `, segment: {type: geneve, id: 1}`, `{forward: vxlan}`, "are in a segment of that type"},
		"of another":       {behind, `{forward: geneve, address: 10.0.0.2, segment: {type: vxlan, id: 1}}`, "are in a segment of that type"},
		"a tunnel":         {behind, `{forward: gue}`, "only members behind vxlan and geneve"},
		"a tunnel segment": {good + `, segment: {type: vxlan, id: 1}`, `{forward: nat}`, "only members behind vxlan and geneve"},
	} {
		k.refused["members: "+name] = refusal{member("{"+c.member+"}", c.patch), "spec.pools: " + c.want}
	}
}
