// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Paths of the API. Every route below projects is for clients of that project only.
const (
	documentPath  = "/v1/openapi.json"
	balancersPath = "/v1/projects/{project}/loadbalancers"
	balancerPath  = balancersPath + "/{loadbalancer}"
	listenersPath = balancerPath + "/listeners"
	poolsPath     = balancerPath + "/pools"
	poolPath      = poolsPath + "/{pool}"
	membersPath   = poolPath + "/members"
	statusesPath  = "/v1/statuses"
	watchPath     = "/v1/watch"
	nodePath      = "/v1/nodes/{node}"
)

// route is a method of a path.
type route struct {
	// id is the name of the operation in the document.
	id, method, path, summary string
	// query are the parameters that a request may have.
	query []string
	// body and answer are names of schemas in the document; empty for none.
	body, answer string
	// successes are the status codes of successful requests.
	successes []int
	// shared routes are for clients of all projects, routes of nodes for nodes only, and others for
	// clients of the project in the path.
	shared, nodes bool
	handle        handler
	// stream answers in place of handle, by itself, for any time.
	stream func(*server, http.ResponseWriter, *http.Request)
}

// writes reports whether requests change something.
func (r *route) writes() bool { return r.method != http.MethodGet }

// errors returns the status codes of error responses.
func (r *route) errors() []int {
	all := []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusTooManyRequests, http.StatusServiceUnavailable,
	}
	if r.path == balancersPath {
		all = append(all, http.StatusGone)
	}
	if r.writes() || r.path == statusesPath {
		all = append(all, http.StatusConflict)
	}
	if r.writes() {
		all = append(all, http.StatusUnprocessableEntity)
	}
	if r.writes() && !r.nodes {
		all = append(all, http.StatusPreconditionFailed)
	}
	if r.body != "" {
		all = append(all, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	return all
}

// resource is a kind of part, with the routes that read and change it.
type resource struct {
	path, noun string
	// schema is the name of its schema in the document.
	schema  string
	methods []string
	locate  locate
}

func resources() []resource {
	all := []string{http.MethodGet, http.MethodPut, http.MethodDelete}
	get, put := all[:1], all[:2]
	return []resource{
		{balancerPath, "load balancer", "LoadBalancer", all, locateBalancer},
		{listenersPath, "list of listeners", "ListenerList", get, locateListeners},
		{listenersPath + "/{listener}", "listener", "Listener", all, locateListener},
		{poolsPath, "list of pools", "PoolList", get, locatePools},
		{poolPath, "pool", "Pool", all, locatePool},
		{membersPath, "list of members", "MemberList", put, locateMembers},
		{membersPath + "/{member}", "member", "Member", all, locateMember},
		{poolPath + "/healthcheck", "health check", "HealthCheck", all, locateHealthCheck},
	}
}

// routes returns all routes.
func routes() []route {
	all := []route{
		{
			id: "getDocument", method: http.MethodGet, path: documentPath, summary: "Get this document",
			successes: []int{http.StatusOK, http.StatusNotModified}, shared: true, handle: (*server).document,
		},
		{
			id: "listLoadBalancers", method: http.MethodGet, path: balancersPath, summary: "List load balancers", query: []string{"limit", "continue", "labelSelector"},
			answer: "LoadBalancerList", successes: []int{http.StatusOK, http.StatusNotModified}, handle: (*server).list,
		},
		{
			id: "getLoadBalancerStatistics", method: http.MethodGet, path: balancerPath + "/statistics", summary: "Get what was forwarded for a load balancer and for its listeners",
			answer: "LoadBalancerStatistics", successes: []int{http.StatusOK, http.StatusNotModified}, handle: (*server).statistics,
		},
		{
			id: "getLoadBalancerStatus", method: http.MethodGet, path: balancerPath + "/status", summary: "Get the status of a load balancer and of its parts", query: []string{"wait"},
			answer: "LoadBalancerStatus", successes: []int{http.StatusOK, http.StatusNotModified}, handle: (*server).status,
		},
		{
			id: "listStatuses", method: http.MethodGet, path: statusesPath, summary: "Get the statuses and statistics of all projects that have changed",
			query: []string{"labelSelector", "since", "wait", "holder"}, answer: "StatusChanges", successes: []int{http.StatusOK, http.StatusNotModified},
			shared: true, handle: (*server).statuses,
		},
	}
	for _, r := range resources() {
		for _, method := range r.methods {
			all = append(all, r.route(method))
		}
	}
	return append(all, nodeRoutes()...)
}

// nodeRoutes returns the routes of nodes, which a server has if nodes follow its store.
func nodeRoutes() []route {
	return []route{
		{
			id: "watch", method: http.MethodGet, path: watchPath, summary: "Follow all load balancers (nodes only)",
			answer: "Change", successes: []int{http.StatusOK}, nodes: true, stream: (*server).watch,
		},
		{
			id: "putReport", method: http.MethodPut, path: nodePath + "/report", summary: "Report what a node serves (nodes only)",
			body: "Report", successes: []int{http.StatusNoContent}, nodes: true, handle: (*server).putReport,
		},
		{
			id: "putNodeStatistics", method: http.MethodPut, path: nodePath + "/statistics", summary: "Report what a node has forwarded (nodes only)",
			body: "NodeStatistics", successes: []int{http.StatusNoContent}, nodes: true, handle: (*server).putStatistics,
		},
	}
}

// route returns one route of a resource.
func (r *resource) route(method string) route {
	made := route{id: strings.ToLower(method) + r.schema, method: method, path: r.path}
	whole := r.path == balancerPath
	switch method {
	case http.MethodGet:
		made.summary, made.answer = "Get the "+r.noun, r.schema
		made.successes, made.handle = []int{http.StatusOK, http.StatusNotModified}, get(r.locate, r.noun)
		if whole {
			made.handle = (*server).getBalancer
		}
	case http.MethodPut:
		made.summary, made.body, made.answer = "Create or replace the "+r.noun, r.schema, r.schema
		made.successes, made.handle = []int{http.StatusOK, http.StatusCreated}, put(r.locate, whole)
		if strings.HasPrefix(r.noun, "list of ") {
			made.summary, made.successes = "Replace the "+r.noun, []int{http.StatusOK}
		}
	case http.MethodDelete:
		made.summary = "Delete the " + r.noun
		made.successes, made.handle = []int{http.StatusNoContent}, remove(r.locate, r.noun, whole)
	}
	return made
}

// parameter is a part of a path.
type parameter struct {
	name, pattern, meaning string
	valid                  func(string) bool
}

// Patterns in the document. Names of load balancers are names of Kubernetes objects.
const (
	labelPattern     = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	subdomainPattern = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	memberPattern    = `^([0-9.]+|\[[0-9a-f:]+(\.[0-9.]+)?\]):[0-9]+$`
)

var label = regexp.MustCompile(labelPattern)

// parameters returns the parameters of paths.
func parameters() []parameter {
	return []parameter{
		{"project", labelPattern, "name of the project", validProject},
		{"loadbalancer", subdomainPattern, "name of the load balancer", validSubdomain},
		{"listener", labelPattern, "name of the listener", label.MatchString},
		{"pool", labelPattern, "name of the pool", label.MatchString},
		{"node", subdomainPattern, "name of the node", validSubdomain},
		{"member", memberPattern, "address and port of the member, such as 192.0.2.1:80 or [2001:db8::1]:80", validMember},
	}
}

func validSubdomain(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

func validMember(name string) bool {
	at, err := netip.ParseAddrPort(name)
	return err == nil && at.Port() > 0 && at.String() == name && at.Addr().Zone() == "" && !at.Addr().Is4In6()
}

// namesOf returns the parameters of a request's path; an error if one can't be a name.
func namesOf(r *http.Request) (names, error) {
	for _, p := range parameters() {
		if value := r.PathValue(p.name); strings.Contains(r.Pattern, "{"+p.name+"}") && !p.valid(value) {
			return names{}, newHTTPError(http.StatusBadRequest, "the path has a name that can't be one", fieldError{p.name, "want the " + p.meaning + ", matching " + p.pattern})
		}
	}
	return names{r.PathValue("project"), r.PathValue("loadbalancer"), r.PathValue("listener"), r.PathValue("pool"), r.PathValue("member"), r.PathValue("node")}, nil
}
