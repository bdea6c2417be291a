// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/spec"
)

// Counters of 4,096 listeners fit into one object also if all names are UUIDs, as OpenStack's are.
// With the longest names the last listeners are omitted.
func TestStatistics(t *testing.T) {
	const (
		listeners = 4096
		// most is the largest size of all listeners.
		most = 900_000
	)
	uuid := func(n int) string { return fmt.Sprintf("%08x-1111-2222-3333-444444444444", n) }
	for name, test := range map[string]struct {
		service func(n int) string
		traffic uint64
		omits   bool
		size    int // of the object; it may be a tenth smaller
	}{
		"short names":   {func(n int) string { return fmt.Sprintf("flb:project-web/shop%d/http", n) }, 1 << 40, false, 440_000},
		"OpenStack":     {func(n int) string { return "flb:project-" + uuid(n)[:32] + "/" + uuid(n) + "/" + uuid(n) }, 1 << 40, false, 850_000},
		"longest names": {func(n int) string { return fmt.Sprintf("flb:%0371d", n) }, math.MaxUint64, true, most},
	} {
		t.Run(name, func(t *testing.T) {
			s := source.Statistics{Read: time.Unix(1, 0)}
			for n := range listeners {
				s.Listeners = append(s.Listeners, source.ListenerStatistics{
					Service: test.service(n), Packets: test.traffic / 1000, Bytes: test.traffic, NewFlows: test.traffic / 100_000,
				})
			}
			status := spec.Statistics(&s)
			text, err := json.Marshal(v1alpha1.BalancerNodeStatistics{Status: status})
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > test.size || len(text) < test.size/10*9 {
				t.Errorf("%d bytes, want at most %d and not much less", len(text), test.size)
			}
			listed := len(status.Listeners)
			if listed+int(status.OmittedListeners) != listeners || (status.OmittedListeners > 0) != test.omits {
				t.Errorf("%d listeners and %d omitted of %d", listed, status.OmittedListeners, listeners)
			}
			for n, l := range status.Listeners {
				if want := test.service(n); l.Service != want || l.Bytes != int64(min(test.traffic, math.MaxInt64)) {
					t.Fatalf("listener %d is %+v, want the service %s", n, l, want)
				}
			}
			if !strings.Contains(string(text), `"reported":"1970-01-01T00:00:01Z"`) {
				t.Errorf("no time in %.100s", text)
			}
		})
	}
}
