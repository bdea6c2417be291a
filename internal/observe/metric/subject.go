// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.io/fairlead/internal/reconcile"
)

// subject is a kind of things that have the same metrics, told apart by labels.
type subject[T any] struct {
	labels []string
	// things finds them in a look.
	things func(*look) []T
	// values are a thing's, of the labels.
	values  func(T) []string
	metrics []metric[T]
}

// metric is one property of a thing. It has a value, or a histogram.
type metric[T any] struct {
	name, help string
	kind       kind
	// value may be none of a gauge or a counter.
	value     func(T) float64
	durations func(T) reconcile.Durations
	desc      *prometheus.Desc
}

// kind is a metric's type, in the words of Prometheus.
type kind string

const (
	kindCounter   kind = "counter"
	kindGauge     kind = "gauge"
	kindHistogram kind = "histogram"
)

// valueType is that of a kind whose samples are single values.
func (k kind) valueType() prometheus.ValueType {
	if k == kindCounter {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// counter only grows, as long as its thing is there.
func counter[T any](name, help string, value func(T) float64) metric[T] {
	return metric[T]{name: name, help: help, kind: kindCounter, value: value}
}

// gauge is a number of now.
func gauge[T any](name, help string, value func(T) float64) metric[T] {
	return metric[T]{name: name, help: help, kind: kindGauge, value: value}
}

// histogram counts how often something took how many seconds.
func histogram[T any](name, help string, durations func(T) reconcile.Durations) metric[T] {
	return metric[T]{name: name, help: help, kind: kindHistogram, durations: durations}
}

// info is 1: what it tells is in the labels.
func info[T any](name, help string) metric[T] {
	return gauge(name, help, func(T) float64 { return 1 })
}

// none is the value of a thing that has none; no sample of it is shown.
func none() float64 { return math.NaN() }

// truth is 1 if something holds, else 0.
func truth(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// prepared has the descriptions that all samples share.
func (s subject[T]) prepared() *subject[T] {
	for i := range s.metrics {
		m := &s.metrics[i]
		m.desc = prometheus.NewDesc(m.name, m.help, s.labels, nil)
	}
	return &s
}

// reference is what docs/metrics.md tells of a metric.
type reference struct {
	name, help string
	kind       kind
	labels     []string
}

func (s *subject[T]) references() []reference {
	list := make([]reference, len(s.metrics))
	for i, m := range s.metrics {
		list[i] = reference{name: m.name, help: m.help, kind: m.kind, labels: s.labels}
	}
	return list
}

func (s *subject[T]) describe(to chan<- *prometheus.Desc) {
	for _, m := range s.metrics {
		to <- m.desc
	}
}

func (s *subject[T]) collect(now *look, to chan<- prometheus.Metric) {
	for _, thing := range s.things(now) {
		var values []string
		if s.values != nil {
			values = s.values(thing)
		}
		for _, m := range s.metrics {
			m.collect(thing, values, to)
		}
	}
}

func (m metric[T]) collect(thing T, values []string, to chan<- prometheus.Metric) {
	sample, err := m.sample(thing, values)
	if err != nil {
		sample = prometheus.NewInvalidMetric(m.desc, err)
	}
	if sample != nil {
		to <- sample
	}
}

// sample is nil if the thing has no value.
func (m metric[T]) sample(thing T, values []string) (prometheus.Metric, error) {
	if m.kind != kindHistogram {
		value := m.value(thing)
		if math.IsNaN(value) {
			return nil, nil
		}
		return prometheus.NewConstMetric(m.desc, m.kind.valueType(), value, values...)
	}
	durations := m.durations(thing)
	buckets := map[float64]uint64{}
	for bound, count := range durations.UpTo() {
		buckets[bound.Seconds()] = count
	}
	return prometheus.NewConstHistogram(m.desc, durations.Count, durations.Sum.Seconds(), buckets, values...)
}
