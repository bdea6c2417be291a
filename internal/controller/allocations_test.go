// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/spec"
)

func owner(name string) alloc.Owner {
	return alloc.Owner{Kind: "Service", Namespace: "a", Name: name}
}

// request requests an IPv4 address, for an owner of that age in seconds.
func request(name string, age int) addressRequest {
	return addressRequest{
		Request: alloc.Request{Owner: owner(name), Families: []alloc.Family{alloc.IPv4}},
		Created: time.Unix(int64(1000-age), 0),
	}
}

// sharing is a request with a port on an address that is shared with the key "k".
func sharing(name string, age int, port uint16) addressRequest {
	w := request(name, age)
	w.Sharing.Key, w.Ports = "k", []alloc.Port{{Number: port, Protocol: lb.TCP}}
	return w
}

func addresses(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// pool has one range, for the objects that selectors match.
func pool(t *testing.T, name, text, namespaces, objects string) addressPool {
	t.Helper()
	r, err := alloc.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	p := addressPool{Pool: alloc.Pool{Name: name, Ranges: []netipx.IPRange{r}, Automatic: true}}
	var wrong [2]error
	p.Namespaces, wrong[0] = labels.Parse(namespaces)
	p.Objects, wrong[1] = labels.Parse(objects)
	if err := errors.Join(wrong[:]...); err != nil {
		t.Fatal(err)
	}
	return p
}

// withPool returns allocations with one pool, and the owners that are enqueued.
func withPool(t *testing.T, text string) (l *allocations, enqueued *[]string) {
	t.Helper()
	enqueued = new([]string)
	l = newAllocations(func(o alloc.Owner) { *enqueued = append(*enqueued, o.Name) })
	l.SetPools([]addressPool{pool(t, "main", text, "", "")})
	return l, enqueued
}

func compare(t *testing.T, what string, got, want []netip.Addr) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Released addresses go to waiting owners first, in the order of their age, then to new owners.
func TestWaiting(t *testing.T) {
	l, enqueued := withPool(t, "192.0.2.0/32")
	compare(t, "first", l.Request(request("first", 9)).Addresses, addresses("192.0.2.0"))
	for name, age := range map[string]int{"young": 1, "old": 5, "middle": 3} {
		g := l.Request(request(name, age))
		if failed, ok := errors.AsType[*alloc.Error](g.Err); !ok || failed.Reason != alloc.Exhausted {
			t.Errorf("%s: %+v", name, g)
		}
	}
	if l.Waiting() != 3 {
		t.Errorf("%d wait", l.Waiting())
	}
	l.Release(owner("first"))
	compare(t, "new", l.Request(request("new", 0)).Addresses, nil)
	compare(t, "old", l.Get(owner("old")).Addresses, addresses("192.0.2.0"))
	l.SetPools([]addressPool{pool(t, "main", "192.0.2.0/31", "", "")})
	compare(t, "middle", l.Get(owner("middle")).Addresses, addresses("192.0.2.1"))
	if want := []string{"old", "middle"}; !slices.Equal(*enqueued, want) {
		t.Errorf("enqueued %v, want %v", *enqueued, want)
	}
	if l.Waiting() != 2 || l.Has(owner("first")) || !l.Has(owner("new")) {
		t.Errorf("%d wait", l.Waiting())
	}
}

// Get returns the current allocation of an owner.
func (l *allocations) Get(owner alloc.Owner) allocation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[owner]; r != nil {
		return allocation{Request: r.request, Addresses: l.supply.held(r.request), Err: r.err, Missing: r.missing, Unshared: r.unshared}
	}
	return allocation{}
}

// write writes the objects of an owner's addresses, as far as others allow it.
func write(l *allocations, owner alloc.Owner) {
	g := l.Get(owner)
	for _, a := range g.Addresses {
		if object, _ := l.objects.claim(g.Request, a, false); object != nil {
			l.Observe(object.Name, object)
		}
	}
}

// leave removes an owner from the objects of its former addresses.
func leave(l *allocations, owner alloc.Owner) {
	for _, f := range l.Former(owner) {
		if len(f.Spec.Owners) == 0 && f.Spec.Retained == nil {
			l.Observe(f.Name, nil)
			continue
		}
		l.Observe(f.Name, f.AssignedAddress)
	}
}

