// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/owner"
	"fairlead.io/fairlead/internal/source/saved"
	"fairlead.io/fairlead/internal/spec"
)

// kind is the kind of all objects.
const kind source.Kind = "LoadBalancer"

// balancers are the LoadBalancers of a server's file, with the services for this node. Run's
// connection alone calls read, checkFile, replace and put, and changes objects, version and identity: it reads
// them without the lock. The other methods may be called concurrently.
type balancers struct {
	// node is the name of this node.
	node string
	// seed is of the digests of objects.
	seed maphash.Seed
	// check returns the errors of a service on this node.
	check func(*lb.Service) []lb.FieldError

	mu sync.Mutex
	// vips has the services of all objects.
	vips *owner.VIPs
	// objects are all LoadBalancers; nil before they have been read.
	objects map[source.Object]status
	// version is the server's version of objects, identity identifies its file.
	version, identity string
}

// status is the digest of an object's text, and the problems of the object.
type status struct {
	digest   uint64
	problems []string
}

func newBalancers(o Options) *balancers {
	return &balancers{
		node: o.Node, seed: maphash.MakeSeed(), vips: owner.New(o.MaxServices, o.MaxBackends),
		check: func(s *lb.Service) []lb.FieldError { return spec.CheckOnNode(s, o.Limits, o.TunnelEnds) },
	}
}

// known reports whether all objects have been read.
func (b *balancers) known() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects != nil
}

// services returns all services.
func (b *balancers) services() []lb.Service {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.vips.Services()
}

// state returns the state to save.
func (b *balancers) state() *saved.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &saved.State{Node: b.node, Services: b.vips.Services(), Identity: b.identity, ServerVersion: b.version}
}

// change is an update, and the version, number and problems of objects with it.
type change struct {
	source.Update
	version  string
	objects  int
	problems []v1alpha1.NodeProblem
}

// flush returns the changes since the last call, or all services.
func (b *balancers) flush(whole bool) change {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := change{b.vips.Flush(), b.version, len(b.objects), b.vips.Problems()}
	if whole {
		c.Update = source.Update{Whole: true, Changed: b.vips.Services()}
	}
	for id, o := range b.objects {
		for _, text := range o.problems {
			c.problems = append(c.problems, v1alpha1.NodeProblem{Object: id.String(), Message: text})
		}
	}
	source.SortProblems(c.problems)
	return c
}

// object is a LoadBalancer as the server sent it, translated for this node.
type object struct {
	id      source.Object
	version string
	// digest is the hash of the text; equal ones are of the same object.
	digest uint64
	// known says that the node has the object already: there is nothing else in it.
	known bool
	// unreadable objects are served as before.
	unreadable bool
	created    time.Time
	services   []lb.Service
	problems   []string
}

// read reads a LoadBalancer, unless the node has it already. It is an error if not even its name
// can be read.
func (b *balancers) read(text []byte) (o object, err error) {
	var head struct {
		Metadata struct{ Namespace, Name, ResourceVersion string }
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return o, fmt.Errorf("object: %w", err)
	}
	m := head.Metadata
	if m.Namespace == "" || m.Name == "" {
		return o, errors.New("object: without metadata.namespace and metadata.name")
	}
	o.id, o.version = source.Object{Kind: kind, Namespace: m.Namespace, Name: m.Name}, m.ResourceVersion
	o.digest = maphash.Bytes(b.seed, text)
	if before, known := b.objects[o.id]; known && before.digest == o.digest {
		o.known = true
		return o, nil
	}
	from := &v1alpha1.LoadBalancer{}
	if err := json.Unmarshal(text, from); err != nil {
		o.unreadable, o.problems = true, []string{"can't be read: " + err.Error()}
		return o, nil //nolint:nilerr // one object's error is a problem of it
	}
	o.created = from.CreationTimestamp.Time
	o.services, o.problems = b.translate(from)
	return o, nil
}

// set adds or replaces an object, with the lock held. One that can't be read is served as it was.
func (b *balancers) set(o object) {
	if o.known {
		return
	}
	b.objects[o.id] = status{o.digest, o.problems}
	if !o.unreadable {
		b.vips.Set(owner.Claims{Object: o.id, Created: o.created, Services: o.services})
	}
}

// remove removes an object, with the lock held.
func (b *balancers) remove(id source.Object) {
	delete(b.objects, id)
	b.vips.Set(owner.Claims{Object: id})
}

// translate returns the services of a LoadBalancer, and its problems.
func (b *balancers) translate(from *v1alpha1.LoadBalancer) (services []lb.Service, problems []string) {
	address, err := netip.ParseAddr(from.Status.Address)
	if err != nil {
		return nil, nil // no address yet
	}
	all, problems := spec.LoadBalancer(from, address)
	check := func(one *lb.Service) []lb.FieldError {
		found := b.check(one)
		if slices.ContainsFunc(services, func(other lb.Service) bool { return other.VIP == one.VIP || other.Name == one.Name }) {
			found = append(found, lb.FieldError{Path: "port", Err: errors.New("duplicate")})
		}
		return found
	}
	for _, one := range all {
		one, found, valid := spec.Servable(one, check)
		for _, f := range found {
			if text := fmt.Sprintf("%s: %s", one.VIP, f.Error()); !slices.Contains(problems, text) {
				problems = append(problems, text)
			}
		}
		if valid {
			services = append(services, one)
		}
	}
	return services, problems[:min(len(problems), source.MaxProblems)]
}

// checkFile returns the error of a server with another file than the last one, or with an older copy of
// it. This node would remove the services that it lacks.
func (b *balancers) checkFile(identity, version string) error {
	const hint = "its load balancers aren't served, unless it runs with --replace"
	if b.identity == "" {
		return nil // nothing is known
	}
	if identity != b.identity {
		return fmt.Errorf("the file of the server is another one than before (%q, not %q): %s", identity, b.identity, hint)
	}
	now, err := strconv.ParseUint(version, 10, 64)
	before, otherErr := strconv.ParseUint(b.version, 10, 64)
	if err := errors.Join(err, otherErr); err != nil {
		return fmt.Errorf("version of the file: %w", err)
	}
	if now < before {
		return fmt.Errorf("the file of the server is older than before (version %d, not %d or later): %s", now, before, hint)
	}
	return nil
}

// replace replaces all objects.
func (b *balancers) replace(listed map[source.Object]object, identity, version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects == nil {
		b.objects = map[source.Object]status{}
	}
	for id := range b.objects {
		if _, known := listed[id]; !known {
			b.remove(id)
		}
	}
	for _, o := range listed {
		b.set(o)
	}
	b.identity, b.version = identity, version
}

// put adds, replaces or deletes an object.
func (b *balancers) put(o object, deleted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if deleted {
		b.remove(o.id)
	} else {
		b.set(o)
	}
	b.version = o.version
}
