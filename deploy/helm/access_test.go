// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// access is one verb on one resource, as a role allows it or a client requests it.
type access struct {
	// account is the service account's name: of the agents, the controllers or the API servers. In
	// a control cluster it is the agents' group.
	account string
	// namespace limits it; empty for all namespaces and for cluster-wide resources.
	namespace             string
	group, resource, verb string
	// name limits it to one object; empty for all objects.
	name string
}

func (a access) String() string {
	where := "everywhere"
	if a.namespace != "" {
		where = "in " + a.namespace
	}
	return fmt.Sprintf("%s: %s %s %s %s", a.account, a.verb, strings.Trim(a.group+"/"+a.resource, "/"), a.name, where)
}

// allowed returns all accesses of the chart's roles to resources. Roles have the names of the
// accounts that they are bound to.
func allowed(t *testing.T, objects map[string]object) map[access]bool {
	t.Helper()
	all := map[access]bool{}
	for name, o := range objects {
		if o.Kind != "Role" && o.Kind != "ClusterRole" || name == "ClusterRole/fairlead-metrics-reader" {
			continue // a reader of metrics has no access to resources
		}
		account, where := o.Metadata.Name, o.Metadata.Namespace
		if name == "ClusterRole/fairlead-apiserver-project" {
			account, where = "fairlead-apiserver", project // bound there
		}
		if app, pods := strings.CutSuffix(account, "-balancer-pods"); pods {
			account = app + "-agent"
		}
		users := name == "ClusterRole/fairlead-agent" || name == "Role/fairlead-agent"
		if binding := objects[strings.Replace(name, "/", "Binding/", 1)]; users && len(binding.Subjects) == 1 && binding.Subjects[0].Kind == "Group" {
			account = binding.Subjects[0].Name
		} else if objects["ServiceAccount/"+account].Kind == "" {
			t.Errorf("%s has no service account of its name", name)
		}
		for _, r := range o.Rules {
			names := r.Names
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range r.Groups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						for _, name := range names {
							all[access{account, where, group, resource, verb, name}] = true
						}
					}
				}
			}
		}
	}
	return all
}

// auditPolicy records the requests of the namespace's service accounts, without their
// bodies.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:` + namespace + `"]}
  - {level: None}
`

// asked returns the accesses of service accounts in an audit log, and whether they
// were allowed. Every account may query API discovery and its own rights.
func asked(t *testing.T, log string) map[access]bool {
	t.Helper()
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all := map[access]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct {
				Resource, Subresource, Namespace, Name string
				APIGroup                               string
			}
			ResponseStatus struct{ Code int }
			Annotations    map[string]string
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // a line that is being written
		}
		account, ours := strings.CutPrefix(event.User.Username, "system:serviceaccount:"+namespace+":")
		if !ours || event.ObjectRef.Resource == "" {
			continue
		}
		a := access{account, event.ObjectRef.Namespace, event.ObjectRef.APIGroup, event.ObjectRef.Resource, event.Verb, event.ObjectRef.Name}
		if event.ObjectRef.Subresource != "" {
			a.resource += "/" + event.ObjectRef.Subresource
		}
		all[a] = all[a] || event.Annotations["authorization.k8s.io/decision"] == "forbid"
		if event.Verb == "patch" && event.ResponseStatus.Code == http.StatusCreated { // server-side apply, which needs both rights
			a.verb = "create"
			all[a] = false
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// allowedBy returns the widest right that includes an access.
func (a access) allowedBy(rights map[access]bool) (by access, found bool) {
	for _, namespace := range []string{"", a.namespace} {
		for _, name := range []string{"", a.name} {
			by = a
			by.namespace, by.name = namespace, name
			if rights[by] {
				return by, true
			}
		}
	}
	return access{}, false
}

// compare returns requests that no role allows, and rights that no request needs.
func compare(allowed, asked map[access]bool) (missing, unused []access) {
	used := map[access]bool{}
	for a, forbidden := range asked {
		by, found := a.allowedBy(allowed)
		if found {
			used[by] = true
		}
		if forbidden || !found {
			missing = append(missing, a)
		}
	}
	for a := range allowed {
		if !used[a] {
			unused = append(unused, a)
		}
	}
	return missing, unused
}

// The comparison finds missing rights, unneeded rights, and rights in the wrong place.
func TestCompare(t *testing.T) {
	list := access{"agent", "", "", "services", "list", ""}
	secrets := access{"agent", namespace, "", "secrets", "list", ""}
	own := access{"agent", namespace, "apps", "daemonsets", "get", "agent"}
	inDefault, elsewhere, one, other := list, secrets, secrets, own
	one.name, other.name = "bgp", "other"
	inDefault.namespace, elsewhere.namespace = "default", "default"
	for name, c := range map[string]struct {
		allowed, asked  map[access]bool
		missing, unused int
	}{
		"exact":                {map[access]bool{list: true, secrets: true}, map[access]bool{list: false, secrets: false}, 0, 0},
		"in one namespace":     {map[access]bool{list: true}, map[access]bool{inDefault: false}, 0, 0},
		"in another namespace": {map[access]bool{secrets: true}, map[access]bool{elsewhere: true}, 1, 1},
		"one of all":           {map[access]bool{secrets: true}, map[access]bool{one: false}, 0, 0},
		"one by name":          {map[access]bool{own: true}, map[access]bool{own: false}, 0, 0},
		"another name":         {map[access]bool{own: true}, map[access]bool{other: true}, 1, 1},
		"unused":               {map[access]bool{list: true, secrets: true}, map[access]bool{list: false}, 0, 1},
		"missing":              {map[access]bool{list: true}, map[access]bool{list: false, secrets: true}, 1, 0},
		"not bound":            {map[access]bool{list: true}, map[access]bool{list: true}, 1, 0},
	} {
		missing, unused := compare(c.allowed, c.asked)
		if len(missing) != c.missing || len(unused) != c.unused {
			t.Errorf("%s: missing %v, unused %v; want %d and %d", name, missing, unused, c.missing, c.unused)
		}
	}
}