// assign requests addresses, and writes their objects.
func assign(l *allocations, q addressRequest) allocation {
	g := l.Request(q)
	write(l, q.Owner)
	return g
}

// A former address is reserved until its object doesn't list the owner.
func TestReleasing(t *testing.T) {
	l, _ := withPool(t, "192.0.2.0/32")
	assign(l, request("one", 2))
	pools := []addressPool{pool(t, "main", "192.0.2.0/31", "", ""), pool(t, "other", "192.0.2.8/32", "", "")}
	l.SetPools(pools)
	other := request("one", 2)
	other.Pool = "other"
	compare(t, "moved", assign(l, other).Addresses, addresses("192.0.2.8"))
	want := request("two", 1)
	want.Wanted = addresses("192.0.2.0")
	if g := l.Request(want); reason(g.Err) != alloc.Taken {
		t.Errorf("another: %+v", g)
	}
	compare(t, "the former owner, by name", l.Request(request("one", 2)).Addresses, addresses("192.0.2.8"))
	leave(l, owner("one"))
	compare(t, "another, afterwards", l.Get(owner("two")).Addresses, addresses("192.0.2.0"))
}

// Of two whose statuses have one address the older keeps it, unless its object lists the other one.
func TestConflict(t *testing.T) {
	for name, listed := range map[string]string{"younger": "older", "older": "younger"} {
		l, enqueued := withPool(t, "192.0.2.0/31")
		if listed == "younger" {
			object := &v1alpha1.AssignedAddress{Spec: v1alpha1.AssignedAddressSpec{Address: "192.0.2.0"}}
			object.Name, object.Spec.Owners = "192.0.2.0", []v1alpha1.AddressOwner{entryOf(request("younger", 1))}
			l.Observe(object.Name, object)
		}
		conflicts := l.Adopt([]adopted{
			{addressRequest: request("younger", 1), Addresses: addresses("192.0.2.0")},
			{addressRequest: request("older", 2), Addresses: addresses("192.0.2.0")},
			{addressRequest: request("waiting", 3)},
			{addressRequest: request("waiting longer", 4)},
		})
		if len(conflicts) != 1 || conflicts[0].Owner != owner(name) {
			t.Errorf("conflicts %v, want one of %s", conflicts, name)
		}
		compare(t, "who keeps it", l.Get(owner(listed)).Addresses, addresses("192.0.2.0"))
		compare(t, "waiting longer", l.Get(owner("waiting longer")).Addresses, addresses("192.0.2.1"))
		compare(t, "the other", l.Get(owner(name)).Addresses, nil)
		if !slices.Contains(*enqueued, "waiting longer") {
			t.Errorf("enqueued %v", *enqueued)
		}
	}
}

// Two share an address, and one changes its key while there is no controller. Its ports at that address
// aren't given to others until the address's object doesn't list it.
func TestConflictOfSharers(t *testing.T) {
	former, _ := withPool(t, "192.0.2.0/31")
	assign(former, sharing("older", 9, 80))
	assign(former, sharing("changed", 2, 81))
	l, _ := withPool(t, "192.0.2.0/31")
	for name, object := range former.objects.byName {
		l.Observe(name, object)
	}
	changed := sharing("changed", 2, 81)
	changed.Sharing.Key = "other"
	l.Adopt([]adopted{
		{addressRequest: sharing("older", 9, 80), Addresses: addresses("192.0.2.0")},
		{addressRequest: changed, Addresses: addresses("192.0.2.0")},
	})
	compare(t, "changed", l.Get(owner("changed")).Addresses, addresses("192.0.2.1"))
	third, fourth := sharing("third", 3, 81), sharing("fourth", 4, 82)
	for _, q := range []addressRequest{third, fourth} {
		compare(t, q.Owner.Name, l.Request(q).Addresses, addresses("192.0.2.0"))
	}
	if _, blockedBy := l.objects.claim(third, addresses("192.0.2.0")[0], false); !slices.Equal(blockedBy, []alloc.Owner{owner("changed")}) {
		t.Errorf("third is blocked by %v", blockedBy)
	}
	if object, blockedBy := l.objects.claim(fourth, addresses("192.0.2.0")[0], false); object == nil {
		t.Errorf("another port is blocked by %v", blockedBy)
	}
	leave(l, owner("changed"))
	if object, blockedBy := l.objects.claim(third, addresses("192.0.2.0")[0], false); object == nil {
		t.Errorf("third, afterwards, is blocked by %v", blockedBy)
	}
}

