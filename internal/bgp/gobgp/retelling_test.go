// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// The first End-of-RIB is held back. What has been told once but isn't repeated by
// the second one went in the moment in which the session became established: it is
// withdrawn first.
func TestRetelling(t *testing.T) {
	families := map[wire.Family]wire.BGPAddPathMode{wire.RF_IPv4_UC: wire.BGP_ADD_PATH_BOTH}
	options := &wire.MarshallingOption{AddPath: families}
	l := &Link{router: true, paths: &pathIDs{
		families: families, given: make(map[pathID]given), holders: make(map[pathID]int), rounds: make(map[wire.Family]int),
	}}
	end := serialized(t, wire.NewEndOfRib(wire.RF_IPv4_UC), options)
	for i, step := range []struct {
		message []byte
		want    []string
	}{
		{announced(t, "10.1.1.1/32", options), []string{"10.1.1.1/32"}},
		{announced(t, "10.1.1.2/32", options), []string{"10.1.1.2/32"}},
		{end, nil},
		{announced(t, "10.1.1.3/32", options), []string{"10.1.1.3/32"}},
		{announced(t, "10.1.1.2/32", options), []string{"10.1.1.2/32"}},
		{end, []string{"withdrawn 10.1.1.1/32", "end"}},
		{end, []string{"withdrawn 10.1.1.2/32", "withdrawn 10.1.1.3/32", "end"}},
		{end, []string{"end"}},
	} {
		out, err := l.update(step.message)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, message := range out {
			got = append(got, told(t, message, options)...)
		}
		if slices.Sort(got[:max(len(got)-1, 0)]); !slices.Equal(got, step.want) {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}

// A router that is sent no End-of-RIB is told all again when the library reads on
// after the KEEPALIVE with which the session is established, and only once.
func TestRetellingBegins(t *testing.T) {
	begun := make(chan struct{}, 2)
	r := &retelling{begin: func() { begun <- struct{}{} }}
	r.reading()
	idle(t, begun, "before the session is established")
	r.keptAlive()
	r.reading()
	<-begun
	r.keptAlive()
	r.reading()
	idle(t, begun, "a second time")
	new(retelling).reading() // for clients nothing begins
}

// Others are told when their first End-of-RIB has left the library, which would make
// one of two that wait.
func TestRetellingBeginsAfterEndOfRIB(t *testing.T) {
	begun := make(chan struct{}, 2)
	r := &retelling{begin: func() { begun <- struct{}{} }, ends: true}
	r.keptAlive()
	r.reading()
	idle(t, begun, "before its End-of-RIB")
	if !r.first(wire.RF_IPv4_UC) {
		t.Error("the first End-of-RIB isn't held back")
	}
	<-begun
	if !r.first(wire.RF_IPv6_UC) || r.first(wire.RF_IPv4_UC) {
		t.Error("of each family the first End-of-RIB is held back, and no other")
	}
	idle(t, begun, "a second time")
}

// idle fails if something begins.
func idle(t *testing.T, begun <-chan struct{}, when string) {
	t.Helper()
	select {
	case <-begun:
		t.Error("it begins " + when)
	case <-time.After(20 * time.Millisecond):
	}
}

func announced(t *testing.T, prefix string, options *wire.MarshallingOption) []byte {
	t.Helper()
	nlri, err := wire.NewIPAddrPrefix(netip.MustParsePrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	hop, err := wire.NewPathAttributeNextHop(netip.MustParseAddr("10.0.2.11"))
	if err != nil {
		t.Fatal(err)
	}
	attributes := []wire.PathAttributeInterface{wire.NewPathAttributeOrigin(0), hop}
	return serialized(t, wire.NewBGPUpdateMessage(nil, attributes, []wire.PathNLRI{{NLRI: nlri, ID: 1}}), options)
}

func serialized(t *testing.T, m *wire.BGPMessage, options *wire.MarshallingOption) []byte {
	t.Helper()
	out, err := m.Serialize(options)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// told is what an UPDATE says.
func told(t *testing.T, message []byte, options *wire.MarshallingOption) (words []string) {
	t.Helper()
	m, err := parse(message, options)
	if err != nil {
		t.Fatal(err)
	}
	update := m.Body.(*wire.BGPUpdate)
	for _, p := range update.WithdrawnRoutes {
		words = append(words, fmt.Sprintf("withdrawn %s", prefixOf(p.NLRI)))
	}
	for _, p := range update.NLRI {
		words = append(words, prefixOf(p.NLRI).String())
	}
	if _, is := endOfRIB(update); is {
		words = append(words, "end")
	}
	return words
}
