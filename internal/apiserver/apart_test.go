// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/report"
	"fairlead.io/fairlead/test/fuzzrand"
)

// apartPolicy has room for all projects, and little for each.
const apartPolicy = `
addressPools: [{name: public, addresses: [203.0.113.0/24]}, {name: own, addresses: [198.51.100.0/28], projects: [other]}]
services: {perNamespace: {services: 3, backends: 4, sourcePrefixes: 4}}
loadBalancers: {memberNetworks: [192.0.2.0/24], segments: [{type: vlan, first: 7, last: 9}]}
dataPlane: {firewallMarkMask: 0xff00, limits: {newFlows: 1000}}
`

// chosen are the values that servers choose: they may be other ones where there are other projects.
var chosen = regexp.MustCompile(`203\.0\.113\.[0-9]+|"(uid|resourceVersion|creationTimestamp|lastTransitionTime)":"[^"]*"|"firewallMark":[0-9]+`)

// apartBalancer returns a random load balancer, in the words of a client. Its address in a segment, where no other
// project has it, ends with a number.
func apartBalancer(r *rand.Rand, number int) string {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	var members []string
	for i := range r.IntN(4) {
		members = append(members, fmt.Sprintf(`{"address":"%s.%d","port":80}`, pick("192.0.2", "192.0.2", "10.0.0"), i+1))
	}
	var listeners []string
	for i := range r.IntN(3) {
		listeners = append(listeners, fmt.Sprintf(`{"name":"l%d","port":%d,"pool":"p","sourceRanges":[%s]}`, i, 80+r.IntN(2)+2*i, pick("", `"10.0.0.0/8"`, `"10.0.0.0/8","11.0.0.0/8","12.0.0.0/8"`)))
	}
	return fmt.Sprintf(`{"forward":"%s"%s,"listeners":[%s],"pools":[{"name":"p","members":[%s]%s}]}`, pick("nat", "l2dsr"),
		pick("", "", fmt.Sprintf(`,"segment":{"type":"vlan","id":%s},"address":"198.51.100.%d"`, pick("7", "10"), number), `,"firewallMark":1`, `,"addressPool":"own"`),
		strings.Join(listeners, ","), strings.Join(members, ","), pick("", `,"healthCheck":{"type":"tcp","interval":"10ms"}`))
}

// apartReport has a node report dead members and refused listeners of some projects, as many as reports list.
func apartReport(t *testing.T, r *rand.Rand, projects ...string) map[string]value {
	t.Helper()
	type entries struct {
		dead   report.List[v1alpha1.UnhealthyBackend]
		failed report.List[v1alpha1.NodeProblem]
		n, m   int
	}
	all := map[string]*entries{"web": {}, "": {}}
	for _, project := range projects {
		few := 1
		if project != "web" {
			few = 200
		}
		for i := range r.IntN(4) * few {
			service := fmt.Sprintf("flb:%s/%s/l%d", project, []string{"a", "b"}[r.IntN(2)], r.IntN(3))
			for name, e := range all {
				if name != "" && name != project {
					continue
				}
				e.dead.Add(project, v1alpha1.UnhealthyBackend{Service: service, Backend: fmt.Sprintf("192.0.2.%d:80", i%3+1), Message: "refused"})
				e.n++
				if i%3 == 0 {
					e.failed.Add(project, v1alpha1.NodeProblem{Object: service, Message: "table full"})
					e.m++
				}
			}
		}
	}
	made := map[string]value{}
	for name, e := range all {
		body := servedBy()
		body["unhealthy"], body["failedServices"] = e.dead.Entries(), e.failed.Entries()
		body["backends"] = value{"total": int64(1000), "inUse": int64(0), "unhealthy": int64(e.n), "drained": int64(0)}
		body["services"] = value{"total": int64(1000), "programmed": int64(0), "failed": int64(e.m), "drained": int64(0), "panic": int64(0)}
		made[name] = body
	}
	return made
}

// shownTo returns all that a project sees of its load balancers, and all that nodes get of them.
func shownTo(a *api, s *embeddedStore, project string) string {
	a.Helper()
	var out strings.Builder
	for _, name := range []string{"a", "b", "c"} {
		for _, part := range []string{"", "/status"} {
			fmt.Fprintln(&out, a.do(0, "all", "GET", "/v1/projects/"+project+"/loadbalancers/"+name+part, "").body)
		}
		b, err := s.Cached(a.Context(), types.NamespacedName{Namespace: project, Name: name})
		if err != nil {
			a.Fatal(err)
		}
		if b != nil {
			text, err := json.Marshal(s.served(b))
			if err != nil {
				a.Fatal(err)
			}
			fmt.Fprintf(&out, "%s\n", text)
		}
	}
	return chosen.ReplaceAllString(out.String(), "$1")
}

// Whatever other projects write, and however much of theirs is dead or refused on nodes, a project sees and is served
// the same as alone, apart from the addresses and marks that are chosen.
func TestProjectsApart(t *testing.T) {
	r := rand.New(rand.NewPCG(fuzzrand.Seed(t), 0))
	var stores [2]*embeddedStore
	var apis [2]*api
	for i := range stores {
		stores[i] = openEmbedded(t, filepath.Join(t.TempDir(), "data"), apartPolicy)
		apis[i] = newAPIOf(t, stores[i], 1)
	}
	shared, alone := apis[0], apis[1]
	projects := []string{"web", "other", "third"}
	const steps = 400
	answers := map[int]int{}
	for step := range steps {
		number := r.IntN(len(projects))
		project := projects[number]
		method, path, body := "PUT", "/v1/projects/"+project+"/loadbalancers/"+[]string{"a", "b"}[r.IntN(2)], apartBalancer(r, number)
		switch r.IntN(6) {
		case 0:
			method, body = "DELETE", ""
		case 1:
			path, body = path+"/pools/p/members/192.0.2.7:80", `{}`
		case 2:
			reports := apartReport(t, r, projects...)
			for i, name := range []string{"", "web"} {
				text, err := json.Marshal(reports[name])
				if err != nil {
					t.Fatal(err)
				}
				apis[i].must(204, "node", "PUT", "/v1/nodes/n1/report", string(text))
			}
			continue
		}
		got := shared.do(0, "all", method, path, body)
		answers[got.status]++
		if project != "web" {
			continue
		}
		if want := alone.do(0, "all", method, path, body); got.status != want.status || chosen.ReplaceAllString(got.body, "") != chosen.ReplaceAllString(want.body, "") {
			t.Fatalf("step %d: %s %s %s: %d %s, alone %d %s", step, method, path, body, got.status, got.body, want.status, want.body)
		}
		if got, want := shownTo(shared, stores[0], "web"), shownTo(alone, stores[1], "web"); got != want {
			t.Fatalf("step %d: among others\n%s\nalone\n%s", step, got, want)
		}
	}
	if answers[200]+answers[201] < steps/4 || answers[400] > 0 || answers[403]+answers[422] == 0 {
		t.Errorf("answers by status: %v", answers)
	}
	fuzzrand.Covered(t, 1, steps)
}
