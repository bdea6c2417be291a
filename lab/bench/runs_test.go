// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func TestDistribution(t *testing.T) {
	r, err := NewReport("ecmp", "abc123", true)
	if err != nil {
		t.Fatal(err)
	}
	r.AddDistribution("delay", "ms", nil, nil)
	r.AddDistribution("delay", "ms", Runs{61, 62.5, 63, 68, 140}, map[string]string{"router": "frr"})
	if len(r.Results) != 1 {
		t.Fatalf("%d results, want the one that was measured", len(r.Results))
	}
	got := r.Results[0].Distribution
	want := []Bucket{{60, 70, 4}, {140, 150, 1}}
	if !reflect.DeepEqual(got.Buckets, want) || got.P90 != 140 || got.P99 != 140 {
		t.Errorf("distribution %+v, want buckets %v", got, want)
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	if bar := "60 to 70 ms    4  " + strings.Repeat("#", barWidth) + "\n"; !strings.Contains(out.String(), bar) {
		t.Errorf("table lacks %q:\n%s", bar, out.String())
	}
}

// Nothing is lost on the way into buckets, whatever the size of the measurements,
// and there are few of them.
func TestDistributionCountsAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		scale := math.Pow(10, random.Float64()*8-2)
		var runs Runs
		for range 1 + random.IntN(500) {
			runs = append(runs, random.Float64()*scale)
		}
		buckets, counted := count(runs), int64(0)
		for i, b := range buckets {
			counted += b.Count
			if b.Count < 1 || b.To <= b.From || i > 0 && b.From < buckets[i-1].From {
				t.Fatalf("bucket %+v of %v", b, buckets)
			}
		}
		if counted != int64(len(runs)) || len(buckets) > maxBuckets+1 {
			t.Fatalf("%d of %d counted, in %d buckets", counted, len(runs), len(buckets))
		}
	}
}

func TestCorrelation(t *testing.T) {
	for _, c := range []struct {
		a, b Runs
		want float64
	}{
		{Runs{1, 2, 3}, Runs{10, 20, 30}, 1},
		{Runs{1, 2, 3}, Runs{3, 2, 1}, -1},
		{Runs{1, 2, 3}, Runs{5, 5, 5}, 0},
	} {
		if got := Correlation(c.a, c.b); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v and %v: %g, want %g", c.a, c.b, got, c.want)
		}
	}
}