// The entry of an owner isn't replaced by the entry of an older version, which a stale cache has: others
// would share the address by ports that the owner no longer has.
func TestStaleEntry(t *testing.T) {
	l, _ := withPool(t, "192.0.2.0/32")
	stale, newer := sharing("one", 2, 80), sharing("one", 2, 81)
	stale.Version, newer.Version = "80", "94"
	assign(l, stale)
	object := l.objects.byName["192.0.2.0"].DeepCopy()
	object.Spec.Owners = []v1alpha1.AddressOwner{entryOf(newer)} // another controller's
	l.Observe(object.Name, object)
	if written, blockedBy := l.objects.claim(stale, addresses("192.0.2.0")[0], true); written != nil || !slices.Equal(blockedBy, []alloc.Owner{stale.Owner}) {
		t.Errorf("writes %+v, blocked by %v", written, blockedBy)
	}
	l.Request(newer)
	if written, blockedBy := l.objects.claim(newer, addresses("192.0.2.0")[0], false); written != nil || blockedBy != nil {
		t.Errorf("with the newer version: writes %+v, blocked by %v", written, blockedBy)
	}
}

// An owner with an invalid request keeps its addresses and gets no others. Its ports are still
// known: no owner with one of them gets its address.
func TestInvalidRequest(t *testing.T) {
	l, _ := withPool(t, "192.0.2.0/30")
	compare(t, "one", l.Request(sharing("one", 3, 80)).Addresses, addresses("192.0.2.0"))
	compare(t, "two", l.Request(sharing("two", 2, 443)).Addresses, addresses("192.0.2.0"))
	unclear := sharing("one", 3, 8080)
	unclear.Families, unclear.Sharing.Key, unclear.KeepKey = nil, "", true
	compare(t, "another port", l.Request(unclear).Addresses, addresses("192.0.2.0"))
	compare(t, "three, with its new port", l.Request(sharing("three", 1, 8080)).Addresses, addresses("192.0.2.1"))
	compare(t, "four, with its old port", l.Request(sharing("four", 1, 80)).Addresses, addresses("192.0.2.0"))
	unclear.Ports = []alloc.Port{{Number: 443, Protocol: lb.TCP}}
	compare(t, "a port that another has", l.Request(unclear).Addresses, nil)
	if l.Waiting() != 0 {
		t.Errorf("%d wait", l.Waiting())
	}
	alone := sharing("four", 1, 80)
	alone.Families, alone.Sharing.Key = nil, ""
	compare(t, "no key with another one", l.Request(alone).Addresses, nil)
}

// Pools are for the objects that their selectors match, and are tried by priority, then by
// name.
func TestPools(t *testing.T) {
	l := newAllocations(func(alloc.Owner) {})
	first := pool(t, "first", "192.0.2.1/32", "", "tier=web")
	first.Priority = 1
	l.SetPools([]addressPool{
		pool(t, "b", "192.0.2.3/32", "", ""), pool(t, "a", "192.0.2.2/32", "", ""), first,
		pool(t, "named", "192.0.2.9/32", "team=x", ""),
	})
	web := request("web", 1)
	web.Labels = labels.Set{"tier": "web"}
	compare(t, "by priority", l.Request(web).Addresses, addresses("192.0.2.1"))
	compare(t, "by name", l.Request(request("a", 1)).Addresses, addresses("192.0.2.2"))
	compare(t, "by name, the next", l.Request(request("b", 1)).Addresses, addresses("192.0.2.3"))
	compare(t, "none", l.Request(request("c", 1)).Addresses, nil)
	if concerned := l.SetNamespace("a", labels.Set{"team": "x"}, true); len(concerned) != 4 {
		t.Errorf("concerned %v", concerned)
	}
	compare(t, "by namespace", l.Get(owner("c")).Addresses, addresses("192.0.2.9"))
	if concerned := l.SetNamespace("a", labels.Set{"team": "x"}, true); concerned != nil {
		t.Errorf("concerned %v of nothing new", concerned)
	}
	l.SetNamespace("a", nil, false)
	compare(t, "not by namespace", l.Request(request("c", 1)).Addresses, nil)
}

