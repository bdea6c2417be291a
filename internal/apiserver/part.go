// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// names are the parameters of a path.
type names struct{ project, balancer, listener, pool, member, node string }

// part is a part of a load balancer, or the place where one would be.
type part struct {
	// path is where the part is in the load balancer, such as "pools[2].members[0]", "" for the
	// load balancer itself. In the body it is called as, "" if it is the whole body.
	path, as string
	// value is the representation for clients; nil if the part doesn't exist. If text is there, which is
	// the stored load balancer, value lacks the specification.
	value map[string]any
	text  []byte
	// put replaces the part, or adds it.
	put func(value map[string]any) error
	// remove removes the part, which is there; nil if that is the load balancer itself.
	remove func() error
}

// locate finds a part. The error is an httpError if the part to which it belongs is missing.
type locate func(object *unstructured.Unstructured, n names) (part, error)

// missing says which part isn't there.
func missing(kind, name string) *httpError {
	return newHTTPError(http.StatusNotFound, fmt.Sprintf("no such %s: %s", kind, name))
}

// specOf returns the specification of a load balancer, which has one after this.
func specOf(object *unstructured.Unstructured) map[string]any {
	spec, ok := object.Object["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		object.Object["spec"] = spec
	}
	return spec
}

// locateBalancer is the load balancer itself: its specification, its name and its labels. Without
// a resourceVersion it isn't there.
func locateBalancer(object *unstructured.Unstructured, n names) (part, error) {
	p := part{put: func(value map[string]any) error {
		value = maps.Clone(value)
		if err := identified(value, map[string]any{"name": n.balancer}); err != nil {
			return err
		}
		labels, err := labelsIn(value)
		if err != nil {
			return err
		}
		delete(value, "name")
		delete(value, "labels")
		object.SetLabels(labels)
		object.Object["spec"] = value
		return nil
	}}
	if object.GetResourceVersion() != "" {
		p.value = shown(object)
	}
	return p, nil
}

// shown returns a load balancer as clients get it.
func shown(object *unstructured.Unstructured) map[string]any {
	value := maps.Clone(specOf(object))
	value["name"] = object.GetName()
	if labels, found, _ := unstructured.NestedMap(object.Object, "metadata", "labels"); found && len(labels) > 0 {
		value["labels"] = labels
	}
	return value
}

// shownText is shown of a stored load balancer, of which as little as possible is decoded.
func shownText(text []byte) ([]byte, error) {
	var stored struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
		Spec map[string]json.RawMessage
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, err
	}
	value := map[string]any{"name": stored.Metadata.Name}
	for field, text := range stored.Spec {
		value[field] = text
	}
	if len(stored.Metadata.Labels) > 0 {
		value["labels"] = stored.Metadata.Labels
	}
	return json.Marshal(value)
}

// decode reads an object in which whole numbers are int64, as in requests.
func decode(text []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(text)
}

// storedParts are the JSON of the parts of an object.
type storedParts struct{ Metadata, Spec, Status json.RawMessage }

// decodeHead is decode without specification and status, which it returns as they are.
func decodeHead(text []byte) (*unstructured.Unstructured, *storedParts, error) {
	var parts storedParts
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, nil, err
	}
	var metadata map[string]any
	object := newObject("")
	err := utiljson.Unmarshal(parts.Metadata, &metadata)
	object.Object["metadata"] = metadata
	return object, &parts, err
}

func labelsIn(value map[string]any) (map[string]string, error) {
	given, found := value["labels"]
	if !found {
		return nil, nil
	}
	all, ok := given.(map[string]any)
	if !ok {
		return nil, invalid("labels", "want an object")
	}
	labels := map[string]string{}
	for key, value := range all {
		text, ok := value.(string)
		if !ok {
			return nil, invalid("labels."+key, "want a string")
		}
		labels[key] = text
	}
	return labels, nil
}

// identified completes a part by the fields that its path has, with which it has to agree.
func identified(value, keys map[string]any) error {
	for field, want := range keys {
		if given, found := value[field]; found && given != want {
			return invalid(field, fmt.Sprintf("want %v, as in the path", want))
		}
		value[field] = want
	}
	return nil
}

