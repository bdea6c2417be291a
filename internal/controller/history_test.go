// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/test/fuzzrand"
)

// history is an API server with controllers, of which several run at once, between which everything
// fails that can: caches are stale, writes are refused, responses are lost, and writes arrive long after
// their sender was replaced.
type history struct {
	*testing.T
	*memory
	rand  *rand.Rand
	pools []addressPool
	// running are controllers, the newest last.
	running []serviceReconciler
	// late are writes that arrive at any time.
	late []func() error
	// said has the requests of owners since they show an address.
	said map[netip.Addr]map[alloc.Owner][]addressRequest
}

const owners = 6

// No fault and no second controller lets two owners show an address that they can't share. When faults
// end, each address in a status has an object that lists the owner, and the reverse, and owners have the
// addresses that are free.
func TestAddressOwnersUnique(t *testing.T) {
	const histories, steps = 300, 400
	seed := fuzzrand.Seed(t)
	for i := range uint64(histories) {
		synctest.Test(t, func(t *testing.T) {
			h := &history{T: t, memory: newMemory(), rand: rand.New(rand.NewPCG(seed, i)), said: map[netip.Addr]map[alloc.Owner][]addressRequest{}}
			h.written = h.see
			h.setPools()
			h.begin()
			for range steps {
				h.step()
				time.Sleep(time.Second / 4)
			}
			h.settle()
		})
		if t.Failed() {
			t.Fatalf("history %d of FAIRLEAD_SEED=%d", i, seed)
		}
	}
	fuzzrand.Covered(t, histories, histories*steps)
}

func (h *history) step() {
	switch n := h.rand.IntN(100); {
	case n < 15:
		h.edit(h.rand.IntN(owners))
	case n < 22:
		name := serviceName(h.rand.IntN(owners))
		delete(h.services, name)
		h.see(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}})
	case n < 26:
		h.setPools()
	case n < 28:
		h.begin()
	case n < 30 && len(h.running) > 1:
		h.running = slices.Delete(h.running, 0, 1)
	case n < 38:
		h.deliver()
	case n < 42:
		h.passPools(h.running[h.rand.IntN(len(h.running))])
	case n < 43 && len(h.addresses) > 0:
		time.Sleep(time.Hour)
	default:
		h.reconcile(h.running[h.rand.IntN(len(h.running))])
	}
}

// serviceName is the name of one of few Services: pairs of the first four share addresses.
func serviceName(number int) types.NamespacedName {
	namespace := "a"
	if number > 3 {
		namespace = "b"
	}
	return types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(number)}
}

// edit creates a Service, or changes its specification.
func (h *history) edit(number int) {
	name := serviceName(number)
	class := v1alpha1.LoadBalancerClass
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: name.Namespace, Name: name.Name, CreationTimestamp: metav1.NewTime(time.Unix(int64(number), 0)),
		Annotations: map[string]string{},
	}}
	if old := h.newest(name); old != nil {
		svc.Status = *old.Status.DeepCopy()
	}
	port := 80 + number%2
	if number < 4 {
		svc.Annotations[v1alpha1.AnnotationSharingKey] = fmt.Sprint(number / 2)
	}
	if h.rand.IntN(4) == 0 {
		port = 80 + h.rand.IntN(3)
	}
	if h.rand.IntN(4) == 0 {
		svc.Annotations[v1alpha1.AnnotationSharingKey] = fmt.Sprint(h.rand.IntN(2))
	}
	svc.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}}
	svc.Spec.Ports = []corev1.ServicePort{{Port: int32(port), Protocol: corev1.ProtocolTCP}}
	if h.rand.IntN(2) == 0 {
		svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, corev1.IPv6Protocol)
		svc.Spec.IPFamilyPolicy = new([]corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack}[h.rand.IntN(2)])
	}
	switch h.rand.IntN(12) {
	case 0, 1, 2, 3:
		svc.Annotations[v1alpha1.AnnotationAddresses] = fmt.Sprintf("192.0.2.%d", h.rand.IntN(4))
	case 4:
		svc.Annotations[v1alpha1.AnnotationAddresses] = "invalid"
	}
	h.put(svc)
}