// Every tagged network has its own addresses, without pools.
func TestSegments(t *testing.T) {
	l, _ := withPool(t, "192.0.2.0/32")
	in := func(name string, id uint32) addressRequest {
		w := request(name, 1)
		w.Wanted, w.Segment = addresses("192.0.2.0"), lb.Segment{Type: lb.SegmentVLAN, ID: id}
		return w
	}
	compare(t, "untagged", l.Request(request("untagged", 1)).Addresses, addresses("192.0.2.0"))
	l.SetGroups([]v1alpha1.LoadBalancerGroup{allowing(7, 8), allowing(9, 9, "fairlead.io/gold")})
	compare(t, "7", assign(l, in("seven", 7)).Addresses, addresses("192.0.2.0"))
	compare(t, "7 again", l.Request(in("again", 7)).Addresses, nil)
	compare(t, "moved to 8", assign(l, in("seven", 8)).Addresses, addresses("192.0.2.0"))
	compare(t, "7, while it is being left", l.Get(owner("again")).Addresses, nil)
	leave(l, owner("seven"))
	compare(t, "7, afterwards", l.Get(owner("again")).Addresses, addresses("192.0.2.0"))
	l.Release(owner("again"))
	l.Release(owner("seven"))
	if len(l.supply.Tagged) > 0 {
		t.Errorf("allocators of networks without addresses: %v", l.supply.Tagged)
	}
}

// allowing returns a group that serves objects in some VLANs.
func allowing(first, last int64, classes ...string) (g v1alpha1.LoadBalancerGroup) {
	g.Name = fmt.Sprint(first, last, classes)
	g.UID, g.Spec.Services.Classes = types.UID(g.Name), classes
	g.Spec.LoadBalancers.Segments = []v1alpha1.SegmentRange{{Type: "vlan", First: first, Last: last}}
	return g
}

// An object gets no address in a segment that no group for it allows, and keeps one that it has.
func TestForbiddenSegments(t *testing.T) {
	l, enqueued := withPool(t, "192.0.2.0/32")
	q := request("tenant", 1)
	q.Wanted, q.Segment = addresses("10.0.0.21"), lb.Segment{Type: lb.SegmentVLAN, ID: 7}
	refused := func(what string, want ...string) {
		t.Helper()
		g := l.Request(q)
		if compare(t, what, g.Addresses, addresses(want...)); reason(g.Err) != reasonBadSegment || !strings.Contains(g.Err.Error(), "vlan 7") {
			t.Errorf("%s: %v", what, g.Err)
		}
	}
	refused("no groups")
	l.SetGroups([]v1alpha1.LoadBalancerGroup{allowing(8, 9), allowing(7, 7, "fairlead.io/gold")})
	refused("only a group for others has it")
	l.SetGroups([]v1alpha1.LoadBalancerGroup{allowing(7, 7)})
	if want := []string{"tenant"}; !slices.Equal(*enqueued, want) {
		t.Errorf("enqueued %v, want %v", *enqueued, want)
	}
	compare(t, "allowed", l.Get(q.Owner).Addresses, q.Wanted)
	*enqueued = nil
	l.SetGroups(nil)
	if want := []string{"tenant"}; !slices.Equal(*enqueued, want) {
		t.Errorf("not any more: enqueued %v, want %v", *enqueued, want)
	}
	refused("not any more", "10.0.0.21")
}