// elements returns the list in a field.
func elements(parent map[string]any, field string) []any {
	list, _ := parent[field].([]any)
	return list
}

// element finds the element of a list with these keys.
func element(parent map[string]any, path, field string, keys map[string]any) part {
	list := elements(parent, field)
	at := slices.IndexFunc(list, func(e any) bool {
		fields, _ := e.(map[string]any)
		for key, want := range keys {
			if fields[key] != want {
				return false
			}
		}
		return fields != nil
	})
	if at < 0 {
		return part{path: fmt.Sprintf("%s%s[%d]", path, field, len(list)), put: func(value map[string]any) error {
			parent[field] = append(list, value)
			return identified(value, keys)
		}}
	}
	value, _ := list[at].(map[string]any)
	return part{
		path: fmt.Sprintf("%s%s[%d]", path, field, at), value: value,
		put: func(value map[string]any) error {
			list[at] = value
			return identified(value, keys)
		},
		remove: func() error {
			parent[field] = slices.Delete(list, at, at+1)
			return nil
		},
	}
}

// items is a whole list.
func items(parent map[string]any, path, field string) part {
	list := elements(parent, field)
	if list == nil {
		list = []any{}
	}
	return part{path: path + field, as: "items", value: map[string]any{"items": list}, put: func(value map[string]any) error {
		list, ok := value["items"].([]any)
		for key := range value {
			if key != "items" {
				return newHTTPError(http.StatusBadRequest, "the body has unknown fields", fieldError{key, "unknown field"})
			}
		}
		if !ok {
			return invalid("items", "want a list")
		}
		parent[field] = list
		return nil
	}}
}

func locateListeners(object *unstructured.Unstructured, _ names) (part, error) {
	return items(specOf(object), "", "listeners"), nil
}

func locateListener(object *unstructured.Unstructured, n names) (part, error) {
	return element(specOf(object), "", "listeners", map[string]any{"name": n.listener}), nil
}

func locatePools(object *unstructured.Unstructured, _ names) (part, error) {
	return items(specOf(object), "", "pools"), nil
}

// locatePool doesn't remove a pool that a listener uses.
func locatePool(object *unstructured.Unstructured, n names) (part, error) {
	spec := specOf(object)
	p := element(spec, "", "pools", map[string]any{"name": n.pool})
	remove := p.remove
	p.remove = func() error {
		for _, e := range elements(spec, "listeners") {
			if l, ok := e.(map[string]any); ok && l["pool"] == n.pool {
				return newHTTPError(http.StatusConflict, fmt.Sprintf("listener %v uses the pool", l["name"]))
			}
		}
		return remove()
	}
	return p, nil
}

// poolOf returns the pool that a part belongs to, and the path of its fields.
func poolOf(object *unstructured.Unstructured, n names) (pool map[string]any, path string, err error) {
	p := element(specOf(object), "", "pools", map[string]any{"name": n.pool})
	if p.value == nil {
		return nil, "", missing("pool", n.pool)
	}
	return p.value, p.path + ".", nil
}

func locateMembers(object *unstructured.Unstructured, n names) (part, error) {
	pool, path, err := poolOf(object, n)
	if err != nil {
		return part{}, err
	}
	return items(pool, path, "members"), nil
}

func locateMember(object *unstructured.Unstructured, n names) (part, error) {
	pool, path, err := poolOf(object, n)
	if err != nil {
		return part{}, err
	}
	at, err := netip.ParseAddrPort(n.member)
	if err != nil {
		return part{}, missing("member", n.member) // paths with such names are rejected
	}
	return element(pool, path, "members", map[string]any{"address": at.Addr().String(), "port": int64(at.Port())}), nil
}

func locateHealthCheck(object *unstructured.Unstructured, n names) (part, error) {
	const field = "healthCheck"
	pool, path, err := poolOf(object, n)
	if err != nil {
		return part{}, err
	}
	value, _ := pool[field].(map[string]any)
	return part{
		path: path + field, value: value,
		put: func(value map[string]any) error {
			pool[field] = value
			return nil
		},
		remove: func() error {
			delete(pool, field)
			return nil
		},
	}, nil
}
