// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/internal/config"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// Services with all properties become the recorded ones of lb.
func TestServices(t *testing.T) {
	text, err := os.ReadFile("testdata/services.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/services.json")
	if err != nil {
		t.Fatal(err)
	}
	conf, err := config.Parse("f", string(text), dataplanetest.Limits())
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(conf.Services, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
