// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"reflect"
	"testing"
)

const document = `{"definitions": {
	"apps.Deployment": {
		"description": "A Deployment.", "type": "object",
		"properties": {"spec": {"$ref": "#/definitions/apps.Spec"}, "format": {"type": "string", "format": "date-time"}},
		"x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Deployment"}]
	},
	"apps.Spec": {"type": "object", "properties": {
		"ports": {"type": "array", "items": {"$ref": "#/definitions/Port"}},
		"self": {"$ref": "#/definitions/apps.Spec"},
		"labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
	"Port": {"description": "text or number", "type": "string", "format": "int-or-string"},
	"Namespace": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Namespace"}]},
	"Options": {"type": "object", "x-kubernetes-group-version-kind": [
		{"group": "", "version": "v1", "kind": "Options"}, {"group": "apps", "version": "v1", "kind": "Options"}]}
}}`

// A kind's schema is strict at all depths, and complete.
func TestOfOpenAPI(t *testing.T) {
	got, err := ofOpenAPI([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	const deployment = `{
		"type": "object", "additionalProperties": false,
		"properties": {"spec": {"$ref": "#/definitions/apps.Spec"}, "format": {"type": "string"}},
		"x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Deployment"}],
		"definitions": {
			"apps.Spec": {"type": "object", "additionalProperties": false, "properties": {
				"ports": {"type": "array", "items": {"$ref": "#/definitions/Port"}},
				"self": {"$ref": "#/definitions/apps.Spec"},
				"labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
			"Port": {"type": ["string", "number"]}
		}
	}`
	text, err := json.Marshal(got["deployment-apps-v1"])
	if err != nil {
		t.Fatal(err)
	}
	var have, want any
	if err := json.Unmarshal(text, &have); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(deployment), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("got %s", text)
	}
	if _, ok := got["namespace-v1"]; !ok || len(got) != 2 {
		t.Errorf("%d kinds, with Namespace: %v; want 2", len(got), ok)
	}
}

func TestFileName(t *testing.T) {
	for _, c := range []struct{ group, version, kind, want string }{
		{"", "v1", "Service", "service-v1"},
		{"rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterrole-rbac-v1"},
		{"fairlead.io", "v1alpha1", "AddressPool", "addresspool-fairlead-v1alpha1"},
	} {
		if got := fileName(c.group, c.version, c.kind); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.group, c.kind, got, c.want)
		}
	}
}
