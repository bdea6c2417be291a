// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestMonitoring checks the objects for Prometheus and Grafana: none by default, and with them
// the alerts and the dashboard of the files, and jobs with the names that alerts select.
func TestMonitoring(t *testing.T) {
	for name := range rendered(t, "{}") {
		switch name {
		case "PodMonitor/fairlead-agent", "PodMonitor/fairlead-controller", "PrometheusRule/fairlead", "ConfigMap/fairlead-dashboard", "Secret/fairlead-metrics-reader":
			t.Errorf("%s is rendered by default", name)
		}
	}
	all := rendered(t, full)
	var alerts map[string]any
	if err := yaml.Unmarshal(readFile(t, "..", "prometheus", "alerts.yaml"), &alerts); err != nil {
		t.Fatal(err)
	}
	if got := all["PrometheusRule/fairlead"].Spec; !reflect.DeepEqual(got, alerts) {
		t.Errorf("the PrometheusRule has %v, want %v", got, alerts)
	}
	var want, got any
	if err := json.Unmarshal(readFile(t, "..", "grafana", "fairlead.json"), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(all["ConfigMap/fairlead-dashboard"].Data["fairlead.json"]), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the ConfigMap has another dashboard than the file, error %v", err)
	}
	for monitor, job := range map[string]string{"agent": "fairlead", "controller": "fairlead-controller", "apiserver": "fairlead-apiserver"} {
		var spec struct {
			PodMetricsEndpoints []struct {
				Relabelings []struct {
					Target      string `yaml:"targetLabel"`
					Replacement string
				}
				Authorization struct{ Credentials struct{ Name, Key string } }
			} `yaml:"podMetricsEndpoints"`
		}
		text, err := yaml.Marshal(all["PodMonitor/fairlead-"+monitor].Spec)
		if err == nil {
			err = yaml.Unmarshal(text, &spec)
		}
		if err != nil || len(spec.PodMetricsEndpoints) != 1 {
			t.Fatalf("%s: error %v in\n%s", monitor, err, text)
		}
		endpoint := spec.PodMetricsEndpoints[0]
		if len(endpoint.Relabelings) != 1 || endpoint.Relabelings[0].Target != "job" || endpoint.Relabelings[0].Replacement != job {
			t.Errorf("%s: %+v, want the job %s", monitor, endpoint.Relabelings, job)
		}
		secret := endpoint.Authorization.Credentials.Name
		if _, there := all["Secret/"+secret]; !there {
			t.Errorf("%s: credentials %+v aren't in the chart", monitor, endpoint.Authorization)
		}
	}
}