// see checks a version of a Service against all others.
func (h *history) see(svc *corev1.Service) {
	q, _ := serviceRequest(svc)
	shown := service{svc}.shown()
	for address, there := range h.said {
		if !slices.Contains(shown, address) {
			delete(there, q.Owner)
		}
	}
	for _, address := range shown {
		there := h.said[address]
		if there == nil {
			there = map[alloc.Owner][]addressRequest{}
			h.said[address] = there
		}
		if there[q.Owner] == nil {
			for other, said := range there {
				if !slices.ContainsFunc(said, func(s addressRequest) bool { return shares(q, s) }) {
					h.Fatalf("%s is given to %s, %+v, and to %s, %+v", address, q.Owner, q, other, said)
				}
			}
		}
		there[q.Owner] = append(there[q.Owner], q)
	}
}

// shares reports whether two owners can share an address.
func shares(a, b addressRequest) bool {
	return a.Sharing.Key != "" && a.Sharing == b.Sharing && a.Owner.Namespace == b.Owner.Namespace && a.Ports[0] != b.Ports[0]
}

func (h *history) setPools() {
	h.pools = nil
	for i, texts := range [][]string{{"192.0.2.0/31", "2001:db8::/127"}, {"192.0.2.1-192.0.2.3"}, {"2001:db8::1-2001:db8::2"}} {
		if h.rand.IntN(4) == 0 {
			continue
		}
		p := addressPool{Namespaces: labels.Everything(), Objects: labels.Everything(), RetainFor: time.Hour * time.Duration(h.rand.IntN(2))}
		p.Name, p.Automatic = fmt.Sprint(i), true
		for _, text := range texts {
			r, err := alloc.ParseRange(text)
			if err != nil {
				h.Fatal(err)
			}
			p.Ranges = append(p.Ranges, r)
		}
		h.pools = append(h.pools, p)
	}
}

// begin starts a controller; of former ones at most two go on.
func (h *history) begin() {
	d := newDeps(Options{Log: slog.New(slog.DiscardHandler)})
	stale := &memoryClient{memory: h.memory, send: h.mayFail, pick: h.rand.IntN, seen: map[types.NamespacedName]int{}}
	d.Client, d.live, d.events = stale, &memoryClient{memory: h.memory}, &events.FakeRecorder{}
	d.allocations.SetNamespace("a", nil, true)
	d.allocations.SetNamespace("b", nil, true)
	d.allocations.SetPools(h.pools)
	held, err := initialSync{d}.adoptAll(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	d.allocations.Adopt(held)
	h.running = append(h.running, serviceReconciler{d})
	if len(h.running) > 3 {
		h.running = slices.Delete(h.running, 0, 1)
	}
}

// passPools has a controller see the pools.
func (h *history) passPools(r serviceReconciler) {
	r.allocations.SetPools(h.pools)
	over, _ := r.allocations.Expired()
	for _, object := range over {
		_ = r.deleteAddress(h.Context(), object) // retried
	}
}

// deliver lets one late write arrive.
func (h *history) deliver() {
	if len(h.late) > 0 {
		i := h.rand.IntN(len(h.late))
		_ = h.late[i]() // its sender doesn't see the error
		h.late = slices.Delete(h.late, i, i+1)
	}
}

// mayFail sends a write.
func (h *history) mayFail(write func() error) error {
	failed := errors.New("no response")
	switch h.rand.IntN(6) {
	case 0: // never arrives
	case 1:
		h.late = append(h.late, write)
	case 2: // the response is lost
		_ = write()
	default:
		return write()
	}
	return failed
}

// reconcile has a controller reconcile an object, of which its cache may have an old version.
func (h *history) reconcile(r serviceReconciler) {
	if names := slices.Concat(h.addressNames(), slices.Sorted(maps.Keys(r.allocations.objects.byName))); len(names) > 0 && h.rand.IntN(3) == 0 {
		_, _ = addressReconciler(r).reconcile(h.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: names[h.rand.IntN(len(names))]}})
		return
	}
	_ = h.reconcileService(r, serviceName(h.rand.IntN(owners))) // retried
}

