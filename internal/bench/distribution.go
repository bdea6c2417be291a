// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// precision is how finely measurements are counted: a thousandth of the unit,
	// which is a microsecond of times in milliseconds, and three digits.
	precision = 1e-3
	digits    = 3
	// maxBuckets bounds how many buckets a distribution is shown in, barWidth how
	// long the longest bar is.
	maxBuckets = 24
	barWidth   = 50
)

// Distribution is how often measurements were how large.
type Distribution struct {
	// P90, P99 and P999 are percentiles.
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	// Buckets are equally wide, and those that are empty are left out.
	Buckets []Bucket `json:"buckets"`
}

// Bucket counts the measurements from From on to below To.
type Bucket struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Count int64   `json:"count"`
}

// AddDistribution reports the measurements of one quantity with their
// distribution. None of them is negative.
func (r *Report) AddDistribution(name, unit string, runs Runs, labels map[string]string) {
	if len(runs) == 0 {
		return
	}
	r.Add(name, unit, runs, labels)
	r.Results[len(r.Results)-1].Distribution = distribute(runs)
}

func distribute(runs Runs) *Distribution {
	_, largest := runs.Bounds()
	ticks := func(v float64) int64 { return int64(math.Round(v / precision)) }
	histogram := hdrhistogram.New(1, max(2, ticks(largest)), digits)
	for _, v := range runs {
		// Only what is larger than the largest can't be counted.
		_ = histogram.RecordValue(ticks(v))
	}
	percentile := func(p float64) float64 { return float64(histogram.ValueAtPercentile(p)) * precision }
	return &Distribution{P90: percentile(90), P99: percentile(99), P999: percentile(99.9), Buckets: count(runs)}
}

// count puts measurements into buckets.
func count(runs Runs) []Bucket {
	_, largest := runs.Bounds()
	width := bucketWidth(largest)
	counts := map[int]int64{}
	for _, v := range runs {
		counts[int(v/width)]++
	}
	var buckets []Bucket
	for _, n := range slices.Sorted(maps.Keys(counts)) {
		buckets = append(buckets, Bucket{From: float64(n) * width, To: float64(n+1) * width, Count: counts[n]})
	}
	return buckets
}

// bucketWidth is 1, 2 or 5 times a power of ten, and wide enough for few buckets.
func bucketWidth(largest float64) float64 {
	for width := precision; ; width *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if largest < width*step*maxBuckets {
				return width * step
			}
		}
	}
}

// write draws a bar for each bucket.
func (d *Distribution) write(w io.Writer, unit string) {
	most := int64(1)
	for _, b := range d.Buckets {
		most = max(most, b.Count)
	}
	for _, b := range d.Buckets {
		bar := strings.Repeat("#", int((b.Count*barWidth+most-1)/most))
		fmt.Fprintf(w, "  %s to %s %s\t%d\t%s\n", number(b.From), number(b.To), unit, b.Count, bar)
	}
	fmt.Fprintf(w, "  90 %% within %s %s, 99 %% within %s, 99.9 %% within %s\n", number(d.P90), unit, number(d.P99), number(d.P999))
}
