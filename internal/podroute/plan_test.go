// SPDX-License-Identifier: Apache-2.0

package podroute

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// balancer is a pod as the API server has it.
func balancer(prefixes string, ready corev1.ConditionStatus, addresses ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Annotations: map[string]string{Annotation: prefixes}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	for _, a := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

func TestReadPod(t *testing.T) {
	share := &Share{"shop", []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:10::/64")}}
	p, err := readPod(balancer("10.1.1.7/24, fd00:10::/64", corev1.ConditionTrue, "10.244.1.2", "fd44::2"), share)
	if err != nil || fmt.Sprint(p.prefixes, p.addresses, p.ready) != "[10.1.1.0/24 fd00:10::/64] [10.244.1.2 fd44::2] true" {
		t.Errorf("%+v, error %v", p, err)
	}
	ended := balancer("10.1.1.0/24", corev1.ConditionFalse, "10.244.1.2")
	ended.Status.Phase = corev1.PodSucceeded
	if p, err := readPod(ended, share); err != nil || len(p.addresses) > 0 || p.ready {
		t.Errorf("a pod that has ended: %+v, error %v", p, err)
	}
	onNode := balancer("10.1.1.0/24", corev1.ConditionTrue, "172.30.0.11")
	onNode.Spec.HostNetwork = true
	for want, pod := range map[string]*corev1.Pod{
		"no '/'":        balancer("10.1.1.1", corev1.ConditionTrue),
		"default route": balancer("10.1.1.0/24,0.0.0.0/0", corev1.ConditionTrue),
		"hostNetwork":   onNode,
		"10.2.0.0/24 is not for namespace shop, which has [10.1.0.0/16 fd00:10::/64]": balancer("10.1.1.0/24,10.2.0.0/24", corev1.ConditionTrue),
		"10.0.0.0/8 is not for":   balancer("10.0.0.0/8", corev1.ConditionTrue),
		"fd00:10::/48 is not for": balancer("fd00:10::/48", corev1.ConditionTrue),
	} {
		if _, err := readPod(pod, share); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// text describes a plan in one line: routes and announcements.
func (p *plan) text() string {
	var parts []string
	for _, r := range p.routes {
		parts = append(parts, fmt.Sprint(r.prefix, " via ", r.via))
	}
	for _, r := range p.announced {
		leaving := ""
		if r.GracefulShutdown {
			leaving = " leaving"
		}
		parts = append(parts, fmt.Sprint("announce ", r.Prefix, leaving))
	}
	return strings.Join(parts, "; ")
}

func TestDecide(t *testing.T) {
	now := time.Unix(1000, 0)
	web, both := "10.1.1.0/24", "10.1.1.0/24 fd00:10::/64"
	one := func(address, prefixes string, ready bool, leaving time.Duration) pod {
		p := pod{name: address, ready: ready}
		for text := range strings.FieldsSeq(address) {
			p.addresses = append(p.addresses, netip.MustParseAddr(text))
		}
		for text := range strings.FieldsSeq(prefixes) {
			p.prefixes = append(p.prefixes, netip.MustParsePrefix(text))
		}
		if leaving > 0 {
			p.leaving = now.Add(-leaving)
		}
		return p
	}
	const delay = 500 * time.Millisecond
	for name, c := range map[string]struct {
		pods []pod
		want string
		next time.Duration
	}{
		"no pods":     {nil, "", 0},
		"no address":  {[]pod{one("", web, false, 0)}, "", 0},
		"one":         {[]pod{one("10.244.1.2", web, true, 0)}, "10.1.1.0/24 via [10.244.1.2]; announce 10.1.1.0/24", 0},
		"starting":    {[]pod{one("10.244.1.2", web, false, 0)}, "10.1.1.0/24 via [10.244.1.2]", 0},
		"two of one":  {[]pod{one("10.244.1.3", web, true, 0), one("10.244.1.2", web, true, 0)}, "10.1.1.0/24 via [10.244.1.2 10.244.1.3]; announce 10.1.1.0/24", 0},
		"one starts":  {[]pod{one("10.244.1.3", web, false, 0), one("10.244.1.2", web, true, 0)}, "10.1.1.0/24 via [10.244.1.2]; announce 10.1.1.0/24", 0},
		"one leaves":  {[]pod{one("10.244.1.3", web, true, 0), one("10.244.1.2", web, true, 1)}, "10.1.1.0/24 via [10.244.1.3]; announce 10.1.1.0/24", 0},
		"last leaves": {[]pod{one("10.244.1.2", web, true, delay/2)}, "10.1.1.0/24 via [10.244.1.2]; announce 10.1.1.0/24 leaving", delay / 2},
		"drains":      {[]pod{one("10.244.1.2", web, false, delay/2)}, "10.1.1.0/24 via [10.244.1.2]; announce 10.1.1.0/24 leaving", delay / 2},
		"left":        {[]pod{one("10.244.1.2", web, false, delay)}, "10.1.1.0/24 via [10.244.1.2]", 0},
		"families": {[]pod{one("10.244.1.2 fd44::2", both, true, 0)},
			"10.1.1.0/24 via [10.244.1.2]; fd00:10::/64 via [fd44::2]; announce 10.1.1.0/24; announce fd00:10::/64", 0},
		"IPv4 only": {[]pod{one("10.244.1.2", both, true, 0)}, "10.1.1.0/24 via [10.244.1.2]; announce 10.1.1.0/24", 0},
	} {
		p := decide(slices.Clone(c.pods), now, delay)
		next := time.Duration(0)
		if !p.next.IsZero() {
			next = p.next.Sub(now)
		}
		if p.text() != c.want || next != c.next {
			t.Errorf("%s: %q, next in %s, want %q in %s", name, p.text(), next, c.want, c.next)
		}
	}
}
