// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// counted is a node's report of a time in seconds, with counters of listeners: packets, and a
// hundred times as many bytes.
func counted(second int64, packets map[string]int64) *v1alpha1.BalancerNodeStatisticsStatus {
	s := &v1alpha1.BalancerNodeStatisticsStatus{Reported: metav1.NewTime(time.Unix(second, 0).UTC())}
	for _, service := range slices.Sorted(maps.Keys(packets)) {
		n := packets[service]
		s.Listeners = append(s.Listeners, v1alpha1.ListenerStatistics{Service: service, Packets: n, Bytes: 100 * n, NewFlows: n / 10})
	}
	return s
}

func TestTraffic(t *testing.T) {
	type counters = map[string]int64
	const (
		tcp, udp = "flb:project-web/lb/tcp", "flb:project-web/lb/udp"
		answer   = `{"name":"lb","nodes":%d,"reportedNodes":%d,%s"packets":%d,"bytes":%d,"newFlows":%d,` +
			`"listeners":[{"name":"tcp","packets":%d,"bytes":%d,"newFlows":%d},{"name":"udp","packets":%d,"bytes":%d,"newFlows":%d}]}`
	)
	for name, test := range map[string]struct {
		reports         map[string]*v1alpha1.BalancerNodeStatisticsStatus
		reported        int
		oldest          int64
		tcp, udp, total traffic
	}{
		"no group":                {},
		"no report":               {reports: map[string]*v1alpha1.BalancerNodeStatisticsStatus{"n1": nil, "n2": nil}},
		"nothing forwarded":       {reports: map[string]*v1alpha1.BalancerNodeStatisticsStatus{"n1": counted(7, counters{tcp: 0, udp: 0})}, reported: 1, oldest: 7},
		"a listener is not there": {reports: map[string]*v1alpha1.BalancerNodeStatisticsStatus{"n1": counted(7, counters{udp: 20})}, reported: 1, oldest: 7, udp: traffic{20, 2000, 2}, total: traffic{20, 2000, 2}},
		"three nodes, one without a report": {
			reports: map[string]*v1alpha1.BalancerNodeStatisticsStatus{
				"n1": counted(9, counters{tcp: 10, udp: 20}), "n2": nil, "n3": counted(8, counters{tcp: 1000, udp: 0}),
			},
			reported: 2, oldest: 8, tcp: traffic{1010, 101_000, 101}, udp: traffic{20, 2000, 2}, total: traffic{1030, 103_000, 103},
		},
		"others' listeners, and one that the load balancer had": {
			reports: map[string]*v1alpha1.BalancerNodeStatisticsStatus{
				"n1": counted(9, counters{tcp: 10, "flb:project-db/lb/tcp": 20, "flb:project-web/lb2/tcp": 30, "flb:project-web/lb/old": 40, "project-web/lb/tcp": 50}),
				"n2": counted(1, counters{"flb:project-db/lb/tcp": 20}),
			},
			reported: 1, oldest: 9, tcp: traffic{10, 1000, 1}, total: traffic{10, 1000, 1},
		},
		"more than a number holds": {
			reports: map[string]*v1alpha1.BalancerNodeStatisticsStatus{
				"n1": {Listeners: []v1alpha1.ListenerStatistics{{Service: tcp, Bytes: math.MaxInt64}}, Reported: metav1.Unix(1, 0)}, "n2": counted(2, counters{tcp: 10}),
			},
			reported: 2, oldest: 1, tcp: traffic{10, math.MaxInt64, 1}, total: traffic{10, math.MaxInt64, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(trafficOf(served(), test.reports))
			if err != nil {
				t.Fatal(err)
			}
			oldest := ""
			if test.reported > 0 {
				oldest = fmt.Sprintf(`"oldestReport":"1970-01-01T00:00:%02dZ",`, test.oldest)
			}
			want := fmt.Sprintf(answer, len(test.reports), test.reported, oldest, test.total.Packets, test.total.Bytes, test.total.NewFlows,
				test.tcp.Packets, test.tcp.Bytes, test.tcp.NewFlows, test.udp.Packets, test.udp.Bytes, test.udp.NewFlows)
			if string(got) != want {
				t.Errorf("got\n%s, want\n%s", got, want)
			}
		})
	}
}

// Clients read the reported counters of load balancers of their projects.
func TestStatistics(t *testing.T) {
	a := newAPI(t, 1)
	const path = base + "/lb/statistics"
	a.must(404, "web", "GET", path, "")
	a.must(201, "web", "PUT", base+"/lb", `{"forward":"nat","listeners":[{"name":"http","port":80}]}`)
	a.must(204, "node", "PUT", "/v1/nodes/n1/report", reported)
	for node, packets := range map[string]int{"n2": 10, "n3": 20} {
		a.must(204, "node", "PUT", "/v1/nodes/"+node+"/statistics", fmt.Sprintf(`{"reported":"1970-01-01T00:00:%dZ",`+
			`"listeners":[{"service":"flb:web/lb/http","packets":%d,"bytes":0,"newFlows":0}]}`, packets, packets))
	}
	got := a.must(422, "node", "PUT", "/v1/nodes/n3/statistics", `{"reported":"1970-01-01T00:00:00Z","listeners":[{"service":"flb:web/lb/http","packets":-1,"bytes":0,"newFlows":0}]}`)
	if !strings.Contains(got.body, `"field":"listeners[0].packets"`) {
		t.Errorf("got %s, want the field", got.body)
	}
	const want = `{"name":"lb","nodes":3,"reportedNodes":2,"oldestReport":"1970-01-01T00:00:10Z","packets":30,"bytes":0,"newFlows":0,` +
		`"listeners":[{"name":"http","packets":30,"bytes":0,"newFlows":0}]}`
	answer := a.must(200, "reader", "GET", path, "")
	if answer.body != want {
		t.Errorf("got\n%s, want\n%s", answer.body, want)
	}
	a.must(304, "web", "GET", path, "", "If-None-Match", answer.header.Get("ETag"))
	a.must(400, "web", "GET", path+"?limit=1", "")
	a.must(405, "web", "PUT", path, `{}`)
}
