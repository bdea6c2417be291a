// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/test/fuzzrand"
)

// TestAPIServerRandom simulates users, administrators and failures at random: Services that are
// created, edited and deleted, pools that come, go and overlap, controllers that are restarted or
// cut off. A watch sees every version of every Service: never do two own one address and port.
// Without changes every Service that can have an address has one. It takes about twenty seconds, or
// FAIRLEAD_FUZZ; FAIRLEAD_SEED repeats it.
func TestAPIServerRandom(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	length, seed := fuzzrand.Duration(t, 12*time.Second), fuzzrand.Seed(t)
	r := &randomHistory{testCluster: w, rand: rand.New(rand.NewPCG(seed, seed)), watch: w.watchOwners()}
	r.pools()
	steps := 0
	for ends := time.Now().Add(length); time.Now().Before(ends); steps++ {
		r.step()
	}
	r.settle()
	seen, given := r.watch.counts()
	t.Logf("%d controllers, %d versions of Services, %d addresses given", r.begun, seen, given)
	fuzzrand.Covered(t, 1, steps)
}

// randomHistory is a cluster with random changes.
type randomHistory struct {
	*testCluster
	rand  *rand.Rand
	watch *owners
	// running are at most two controllers.
	running []*running
	begun   int
}

// services is how many names Services have: few, so that they are made again.
const services = 24

// ranges are the addresses of pools: fewer than all Services need, and with overlaps.
func ranges() []v1alpha1.AddressRange {
	return []v1alpha1.AddressRange{"192.0.2.0/30", "192.0.2.2-192.0.2.6", "192.0.2.8/30", "2001:db8::/126", "2001:db8::2-2001:db8::5"}
}

func (r *randomHistory) pools() {
	for i := range 3 {
		p := &v1alpha1.AddressPool{}
		p.Name = fmt.Sprintf("pool%d", i)
		p.Spec.Addresses = r.someRanges()
		r.create(p)
	}
}

func (r *randomHistory) someRanges() []v1alpha1.AddressRange {
	all := ranges()
	r.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+r.rand.IntN(3)]
}

// step does one operation. Writes that race with the controller may be refused.
func (r *randomHistory) step() {
	var err error
	switch n := r.rand.IntN(100); {
	case n < 40:
		err = r.Create(r.Context(), r.randomService())
	case n < 65:
		err = r.Delete(r.Context(), newService(r.name()))
	case n < 90:
		err = r.change()
	case n < 98:
		err = r.changePool()
	default:
		r.changeControllers()
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		r.Error(err)
	}
}

func (r *randomHistory) name() string { return fmt.Sprintf("s%d", r.rand.IntN(services)) }

func (r *randomHistory) randomService() *corev1.Service {
	svc := newService(r.name())
	switch r.rand.IntN(4) {
	case 0:
		dual(svc, corev1.IPFamilyPolicyPreferDualStack)
	case 1:
		dual(svc, corev1.IPFamilyPolicyRequireDualStack)
	}
	r.wish(svc)
	return svc
}

// wish changes the request of a Service.
func (r *randomHistory) wish(svc *corev1.Service) {
	if svc.Annotations == nil {
		svc.Annotations = map[string]string{}
	}
	for _, a := range []string{v1alpha1.AnnotationSharingKey, v1alpha1.AnnotationAddresses, v1alpha1.AnnotationAddressPool} {
		delete(svc.Annotations, a)
	}
	svc.Spec.Ports = []corev1.ServicePort{{Port: int32(80 + r.rand.IntN(3))}}
	if r.rand.IntN(2) == 0 {
		svc.Annotations[v1alpha1.AnnotationSharingKey] = fmt.Sprintf("key%d", r.rand.IntN(2))
	}
	switch r.rand.IntN(7) {
	case 0:
		svc.Annotations[v1alpha1.AnnotationAddresses] = fmt.Sprintf("192.0.2.%d", r.rand.IntN(8))
	case 2:
		svc.Annotations[v1alpha1.AnnotationAddresses] = "not an address"
	case 1:
		svc.Annotations[v1alpha1.AnnotationAddressPool] = fmt.Sprintf("pool%d", r.rand.IntN(3))
	}
}

func (r *randomHistory) change() error {
	svc := newService(r.name())
	if err := r.Get(r.Context(), keyOf(svc), svc); err != nil {
		return err
	}
	switch {
	case svc.Spec.Type == corev1.ServiceTypeClusterIP:
		svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &class
	case r.rand.IntN(3) == 0:
		svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	default:
		r.wish(svc)
	}
	return r.Update(r.Context(), svc)
}

