// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source/kube/annotation"
)

// group is what is kept of a LoadBalancerGroup.
type group struct {
	// nodes are its nodes' names.
	nodes   []string
	forward lb.Forward
	health  *lb.HealthCheck
	// problem is what is wrong with it.
	problem string
}

func readGroup(g *v1alpha1.LoadBalancerGroup) *group {
	own := &group{forward: lb.DNAT}
	for _, n := range g.Status.Nodes {
		own.nodes = append(own.nodes, n.Name)
	}
	if text := g.Spec.DataPlane.Forward; text != "" && own.forward.UnmarshalText([]byte(text)) != nil {
		own.forward, own.problem = lb.DNAT, fmt.Sprintf("spec.dataPlane.forward: unknown mode %q: dnat is used", text)
	}
	health, err := readHealth(g.Spec.DataPlane.HealthCheck)
	if own.health = health; err != nil {
		own.problem = "spec.dataPlane.healthCheck: " + err.Error()
	}
	return own
}

// has reports whether a node is in it.
func (g *group) has(node string) bool { return slices.Contains(g.nodes, node) }

func (g *group) equal(o *group) bool { return reflect.DeepEqual(g, o) }

// readHealth reads a check with its defaults; nil is none.
func readHealth(c *v1alpha1.HealthCheck) (*lb.HealthCheck, error) {
	if c == nil {
		return nil, nil
	}
	h := &lb.HealthCheck{
		Path: c.Path, Interval: annotation.DefaultInterval,
		Rise: cmp.Or(int(c.Rise), annotation.DefaultRise), Fall: cmp.Or(int(c.Fall), annotation.DefaultFall),
	}
	if err := h.Type.UnmarshalText([]byte(c.Type)); err != nil {
		return nil, err
	}
	if c.Port < 0 || c.Port > math.MaxUint16 {
		return nil, fmt.Errorf("port: %w", lb.OutOfRange(c.Port, 1, math.MaxUint16))
	}
	h.Port = uint16(c.Port)
	if web := h.Type == lb.HealthHTTP || h.Type == lb.HealthHTTPS; web {
		h.Path = cmp.Or(h.Path, annotation.DefaultPath)
	}
	if c.Interval != nil {
		h.Interval = c.Interval.Duration
	}
	h.Timeout = min(annotation.DefaultTimeout, max(h.Interval, time.Nanosecond))
	if c.Timeout != nil {
		h.Timeout = c.Timeout.Duration
	}
	return h, nil
}
