// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"fairlead.io/fairlead/deploy/helm"
	"fairlead.io/fairlead/test/golden"
)

type value = map[string]any

// The document is made of the routes and of the definition of the kind LoadBalancer.
func TestDocument(t *testing.T) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(openAPI(t)); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "openapi.json", text.String())
}

// The reference lists all routes.
func TestRouteReference(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("| method | path | what it does | status codes |\n| --- | --- | --- | --- |\n")
	for _, r := range routes() {
		codes := fmt.Sprint(slices.Sorted(slices.Values(slices.Concat(r.successes, r.errors()))))
		path := strings.Replace(r.path, balancersPath, "…/loadbalancers", 1)
		fmt.Fprintf(&rows, "| %s | `%s` | %s | %s |\n", r.method, path, r.summary, strings.Trim(codes, "[]"))
	}
	golden.Parts(t, "../../docs/reference/http-api.md", "<!-- made by go test ./internal/apiserver -update -->\n", rows.String())
}

func openAPI(t *testing.T) value {
	paths := value{}
	for _, r := range routes() {
		operations, _ := paths[r.path].(value)
		if operations == nil {
			operations = value{"parameters": pathParameters(r.path)}
			paths[r.path] = operations
		}
		operations[strings.ToLower(r.method)] = operation(&r)
	}
	return value{
		"openapi": "3.1.0",
		"info": value{
			"title": "Fairlead", "version": "v1", "license": value{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "Load balancers of projects. docs/guides/api.md shows how to use it.",
		},
		"security": []any{value{"token": []any{}}, value{"certificate": []any{}}},
		"paths":    paths,
		"components": value{
			"securitySchemes": value{"token": value{"type": "http", "scheme": "bearer"}, "certificate": value{"type": "mutualTLS"}},
			"responses":       problems(),
			"schemas":         schemas(t),
		},
	}
}

func pathParameters(path string) []any {
	all := []any{}
	for _, p := range parameters() {
		if strings.Contains(path, "{"+p.name+"}") {
			all = append(all, value{"name": p.name, "in": "path", "required": true, "description": p.meaning, "schema": value{"type": "string", "pattern": p.pattern}})
		}
	}
	return all
}

func header(name, meaning string) value {
	return value{"name": name, "in": "header", "description": meaning, "schema": value{"type": "string"}}
}

func operation(r *route) value {
	query := map[string]value{
		"limit":         {"description": "largest number of load balancers", "schema": value{"type": "integer", "minimum": 1, "maximum": maxLimit, "default": defaultLimit}},
		"continue":      {"description": "the field of the page before; the other parameters have to be the same", "schema": value{"type": "string"}},
		"labelSelector": {"description": "labels as in Kubernetes, such as tier=front,owner!=lab", "schema": value{"type": "string"}},
		"since":         {"description": "version of the answer before; without it all load balancers are listed", "schema": value{"type": "string"}},
		"holder":        {"description": "name of the one that follows: for the lease of the answer, others of the same client are refused", "schema": value{"type": "string", "maxLength": maxHolder}},
		"wait":          {"description": "seconds to wait for a change: of the status that If-None-Match has the ETag of, or since a version", "schema": value{"type": "integer", "minimum": 1, "maximum": maxWait}},
	}
	parameters := []any{}
	for _, name := range r.query {
		p := maps.Clone(query[name])
		p["name"], p["in"] = name, "query"
		parameters = append(parameters, p)
	}
	if r.writes() && !r.nodes {
		parameters = append(parameters, header("If-Match", "the ETag of what is replaced or deleted; * if it has to be there"))
	}
	if r.method == http.MethodPut && !r.nodes {
		parameters = append(parameters, header("If-None-Match", "* if it must not be there"))
	}
	if !r.writes() && !r.nodes {
		parameters = append(parameters, header("If-None-Match", "the ETag of what the client has"))
	}
	made := value{"operationId": r.id, "summary": r.summary, "parameters": parameters, "responses": responses(r)}
	if r.body != "" {
		made["requestBody"] = value{"required": true, "content": content("application/json", r.body)}
	}
	return made
}

func content(kind, schema string) value {
	return value{kind: value{"schema": reference(schema)}}
}

func reference(schema string) value { return value{"$ref": "#/components/schemas/" + schema} }

func responses(r *route) value {
	all := value{}
	for _, code := range r.successes {
		response := value{"description": http.StatusText(code)}
		if code != http.StatusNoContent && !r.nodes {
			response["headers"] = value{"ETag": value{"schema": value{"type": "string"}}}
		}
		switch {
		case code != http.StatusOK && code != http.StatusCreated:
		case r.stream != nil:
			response["content"] = content("application/x-ndjson", r.answer)
		case r.answer != "":
			response["content"] = content("application/json", r.answer)
		default:
			response["content"] = value{"application/json": value{"schema": value{"type": "object"}}}
		}
		all[fmt.Sprint(code)] = response
	}
	for _, code := range r.errors() {
		all[fmt.Sprint(code)] = value{"$ref": "#/components/responses/" + errorName(code)}
	}
	return all
}

// errorName is the name of an error response.
func errorName(code int) string { return strings.ReplaceAll(http.StatusText(code), " ", "") }

// problems returns the responses with problems, of all routes.
func problems() value {
	all := value{}
	for _, r := range routes() {
		for _, code := range r.errors() {
			response := value{"description": http.StatusText(code), "content": content("application/problem+json", "ProblemDetails")}
			switch code {
			case http.StatusTooManyRequests, http.StatusServiceUnavailable:
				response["headers"] = value{"Retry-After": value{"description": "seconds", "schema": value{"type": "integer"}}}
			case http.StatusUnauthorized:
				response["headers"] = value{"WWW-Authenticate": value{"schema": value{"type": "string"}}}
			}
			all[errorName(code)] = response
		}
	}
	return all
}

// schemas returns all schemas of bodies. Schemas of parts come from the kind.
func schemas(t *testing.T) value {
	all := value{}
	spec := inner(kind(t, "loadbalancers"), "properties", "spec")
	pool := inner(spec, "properties", "pools", "items")
	member := inner(pool, "properties", "members", "items")
	listener := inner(spec, "properties", "listeners", "items")

	extract := func(name string, parent value, field string, required ...any) value {
		properties := inner(parent, "properties")
		schema, list := inner(properties, field), false
		use := reference(name)
		if schema["type"] == "array" {
			schema, list = inner(schema, "items"), true
			use = value{"allOf": []any{use, value{"required": required}}}
			inner(properties, field)["items"] = use
		}
		if list {
			// The path of a part has these fields.
			schema["required"] = slices.DeleteFunc(schema["required"].([]any), func(f any) bool { return slices.Contains(required, f) })
			all[name+"List"] = object("", value{"items": value{"type": "array", "items": use, "maxItems": inner(properties, field)["maxItems"]}}, "items")
		} else {
			properties[field] = use
		}
		all[name] = schema
		return schema
	}
	extract("FlowLimits", listener, "limits")
	extract("Segment", member, "segment")
	inner(spec, "properties")["segment"] = reference("Segment")
	extract("QUIC", listener, "quic")
	extract("DNSQuery", extract("HealthCheck", pool, "healthCheck"), "dns")
	extract("Member", pool, "members", "address", "port")
	extract("Listener", spec, "listeners", "name")
	extract("Pool", spec, "pools", "name")
	properties := inner(spec, "properties")
	properties["name"] = value{"type": "string", "description": "Name is unique in the project.", "pattern": subdomainPattern, "maxLength": 253}
	properties["labels"] = value{
		"type": "object", "description": "Labels of the object, by which groups, pools of addresses and lists select.",
		"additionalProperties": value{"type": "string", "maxLength": 63},
	}
	spec["description"] = "LoadBalancer is an address with its listeners and their pools."
	all["LoadBalancer"] = spec
	all["Report"] = inner(kind(t, "balancernodes"), "properties", "status")
	all["NodeStatistics"] = inner(kind(t, "balancernodestatistics"), "properties", "status")
	for name, schema := range all {
		all[name] = cleaned(schema.(value))
	}
	maps.Copy(all, ownSchemas())
	return all
}

// kind returns the schema of a kind.
func kind(t *testing.T, resource string) value {
	t.Helper()
	text, err := helm.Definition(resource)
	if err != nil {
		t.Fatal(err)
	}
	var crd value
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	return inner(inner(crd, "spec")["versions"].([]any)[0].(value), "schema", "openAPIV3Schema")
}

func inner(v value, path ...string) value {
	for _, key := range path {
		v = v[key].(value)
	}
	return v
}

// cleaned returns a schema without Kubernetes extensions: rules become sentences.
func cleaned(schema value) value {
	out := value{}
	for key, v := range schema {
		switch v := v.(type) {
		case value:
			out[key] = cleaned(v)
		case []any:
			list := make([]any, len(v))
			for i := range v {
				list[i] = v[i]
				if element, ok := v[i].(value); ok {
					list[i] = cleaned(element)
				}
			}
			out[key] = list
		default:
			out[key] = v
		}
	}
	rules, _ := schema["x-kubernetes-validations"].([]any)
	for _, rule := range rules {
		rule := rule.(value)
		description, _ := out["description"].(string)
		out["description"] = strings.TrimSpace(fmt.Sprintf("%s\nRule: %v.", description, rule["message"]))
		if strings.Contains(rule["rule"].(string), "duration(self)") {
			out["pattern"] = `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
		}
	}
	if schema["x-kubernetes-list-type"] == "set" {
		out["uniqueItems"] = true
	}
	maps.DeleteFunc(out, func(key string, _ any) bool { return strings.HasPrefix(key, "x-kubernetes-") })
	if _, isObject := schema["properties"].(value); isObject && schema["type"] == "object" {
		out["additionalProperties"] = false
	}
	return out
}

func object(description string, properties value, required ...any) value {
	schema := value{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	if description != "" {
		schema["description"] = description
	}
	return schema
}

// ownSchemas are the schemas of responses without a kind.
func ownSchemas() value {
	text := func(description string, values ...any) value {
		schema := value{"type": "string", "description": description}
		if len(values) > 0 {
			schema["enum"] = values
		}
		return schema
	}
	list := func(schema value) value { return value{"type": "array", "items": schema} }
	part := func(description string, more value, required ...any) value {
		properties := value{
			"name":               text("Name is that in the path of the part."),
			"provisioningStatus": reference("ProvisioningStatus"),
			"operatingStatus":    reference("OperatingStatus"),
			"message":            text("Message is the reason."),
		}
		maps.Copy(properties, more)
		return object(description, properties, append([]any{"name", "provisioningStatus", "operatingStatus"}, required...)...)
	}
	count := func(description string) value {
		return value{"type": "integer", "format": "int64", "minimum": 0, "description": description}
	}
	traffic := func(more value) value {
		properties := value{
			"name":     text("Name is that in the path."),
			"packets":  count("Packets counts the packets from clients that were sent to members."),
			"bytes":    count("Bytes counts the bytes of their frames."),
			"newFlows": count("NewFlows counts new flows: each SYN of TCP, each newly recorded flow of UDP, with nat each session."),
		}
		maps.Copy(properties, more)
		return properties
	}
	return value{
		"LoadBalancerList": object("", value{
			"items":    list(reference("LoadBalancer")),
			"continue": text("Continue is the parameter of the next page; absent after the last one."),
		}, "items"),
		"LoadBalancerStatus": part("LoadBalancerStatus is the status of a load balancer and of its parts.", value{
			"address":   text("Address is the virtual address; absent until there is one."),
			"group":     text("Group is the LoadBalancerGroup that serves it."),
			"listeners": list(reference("ListenerStatus")),
			"pools":     list(reference("PoolStatus")),
		}, "listeners", "pools"),
		"StatusChanges": object("StatusChanges are load balancers with other statuses or statistics than before.", value{
			"version":  text("Version is the parameter since of the next request."),
			"complete": value{"type": "boolean", "description": "Complete says that the version before is unknown: what isn't listed here and in the following answers is deleted."},
			"lease":    value{"type": "integer", "description": "Lease is how many seconds from the request on the holder is the only one; absent without a holder."},
			"items":    list(reference("StatusItem")),
		}, "version", "complete", "items"),
		"StatusItem": object("StatusItem is a load balancer, or the name of a deleted one.", value{
			"project": text("Project is the name of its project."), "name": text("Name is that in its path."),
			"deleted":    value{"type": "boolean", "description": "Deleted says that there is none of this name any more."},
			"generation": text("Generation changes when clients change the load balancer."),
			"readyNodes": count("ReadyNodes is the number of ready nodes of its group."),
			"status":     reference("LoadBalancerStatus"),
			"statistics": reference("LoadBalancerStatistics"),
		}, "project", "name", "readyNodes"),
		"ListenerStatus":     part("ListenerStatus is the status of a listener.", value{"pool": text("Pool is the name of its pool.")}),
		"PoolStatus":         part("PoolStatus is the status of a pool and of its members.", value{"members": list(reference("MemberStatus"))}, "members"),
		"MemberStatus":       part("MemberStatus is the status of a member.", nil),
		"ProvisioningStatus": text("ProvisioningStatus says whether the last change was accepted.", provisioned, rejected, pendingCreate, pendingUpdate, pendingDelete),
		"OperatingStatus":    text("OperatingStatus says whether a part works.", online, degraded, failed, offline, draining, noMonitor, unknown),
		"Change": object("Change is a line for nodes: docs/guides/api.md has their order.", value{
			"type": text("Type is what happened to the object, that all objects have been sent, or that the server is there.", linePut, lineDelete, lineSynced, lineAlive),
			"object": value{
				"type": "object", "description": "Object is what nodes are to serve of a LoadBalancer of Kubernetes' API, or the name of a deleted one.",
				"properties": value{"metadata": value{"type": "object"}, "spec": value{"type": "object"}, "status": value{"type": "object"}}, "required": []any{"metadata"},
			},
			"version":  text("Version is the one that all objects have been sent of."),
			"identity": text("Identity is the one of the server's file."),
			"replaces": value{"type": "boolean", "description": "Replaces says that nodes serve the objects though they have served those of another file, or newer ones."},
		}, "type"),
		"LoadBalancerStatistics": object("LoadBalancerStatistics is what the nodes of its group have forwarded for a load balancer. Numbers become smaller "+
			"when a node leaves the group or makes its tables again.", traffic(value{
			"nodes":         count("Nodes is the number of nodes of the group."),
			"reportedNodes": count("ReportedNodes is the number of nodes whose counters are included."),
			"oldestReport": value{"type": "string", "format": "date-time", "description": "OldestReport is when the oldest of these counters were read. " +
				"They are reported when they have changed, and at most once a minute. Absent without a report."},
			"listeners": list(reference("ListenerStatistics")),
		}), "name", "nodes", "reportedNodes", "packets", "bytes", "newFlows", "listeners"),
		"ListenerStatistics": object("ListenerStatistics is what was forwarded for a listener.", traffic(nil), "name", "packets", "bytes", "newFlows"),
		"ProblemDetails": object("ProblemDetails describe an error (RFC 9457).", value{
			"title": text("Title is that of the status code."), "status": value{"type": "integer", "description": "Status is the status code."}, "detail": text("Detail is the reason."),
			"errors": list(reference("FieldError")),
		}, "title", "status"),
		"FieldError": object("FieldError is what is wrong with a field of a request.", value{
			"field": text("Field is its path in the body, or the name of a parameter."), "detail": text("Detail is what is wrong with it."),
		}, "field", "detail"),
	}
}