// Addresses of nodes and routers are for no owner, whether requested or in turn, and in the untagged network
// only. An owner that has one keeps it.
func TestHosts(t *testing.T) {
	l, _ := withPool(t, "192.0.2.0/30")
	l.SetHosts(map[netip.Addr]string{netip.MustParseAddr("192.0.2.0"): "node n1", netip.MustParseAddr("198.51.100.9"): "node n1"})
	compare(t, "in turn", assign(l, request("first", 1)).Addresses, addresses("192.0.2.1"))
	wanted := request("wanted", 1)
	wanted.Wanted = addresses("192.0.2.0")
	if g := l.Request(wanted); reason(g.Err) != alloc.InUse || !strings.Contains(g.Err.Error(), "node n1") {
		t.Errorf("requested: %+v", g)
	}
	now := map[netip.Addr]string{netip.MustParseAddr("192.0.2.1"): "node n2", netip.MustParseAddr("192.0.2.2"): "BGPPeer tor"}
	if !l.SetHosts(now) || l.SetHosts(now) {
		t.Error("the addresses have changed once")
	}
	compare(t, "no longer a node's", l.Get(owner("wanted")).Addresses, addresses("192.0.2.0"))
	compare(t, "served before", assign(l, request("first", 1)).Addresses, addresses("192.0.2.1"))
	assigned, free := l.HostsIn(l.supply.pools[0].Ranges)
	if want := "[192.0.2.1 is an address of node n2 and of Service a/first] [192.0.2.2 is an address of BGPPeer tor]"; fmt.Sprint(assigned, free) != want {
		t.Errorf("%v %v, want %s", assigned, free, want)
	}
	l.Release(owner("first"))
	leave(l, owner("first"))
	compare(t, "the next", l.Request(request("next", 1)).Addresses, addresses("192.0.2.3"))
	compare(t, "none is left", l.Request(request("more", 1)).Addresses, nil)
	other := adopted{addressRequest: of("a", request("other", 1)), Addresses: addresses("192.0.2.2"), Claimable: true}
	if ours, why := l.AdoptForeign(other); ours || reason(why) != alloc.InUse {
		t.Errorf("a node's address was adopted from another controller: %v", why)
	}
}

// A namespace gets almost all addresses of a pool, and another one still gets some.
func TestPoolShare(t *testing.T) {
	l, _ := withPool(t, "192.0.2.0/24")
	got := 0
	for i := range 300 {
		q := request(fmt.Sprint(i), 1)
		if i%2 == 0 {
			q.Wanted = addresses(fmt.Sprintf("192.0.2.%d", i%256))
		}
		got += len(l.Request(q).Addresses)
	}
	if got != 241 {
		t.Errorf("one namespace has %d addresses, want 241", got)
	}
	g := l.Request(request("last", 1))
	const want = "pool main: namespace a has 241 of 256 IPv4 addresses, and 15 are free: for another one it would need fewer than 16 for each free one"
	if reason(g.Err) != alloc.Scarce || g.Err.Error() != want {
		t.Errorf("%v, want %s", g.Err, want)
	}
	if g := l.Request(of("b", request("web", 1))); len(g.Addresses) != 1 {
		t.Errorf("another namespace: %+v", g)
	}
	l.Release(owner("0"))
	if g := l.Get(owner("last")); len(g.Addresses) != 0 {
		t.Errorf("240 of 256, and 15 free: %+v", g)
	}
	l.Release(owner("2"))
	if n := l.Usage("main").IPv4.Assigned; n != 241 {
		t.Errorf("%d addresses are assigned", n)
	}
}

// Who shares an address is one unit.
func TestUnits(t *testing.T) {
	l, _ := withPool(t, "192.0.2.0/30")
	for _, w := range []addressRequest{sharing("a", 1, 80), request("b", 1), sharing("c", 1, 443)} {
		l.Request(w)
	}
	var got [][]string
	for _, u := range l.Units() {
		var names []string
		for _, m := range u.Members {
			names = append(names, m.Owner.Name)
		}
		got = append(got, names)
		if u.Addresses != 1 {
			t.Errorf("%v: %d addresses", names, u.Addresses)
		}
	}
	if want := [][]string{{"a", "c"}, {"b"}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("units %v, want %v", got, want)
	}
	if usage := l.Usage("main"); usage.IPv4.Assigned != 2 || usage.IPv4.Size != 4 {
		t.Errorf("usage %+v", usage)
	}
}

// A Service with too many ports gets no address.
func TestTooManyPorts(t *testing.T) {
	svc := &corev1.Service{}
	svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	for i := range 10_000 {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: int32(i + 1), Protocol: corev1.ProtocolSCTP})
	}
	w, err := serviceRequest(svc)
	if err == nil || !strings.HasPrefix(err.Error(), "spec.ports: 10000 are too many: want at most 1000") || w.Invalid == nil || len(w.Families) > 0 {
		t.Errorf("%.80v; families %v, invalid: %v", err, w.Families, w.Invalid)
	}
	svc.Spec.Ports = svc.Spec.Ports[:spec.MaxPorts]
	if w, err := serviceRequest(svc); w.Invalid != nil || strings.Count(err.Error(), "\n") != spec.MaxPorts-1 {
		t.Errorf("invalid: %v, %.80v", w.Invalid, err)
	}
}

