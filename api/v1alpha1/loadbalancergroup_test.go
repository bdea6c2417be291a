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
nodeSelector: {matchLabels: {fairlead.io/balancer: "true"}}
services:
  selector: {matchLabels: {tier: front}}
  namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [b]}]}
  classes: [fairlead.io/internal, fairlead.io/a.b]
dataPlane:
  forward: gue
  healthCheck: {type: http, port: 8080, path: /healthz, interval: 500ms, timeout: 100ms, rise: 1, fall: 100}
  limits: {newFlows: 10000000, newFlowsPerSource: 1}
`,
		accepted: map[string]accepted{
			"minimal":  {``, `{size: 3, dataPlane: {forward: dsr}}`},
			"smallest": {`{size: 1}`, `{dataPlane: {forward: dsr}}`},
			"largest": {`{size: 64, services: {classes: [` + numbered(16, "fairlead.io/class-%d") + `]}, dataPlane: {forward: l2dsr}}`,
				``},
			"check of a group": {`{dataPlane: {healthCheck: {type: tcp}}}`, `{size: 3, dataPlane: {forward: dsr}}`},
			"long class":       {`{services: {classes: [fairlead.io/` + strings.Repeat("a", 63) + `]}}`, `{size: 3, dataPlane: {forward: dsr}}`},
		},
		refused: map[string]refusal{
			"no nodes":       {`{nodeSelector: null}`, "spec.nodeSelector: Required value"},
			"bad nodes":      {`{nodeSelector: {matchExpressions: [{key: a, operator: NotIn, values: []}]}}`, "spec.nodeSelector: " + unselective},
			"low size":       {`{size: 0}`, "spec.size: greater than or equal to 1"},
			"high size":      {`{size: 65}`, "spec.size: less than or equal to 64"},
			"bad services":   {`{services: {selector: {matchExpressions: [{key: a, operator: DoesNotExist, values: [b]}]}}}`, "spec.services.selector: " + unselective},
			"bad namespaces": {`{services: {namespaceSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}}}`, "spec.services.namespaceSelector: " + unselective},
			"many classes":   {`{services: {classes: [` + numbered(17, "fairlead.io/class-%d") + `]}}`, "spec.services.classes: must have at most 16 items"},
			"class twice":    {`{services: {classes: [fairlead.io/a, fairlead.io/a]}}`, "spec.services.classes[1]: Duplicate value"},
			"others' class":  {`{services: {classes: [example.com/lb]}}`, "spec.services.classes[0]: want a class such as"},
			"main class":     {`{services: {classes: [fairlead.io/lb]}}`, "spec.services.classes[0]: want a class such as"},
			"long class":     {`{services: {classes: [fairlead.io/` + strings.Repeat("a", 64) + `]}}`, "spec.services.classes[0]: may not be more than 75 bytes"},
			"forward":        {`{dataPlane: {forward: vxlan}}`, "spec.dataPlane.forward: Unsupported value"},
		},
	}
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