func (r *randomHistory) changePool() error {
	p := &v1alpha1.AddressPool{}
	p.Name = fmt.Sprintf("pool%d", r.rand.IntN(3))
	if err := r.Get(r.Context(), keyOf(p), p); err != nil {
		p.Spec.Addresses = r.someRanges()
		return r.Create(r.Context(), p)
	}
	if r.rand.IntN(3) == 0 {
		return r.Delete(r.Context(), p)
	}
	p.Spec.Addresses = r.someRanges()
	return r.Update(r.Context(), p)
}

// changeControllers begins, ends or cuts off a controller.
func (r *randomHistory) changeControllers() {
	if len(r.running) < 2 {
		r.running = append(r.running, r.run(shortLease))
		r.begun++
		return
	}
	i := r.rand.IntN(2)
	if r.rand.IntN(2) == 0 {
		r.running[i].stop()
	} else {
		r.running[i].crash()
	}
	r.running = slices.Delete(r.running, i, i+1)
}

// settle has one controller run, and waits until everything is as it has to be.
func (r *randomHistory) settle() {
	if len(r.running) == 0 {
		r.running = append(r.running, r.run(shortLease))
	}
	r.await("everything to be settled", r.settled)
	r.watch.check()
}

// settled returns an error if an address is outside of all pools, or a Service has none and could
// have one.
func (r *randomHistory) settled() error {
	ctx := context.WithoutCancel(r.Context())
	var (
		pools     v1alpha1.AddressPoolList
		all       corev1.ServiceList
		balancers v1alpha1.LoadBalancerList
	)
	if err := errors.Join(r.List(ctx, &pools), r.List(ctx, &all, client.InNamespace("default")), r.List(ctx, &balancers)); err != nil {
		return err
	}
	if err := alone(all.Items); err != nil {
		return err
	}
	used := map[string]bool{}
	for i := range balancers.Items {
		used[balancers.Items[i].Status.Address] = true
	}
	for i := range all.Items {
		for _, ingress := range all.Items[i].Status.LoadBalancer.Ingress {
			used[ingress.IP] = true
		}
	}
	for i := range all.Items {
		svc := &all.Items[i]
		if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
			if len(svc.Status.LoadBalancer.Ingress) > 0 {
				return fmt.Errorf("%s is of type %s and has %v", svc.Name, svc.Spec.Type, svc.Status.LoadBalancer.Ingress)
			}
			continue
		}
		if svc.Name == "kubernetes" {
			continue
		}
		if err := checkAddresses(svc, pools.Items, used); err != nil {
			return fmt.Errorf("%s: %w", svc.Name, err)
		}
	}
	return nil
}

// checkAddresses checks the addresses of a Service. used are the addresses of all Services.
func checkAddresses(svc *corev1.Service, pools []v1alpha1.AddressPool, used map[string]bool) error {
	has := map[corev1.IPFamily]bool{}
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		a := netip.MustParseAddr(ingress.IP)
		if !slices.ContainsFunc(pools, func(p v1alpha1.AddressPool) bool { return holds(p, a) }) {
			return fmt.Errorf("%s is in no pool", a)
		}
		has[familyOf(a)] = true
	}
	if len(svc.Status.Conditions) == 0 {
		return errors.New("nothing is said of it")
	}
	if svc.Annotations[v1alpha1.AnnotationAddresses] != "" || svc.Annotations[v1alpha1.AnnotationAddressPool] != "" {
		return nil // the requested address may be in use, or in no pool
	}
	can := map[corev1.IPFamily]bool{}
	for _, p := range pools {
		for n := range 16 {
			for _, text := range []string{fmt.Sprintf("192.0.2.%d", n), fmt.Sprintf("2001:db8::%x", n)} {
				a := netip.MustParseAddr(text)
				can[familyOf(a)] = can[familyOf(a)] || holds(p, a) && !used[a.String()]
			}
		}
	}
	all := true
	for _, f := range svc.Spec.IPFamilies {
		all = all && (has[f] || can[f])
	}
	for _, f := range svc.Spec.IPFamilies {
		if !has[f] && can[f] && (all || *svc.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack) {
			return fmt.Errorf("has no %s address, and one is free: %v", f, svc.Status)
		}
	}
	return nil
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// holds is written without the code under test.
func holds(p v1alpha1.AddressPool, a netip.Addr) bool {
	return slices.ContainsFunc(p.Spec.Addresses, func(r v1alpha1.AddressRange) bool {
		if prefix, err := netip.ParsePrefix(string(r)); err == nil {
			return prefix.Contains(a)
		}
		from, to, _ := strings.Cut(string(r), "-")
		first, last := netip.MustParseAddr(from), netip.MustParseAddr(to)
		return a.BitLen() == first.BitLen() && first.Compare(a) <= 0 && a.Compare(last) <= 0
	})
}
