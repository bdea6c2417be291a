// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
)

func loadBalancerGroups() *samples {
	k := &samples{
		kind:    "LoadBalancerGroup",
		minimal: `{nodeSelector: {}}`,
		full: `
size: 5
autoscaling: {maxSize: 8, perNode: {addresses: 100, bitsPerSecond: 5000000000, packetsPerSecond: 1000000}, scaleDownAfter: 15m0s}
nodeSelector: {matchLabels: {fairlead.io/balancer: "true"}}
services:
  selector: {matchLabels: {tier: front}}
  namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [b]}]}
  classes: [fairlead.io/internal, fairlead.io/a.b]
  maxPorts: 1000
  perNamespace: {services: 65535, backends: 1048576, sourcePrefixes: 131072, probes: 1048576}
loadBalancers:
  memberNetworks: [10.0.0.0/8, "fd00::/8"]
  clusterNetworks: [Node, Pod, Service, LinkLocal]
  memberMACs: true
  segments: [{type: vlan, first: 7, announce: [192.0.2.0/24, "2001:db8::/32"]}, {type: vxlan, first: 1, last: 16777215}]
  tunnelEnds: [192.0.2.0/24]
dataPlane:
  minHealthCheckInterval: 10ms
  firewallMarkMask: 4294967295
  ipvs: true
  forward: gue
  healthCheck: {type: http, port: 8080, host: a.example, expectedCodes: "200", path: /healthz, interval: 500ms, timeout: 100ms, rise: 1, fall: 100}
  limits: {newFlows: 10000000, newFlowsPerSource: 1}
`,
		accepted: map[string]accepted{
			"minimal":  {``, `{size: 3, dataPlane: {forward: dsr}}`},
			"smallest": {`{size: 1}`, `{dataPlane: {forward: dsr}}`},
			"largest": {`{size: 64, services: {classes: [` + numbered(16, "fairlead.io/class-%d") + `]}, dataPlane: {forward: l2dsr}}`,
				``},
			"autoscaling": {`{autoscaling: {maxSize: 4, perNode: {addresses: 1}, scaleDownAfter: 5m}}`, `{size: 3, dataPlane: {forward: dsr}}`},
			"most autoscaling": {`{size: 63, autoscaling: {maxSize: 64, perNode: {bitsPerSecond: 1, packetsPerSecond: 1}, scaleDownAfter: 24h}}`,
				`{dataPlane: {forward: dsr}}`},
			"check of a group": {`{dataPlane: {healthCheck: {type: tcp}}}`, `{size: 3, dataPlane: {forward: dsr}}`},
			"long class":       {`{services: {classes: [fairlead.io/` + strings.Repeat("a", 63) + `]}}`, `{size: 3, dataPlane: {forward: dsr}}`},
		},
		refused: map[string]refusal{
			"no nodes":       {`{nodeSelector: null}`, "spec.nodeSelector: Required value"},
			"bad nodes":      {`{nodeSelector: {matchExpressions: [{key: a, operator: NotIn, values: []}]}}`, "spec.nodeSelector: " + unselective},
			"low size":       {`{size: 0}`, "spec.size: greater than or equal to 1"},
			"high size":      {`{size: 65}`, "spec.size: less than or equal to 64"},
			"no maximum":     {`{autoscaling: {perNode: {addresses: 1}}}`, "spec.autoscaling.maxSize: Required value"},
			"low maximum":    {`{size: 1, autoscaling: {maxSize: 1, perNode: {addresses: 1}}}`, "spec.autoscaling.maxSize: greater than or equal to 2"},
			"high maximum":   {`{autoscaling: {maxSize: 65, perNode: {addresses: 1}}}`, "spec.autoscaling.maxSize: less than or equal to 64"},
			"maximum":        {`{autoscaling: {maxSize: 3, perNode: {addresses: 1}}}`, "spec.autoscaling.maxSize: want more than size"},
			"no load":        {`{autoscaling: {maxSize: 4}}`, "spec.autoscaling.perNode: Required value"},
			"empty load":     {`{autoscaling: {maxSize: 4, perNode: {}}}`, "spec.autoscaling.perNode: should have at least 1 properties"},
			"short time":     {`{autoscaling: {maxSize: 4, perNode: {addresses: 1}, scaleDownAfter: 299s}}`, "spec.autoscaling.scaleDownAfter: want 5m to 24h"},
			"long time":      {`{autoscaling: {maxSize: 4, perNode: {addresses: 1}, scaleDownAfter: 1441m}}`, "spec.autoscaling.scaleDownAfter: want 5m to 24h"},
			"bad services":   {`{services: {selector: {matchExpressions: [{key: a, operator: DoesNotExist, values: [b]}]}}}`, "spec.services.selector: " + unselective},
			"bad namespaces": {`{services: {namespaceSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}}}`, "spec.services.namespaceSelector: " + unselective},
			"many classes":   {`{services: {classes: [` + numbered(17, "fairlead.io/class-%d") + `]}}`, "spec.services.classes: must have at most 16 items"},
			"class twice":    {`{services: {classes: [fairlead.io/a, fairlead.io/a]}}`, "spec.services.classes[1]: Duplicate value"},
			"others' class":  {`{services: {classes: [example.com/lb]}}`, "spec.services.classes[0]: want a class such as"},
			"main class":     {`{services: {classes: [fairlead.io/lb]}}`, "spec.services.classes[0]: want a class such as"},
			"long class":     {`{services: {classes: [fairlead.io/` + strings.Repeat("a", 64) + `]}}`, "spec.services.classes[0]: may not be more than 75 bytes"},
			"member network": {`{loadBalancers: {memberNetworks: [10.0.0.1/8]}}`, "spec.loadBalancers.memberNetworks[0]: want a CIDR in canonical form"},
			"networks twice": {`{loadBalancers: {memberNetworks: [10.0.0.0/8, 10.0.0.0/8]}}`, "spec.loadBalancers.memberNetworks[1]: Duplicate value"},
			"many networks":  {`{loadBalancers: {memberNetworks: [` + numbered(65, "10.0.%d.0/24") + `]}}`, "spec.loadBalancers.memberNetworks: must have at most 64 items"},
			"long network":   {`{loadBalancers: {memberNetworks: ["` + strings.Repeat("1", 44) + `"]}}`, "spec.loadBalancers.memberNetworks[0]: may not be more than 43 bytes"},
			"cluster twice":  {`{loadBalancers: {clusterNetworks: [Pod, Pod]}}`, "spec.loadBalancers.clusterNetworks[1]: Duplicate value"},
			"many cluster":   {`{loadBalancers: {clusterNetworks: [Node, Pod, Service, LinkLocal, Node]}}`, "spec.loadBalancers.clusterNetworks: must have at most 4 items"},
			"cluster":        {`{loadBalancers: {clusterNetworks: [Pods]}}`, "spec.loadBalancers.clusterNetworks[0]: Unsupported value"},
			"tunnel ends":    {`{loadBalancers: {tunnelEnds: [192.0.2.1]}}`, "spec.loadBalancers.tunnelEnds[0]: want a CIDR in canonical form"},
			"ends twice":     {`{loadBalancers: {tunnelEnds: [10.0.0.0/8, 10.0.0.0/8]}}`, "spec.loadBalancers.tunnelEnds[1]: Duplicate value"},
			"many ends":      {`{loadBalancers: {tunnelEnds: [` + numbered(65, "10.0.%d.0/24") + `]}}`, "spec.loadBalancers.tunnelEnds: must have at most 64 items"},
			"long end":       {`{loadBalancers: {tunnelEnds: ["` + strings.Repeat("1", 44) + `"]}}`, "spec.loadBalancers.tunnelEnds[0]: may not be more than 43 bytes"},
			"many segments":  {`{loadBalancers: {segments: [` + numbered(65, "{type: vlan, first: 1%d}") + `]}}`, "spec.loadBalancers.segments: must have at most 64 items"},
			"no type":        {`{loadBalancers: {segments: [{first: 1}]}}`, "spec.loadBalancers.segments[0].type: Required value"},
			"no first":       {`{loadBalancers: {segments: [{type: vlan}]}}`, "spec.loadBalancers.segments[0].first: Required value"},
			"segment type":   {`{loadBalancers: {segments: [{type: qinq, first: 1}]}}`, "spec.loadBalancers.segments[0].type: Unsupported value"},
			"no segment":     {`{loadBalancers: {segments: [{type: vlan, first: 0}]}}`, "spec.loadBalancers.segments[0].first: greater than or equal to 1"},
			"high segment":   {`{loadBalancers: {segments: [{type: vxlan, first: 16777216}]}}`, "spec.loadBalancers.segments[0].first: less than or equal to 16777215"},
			"low last":       {`{loadBalancers: {segments: [{type: vlan, first: 1, last: 0}]}}`, "spec.loadBalancers.segments[0].last: greater than or equal to 1"},
			"high last":      {`{loadBalancers: {segments: [{type: vlan, first: 1, last: 16777216}]}}`, "spec.loadBalancers.segments[0].last: less than or equal to 16777215"},
			"last first":     {`{loadBalancers: {segments: [{type: vlan, first: 9, last: 8}]}}`, "spec.loadBalancers.segments[0].last: want one that is not less than first"},
			"announced":      {`{loadBalancers: {segments: [{type: vlan, first: 1, announce: [10.0.0.1/8]}]}}`, "spec.loadBalancers.segments[0].announce[0]: want a CIDR in canonical form"},
			"overlay":        {`{loadBalancers: {segments: [{type: vxlan, first: 1, announce: [10.0.0.0/8]}]}}`, "spec.loadBalancers.segments[0].announce: only addresses in a vlan are announced"},
			"routes twice":   {`{loadBalancers: {segments: [{type: vlan, first: 1, announce: [10.0.0.0/8, 10.0.0.0/8]}]}}`, "spec.loadBalancers.segments[0].announce[1]: Duplicate value"},
			"many routes":    {`{loadBalancers: {segments: [{type: vlan, first: 1, announce: [` + numbered(17, "10.0.%d.0/24") + `]}]}}`, "spec.loadBalancers.segments[0].announce: must have at most 16 items"},
			"long route":     {`{loadBalancers: {segments: [{type: vlan, first: 1, announce: ["` + strings.Repeat("1", 44) + `"]}]}}`, "spec.loadBalancers.segments[0].announce[0]: may not be more than 43 bytes"},
			"forward":        {`{dataPlane: {forward: vxlan}}`, "spec.dataPlane.forward: Unsupported value"},
		},
	}
	for field, most := range map[string]int{"services": 65535, "backends": 1048576, "sourcePrefixes": 131072, "probes": 1048576} {
		path := "spec.services.perNamespace." + field
		k.refused["no "+field] = refusal{`{services: {perNamespace: {` + field + `: 0}}}`, path + ": greater than or equal to 1"}
		k.refused["many "+field] = refusal{
			fmt.Sprintf(`{services: {perNamespace: {%s: %d}}}`, field, most+1), fmt.Sprintf("%s: less than or equal to %d", path, most),
		}
	}
	for _, field := range []string{"addresses", "bitsPerSecond", "packetsPerSecond"} {
		k.refused["no "+field+" per node"] = refusal{
			`{autoscaling: {maxSize: 4, perNode: {` + field + `: 0}}}`, "spec.autoscaling.perNode." + field + ": greater than or equal to 1",
		}
	}
	k.refused["no ports"] = refusal{`{services: {maxPorts: 0}}`, "spec.services.maxPorts: greater than or equal to 1"}
	k.refused["many ports"] = refusal{`{services: {maxPorts: 1001}}`, "spec.services.maxPorts: less than or equal to 1000"}
	k.refused["a mark of more than 32 bits"] = refusal{`{dataPlane: {firewallMarkMask: 4294967296}}`, "spec.dataPlane.firewallMarkMask: less than or equal to 4294967295"}
	k.refused["an empty mask"] = refusal{`{dataPlane: {firewallMarkMask: 0}}`, "spec.dataPlane.firewallMarkMask: greater than or equal to 1"}
	k.refused["short checks"] = refusal{`{dataPlane: {minHealthCheckInterval: 9ms}}`, "spec.dataPlane.minHealthCheckInterval: want 10ms to 1h"}
	addLimits(k, `{dataPlane: {limits: %s}}`, "spec.dataPlane.limits")
	addHealthChecks(k, `{dataPlane: {healthCheck: %s}}`, "spec.dataPlane.healthCheck", `{size: 3, dataPlane: {forward: dsr}}`)
	return k
}

// addLimits adds limits of new flows that are out of range.
func addLimits(k *samples, patch, field string) {
	for _, limit := range []string{"newFlows", "newFlowsPerSource"} {
		k.refused["no "+limit] = refusal{fmt.Sprintf(patch, "{"+limit+": 0}"), field + "." + limit + ": greater than or equal to 1"}
		k.refused["many "+limit] = refusal{fmt.Sprintf(patch, "{"+limit+": 10000001}"), field + "." + limit + ": less than or equal to 10000000"}
	}
}