func (h *history) reconcileService(r serviceReconciler, name types.NamespacedName) error {
	var svc corev1.Service
	err := r.Get(h.Context(), name, &svc)
	if apierrors.IsNotFound(err) {
		_, err = r.forget(h.Context(), kindService, name, &svc)
		return err
	}
	_, err = r.serve(h.Context(), &svc)
	return err
}

// settle runs the newest controller without faults until nothing changes, and checks the result, then
// again when no address is retained any more.
func (h *history) settle() {
	r := h.running[len(h.running)-1]
	r.Client = &memoryClient{memory: h.memory}
	for range 2 {
		for idle, rounds := 0, 0; idle < 3; rounds++ { // a round may only read another controller's writes
			before := h.clock
			h.round(r)
			if idle++; before != h.clock {
				idle = 0
			}
			if rounds > 1000 {
				h.Fatal("it doesn't settle")
			}
		}
		h.check(r)
		time.Sleep(2 * time.Hour)
	}
}

// round reconciles each object once.
func (h *history) round(r serviceReconciler) {
	h.passPools(r)
	for _, name := range slices.Concat(h.addressNames(), slices.Collect(maps.Keys(r.allocations.objects.byName))) {
		if err := r.readAddress(h.Context(), name); err != nil {
			h.Fatal(err)
		}
	}
	for i := range owners {
		if err := h.reconcileService(r, serviceName(i)); err != nil && !apierrors.IsConflict(err) {
			h.Error(err)
		}
	}
	time.Sleep(time.Second)
}

// check checks a settled state.
func (h *history) check(r serviceReconciler) {
	shown := map[string][]alloc.Owner{}
	for name := range h.services {
		svc := h.newest(name)
		q, _ := serviceRequest(svc)
		if g := r.allocations.Get(q.Owner); !slices.Equal(service{svc}.shown(), g.Addresses) {
			h.Errorf("%s shows %v and has %+v", q.Owner, service{svc}.shown(), g)
		}
		for _, a := range (service{svc}).shown() {
			shown[objectName(a, q.Segment)] = append(shown[objectName(a, q.Segment)], q.Owner)
		}
		if len(service{svc}.shown()) == 0 && len(q.Families) == 1 && q.Wanted == nil && h.free(q.Owner.Namespace) {
			h.Errorf("%s has no address", q.Owner)
		}
	}
	for name, object := range h.addresses {
		var listed []alloc.Owner
		for _, e := range object.Spec.Owners {
			listed = append(listed, ownerIn(e))
		}
		slices.SortFunc(listed, alloc.Owner.Compare)
		slices.SortFunc(shown[name], alloc.Owner.Compare)
		if !slices.Equal(listed, shown[name]) || (len(listed) == 0) != (object.Spec.Retained != nil) {
			h.Errorf("%s lists %v, and is shown by %v; retained %v", name, listed, shown[name], object.Spec.Retained)
		}
		delete(shown, name)
	}
	if len(shown) > 0 {
		h.Errorf("addresses without object: %v", shown)
	}
}

// free reports whether there is an IPv4 address that a Service of a namespace can have alone.
func (h *history) free(namespace string) bool {
	for i := range 4 {
		a := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i))
		in := slices.ContainsFunc(h.pools, func(p addressPool) bool {
			return slices.ContainsFunc(p.Ranges, func(r netipx.IPRange) bool { return r.Contains(a) })
		})
		object := h.addresses[a.String()]
		if in && (object == nil || object.Spec.Retained != nil && object.Spec.Retained.Namespace == namespace) {
			return true
		}
	}
	return false
}

// versionOf returns a version as a number.
func versionOf(object metav1.Object) int {
	n, _ := strconv.Atoi(object.GetResourceVersion())
	return n
}
