// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Runs are the measurements of one quantity, in the order of the rounds.
type Runs []float64

// Median is the middle measurement, or the mean of the two in the middle; 0 if there
// is none.
func (r Runs) Median() float64 {
	if len(r) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Percentile is the smallest measurement that p percent, above 0 and at most 100, don't exceed;
// 0 if there is none.
func (r Runs) Percentile(p float64) float64 {
	if len(r) == 0 {
		return 0
	}
	const hundred = 100
	sorted := slices.Sorted(slices.Values(r))
	return sorted[int(math.Ceil(float64(len(r))*p/hundred))-1]
}

// Sum adds all measurements.
func (r Runs) Sum() float64 {
	total := 0.0
	for _, v := range r {
		total += v
	}
	return total
}

// Minus subtracts the measurements of the same rounds; nil unless both sides have them.
func (r Runs) Minus(o Runs) Runs {
	if len(r) == 0 || len(r) != len(o) {
		return nil
	}
	difference := slices.Clone(r)
	for i := range difference {
		difference[i] -= o[i]
	}
	return difference
}

// Bounds are the smallest and the largest measurement; 0 if there is none.
func (r Runs) Bounds() (low, high float64) {
	if len(r) == 0 {
		return 0, 0
	}
	return slices.Min(r), slices.Max(r)
}

// Ratio is the median of a[i]/b[i]. Both sides of a round are measured one after
// the other, so a temporary slowdown of the whole machine cancels out.
func Ratio(a, b Runs) (float64, error) {
	if len(a) != len(b) || len(a) == 0 {
		return 0, fmt.Errorf("%d rounds over %d", len(a), len(b))
	}
	ratios := make(Runs, len(a))
	for i := range a {
		if b[i] == 0 {
			return 0, errors.New("division by zero")
		}
		ratios[i] = a[i] / b[i]
	}
	return ratios.Median(), nil
}

// Correlation is Pearson's of two series of the same length: 1 if they rise together
// in a straight line, 0 if one of them is constant.
func Correlation(a, b Runs) float64 {
	meanA, meanB := a.Sum()/float64(len(a)), b.Sum()/float64(len(b))
	var both, ofA, ofB float64
	for i := range a {
		x, y := a[i]-meanA, b[i]-meanB
		both, ofA, ofB = both+x*y, ofA+x*x, ofB+y*y
	}
	if ofA == 0 || ofB == 0 {
		return 0
	}
	return both / math.Sqrt(ofA*ofB)
}

const (
	// narrowest is the least width of a bucket: a microsecond of times in milliseconds.
	narrowest = 1e-3
	// maxBuckets and barWidth bound how a distribution is shown.
	maxBuckets = 24
	barWidth   = 50
)

// Distribution summarises many measurements of one quantity.
type Distribution struct {
	// P90, P99 and P999 are percentiles.
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	// Buckets are equally wide; empty ones are left out.
	Buckets []Bucket `json:"buckets"`
}

// Bucket counts the measurements from From on to below To.
type Bucket struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Count int64   `json:"count"`
}

// AddDistribution adds the measurements of one quantity, none negative, with their
// distribution.
func (r *Report) AddDistribution(name, unit string, runs Runs, labels map[string]string) {
	if len(runs) == 0 {
		return
	}
	r.Add(name, unit, runs, labels)
	r.Results[len(r.Results)-1].Distribution = &Distribution{
		P90: runs.Percentile(90), P99: runs.Percentile(99), P999: runs.Percentile(99.9), Buckets: count(runs),
	}
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
	for width := narrowest; ; width *= 10 {
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