// The former address of a Service of another controller goes to a Service that waits for it, also
// if Fairlead adopts the first one with another address.
func TestFormerForeignAddress(t *testing.T) {
	l, enqueued := withPool(t, "192.0.2.0/31")
	other := adopted{addressRequest: request("other", 9), Addresses: addresses("192.0.2.0"), Foreign: true}
	if ours, why := l.AdoptForeign(other); ours || why != nil {
		t.Errorf("adopted a Service that isn't claimable: %t, error %v", ours, why)
	}
	waiting := request("waiting", 1)
	waiting.Wanted = addresses("192.0.2.0")
	if g := l.Request(waiting); g.Err == nil {
		t.Errorf("%v, which is another controller's", g.Addresses)
	}
	other.Addresses, other.Claimable = addresses("192.0.2.1"), true
	if ours, why := l.AdoptForeign(other); !ours {
		t.Errorf("not adopted: %v", why)
	}
	compare(t, "waiting", l.Get(waiting.Owner).Addresses, waiting.Wanted)
	if want := []string{"waiting"}; !slices.Equal(*enqueued, want) {
		t.Errorf("enqueued %v, want %v", *enqueued, want)
	}
}

// Only a status that no pool has shows another controller. Of several the first of the namespace is named.
func TestOtherController(t *testing.T) {
	l, enqueued := withPool(t, "192.0.2.0/31")
	add := func(name, address string, change func(*adopted)) {
		f := adopted{addressRequest: request(name, 9), Addresses: addresses(address), Foreign: true, Claimable: true}
		change(&f)
		l.AdoptForeign(f)
	}
	add("finalizer", "192.0.2.0", func(f *adopted) { f.Claimable, f.Refused = false, errors.New("finalizer") })
	add("class", "198.51.100.1", func(f *adopted) { f.Class, f.Claimable = "example.com/other", false })
	l.SetPools([]addressPool{pool(t, "main", "192.0.2.0/31", "", "public=yes")}) // whatever the Service may use
	add("label", "192.0.2.1", func(*adopted) {})
	if other, serves := l.OtherController("a"); serves {
		t.Errorf("%s shows another controller", other)
	}
	add("far", "198.51.100.2", func(f *adopted) { f.Owner.Namespace = "A" })
	add("z", "198.51.100.3", func(f *adopted) { f.Claimable = false })
	for namespace, want := range map[string]string{"a": "a/z", "b": "A/far"} {
		if other, _ := l.OtherController(namespace); other.Namespace+"/"+other.Name != want {
			t.Errorf("namespace %s: %s, want %s", namespace, other, want)
		}
	}
	l.SetLeft(owner("waiting"), true)
	if n := l.Waiting(); n != 1 {
		t.Errorf("%d wait", n)
	}
	*enqueued = nil
	l.ForgetForeign(alloc.Owner{Kind: "Service", Namespace: "A", Name: "far"})
	if len(*enqueued) > 0 {
		t.Errorf("enqueued %v while there is another one", *enqueued)
	}
	l.ForgetForeign(owner("z"))
	if slices.Sort(*enqueued); !slices.Equal(*enqueued, []string{"label", "waiting"}) {
		t.Errorf("enqueued %v", *enqueued)
	}
	l.Request(request("waiting", 1))
	if l.left[owner("waiting")] {
		t.Error("a Service that is ours is left")
	}
}

// Of two Services with one sharing key that can't share, both say so while that lasts.
func TestUnshared(t *testing.T) {
	l, enqueued := withPool(t, "192.0.2.0/29")
	first, second := sharing("first", 9, 443), sharing("second", 1, 443)
	why := func(q addressRequest) string { return fmt.Sprint(l.Request(q).Unshared) }
	if got := why(first); got != "<nil>" {
		t.Errorf("first: %s", got)
	}
	if got, want := why(second), "address 192.0.2.0: assigned to Service a/first, and both have port 443/tcp"; got != want {
		t.Errorf("second: %s, want %s", got, want)
	}
	if !slices.Equal(*enqueued, []string{"first"}) {
		t.Errorf("enqueued %v", *enqueued)
	}
	if got, want := why(first), "address 192.0.2.1: assigned to Service a/second, and both have port 443/tcp"; got != want {
		t.Errorf("first: %s, want %s", got, want)
	}
	second.Ports[0].Number, second.Sharing.Mode = 80, "Local"
	if got := why(second); !strings.Contains(got, `one is "", the other "Local"`) {
		t.Errorf("second: %s", got)
	}
	*enqueued = nil
	l.Release(second.Owner)
	if got := fmt.Sprint(l.Get(first.Owner).Unshared); got != "<nil>" || !slices.Contains(*enqueued, "first") {
		t.Errorf("first after the other's end: %s, enqueued %v", got, *enqueued)
	}
}

// An object with more ports than all its groups allow gets no address, and keeps one that it has.
func TestTooManyPortsForGroups(t *testing.T) {
	l, enqueued := withPool(t, "192.0.2.0/29")
	group := func(name string, maxPorts int32, classes ...string) (g v1alpha1.LoadBalancerGroup) {
		g.Name, g.UID, g.Generation, g.Spec.Services.MaxPorts, g.Spec.Services.Classes = name, types.UID(name), int64(maxPorts), maxPorts, classes
		return g
	}
	l.SetGroups([]v1alpha1.LoadBalancerGroup{group("main", 2), group("small", 1), group("other", 9, "fairlead.io/other")})
	ports := func(name string, n int) addressRequest {
		q := request(name, 1)
		for i := range n {
			q.Ports = append(q.Ports, alloc.Port{Number: uint16(i + 1)})
		}
		return q
	}
	compare(t, "two ports", l.Request(ports("grows", 2)).Addresses, addresses("192.0.2.0"))
	for name, kept := range map[string][]netip.Addr{"new": nil, "grows": addresses("192.0.2.0")} {
		g := l.Request(ports(name, 3))
		compare(t, name, g.Addresses, kept)
		if why, _ := errors.AsType[*alloc.Error](g.Err); why == nil || why.Reason != "QuotaExceeded" || !strings.Contains(why.Text, "3 ports are more than 2 (LoadBalancerGroup main") {
			t.Errorf("%s: %v", name, g.Err)
		}
	}
	l.SetGroups([]v1alpha1.LoadBalancerGroup{group("main", 3)})
	compare(t, "with more ports", l.Get(owner("new")).Addresses, addresses("192.0.2.1"))
	if !slices.Contains(*enqueued, "new") || !slices.Contains(*enqueued, "grows") {
		t.Errorf("enqueued %v", *enqueued)
	}
}

// Addresses of writes without response aren't another controller's, however many there were; host
// names are, also at the first look.
func TestWrittenStatuses(t *testing.T) {
	w := writtenStatuses{owners: map[alloc.Owner]*writtenStatus{}}
	shows := func(points ...string) *corev1.Service {
		svc := &corev1.Service{}
		for _, p := range points {
			i := corev1.LoadBalancerIngress{IP: p}
			if _, err := netip.ParseAddr(p); err != nil {
				i = corev1.LoadBalancerIngress{Hostname: p}
			}
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, i)
		}
		return svc
	}
	web := owner("web")
	expect := func(svc *corev1.Service, differs bool) {
		t.Helper()
		if w.differs(web, svc, nil) != differs {
			t.Errorf("%v differs: %t", svc.Status.LoadBalancer.Ingress, !differs)
		}
	}
	expect(shows("192.0.2.1"), false)
	for range 3 {
		w.attempt(web, addresses("192.0.2.2"))
		w.attempt(web, addresses("192.0.2.3"))
	}
	for _, p := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		expect(shows(p), false)
		if !w.has(web, corev1.LoadBalancerIngress{IP: p}, nil) {
			t.Errorf("%s isn't Fairlead's", p)
		}
	}
	if n := len(w.owners[web].attempted); n != 2 {
		t.Errorf("%d attempts are kept, want 2", n)
	}
	expect(shows("192.0.2.4"), true)
	w.set(web, addresses("192.0.2.3"))
	expect(shows("192.0.2.2"), true)
	if late := shows("192.0.2.5"); w.differs(web, late, addresses("192.0.2.5")) {
		t.Error("an address whose object lists the Service is another controller's")
	}
	if w.set(web, addresses("192.0.2.2", "2001:db8::2")); !w.differs(web, shows("192.0.2.2"), addresses("192.0.2.2", "2001:db8::2")) {
		t.Error("a removed address isn't noticed")
	}
	w.delete(web)
	expect(shows("lb.example.com"), true)
}
