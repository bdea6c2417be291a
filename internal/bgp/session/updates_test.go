// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/test/await"
)

// The first End-of-RIB is dropped. Paths that were sent before it, but are not
// repeated before the second one, were lost while the session was established: they
// are withdrawn first.
func TestResync(t *testing.T) {
	families := map[wire.Family]wire.BGPAddPathMode{wire.RF_IPv4_UC: wire.BGP_ADD_PATH_BOTH}
	options := &wire.MarshallingOption{AddPath: families}
	u := newUpdates()
	u.repeat = func() {}
	u.families, u.endOfRIB = families, true
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
		out, err := u.rewrite(step.message, options)
		if err != nil {
			t.Fatal(err)
		}
		got := contentsOf(t, out, options)
		if slices.Sort(got[:max(len(got)-1, 0)]); !slices.Equal(got, step.want) {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}

// A router without graceful restart gets the same, but no End-of-RIB.
func TestResyncWithoutEndOfRIB(t *testing.T) {
	u := newUpdates()
	u.repeat = func() {}
	options := &wire.MarshallingOption{}
	end := serialized(t, wire.NewEndOfRib(wire.RF_IPv4_UC), options)
	for i, want := range [][]string{{"10.1.1.1/32"}, nil, {"withdrawn 10.1.1.1/32"}} {
		message := end
		if i == 0 {
			message = announced(t, "10.1.1.1/32", options)
		}
		out, err := u.rewrite(message, options)
		if err != nil {
			t.Fatal(err)
		}
		got := contentsOf(t, out, options)
		if !slices.Equal(got, want) {
			t.Errorf("message %d: got %q, want %q", i, got, want)
		}
	}
}

// Routes are repeated after the first End-of-RIB has left the library, which would merge
// two that wait.
func TestResyncAfterEndOfRIB(t *testing.T) {
	reset := make(chan struct{}, 2)
	u := newUpdates()
	u.repeat = func() { reset <- struct{}{} }
	u.endOfRIB = true
	idle(t, reset, "before its End-of-RIB")
	sends := func(family wire.Family, want int) {
		t.Helper()
		options := &wire.MarshallingOption{}
		out, err := u.rewrite(serialized(t, wire.NewEndOfRib(family), options), options)
		if err != nil || len(out) != want {
			t.Errorf("%d messages instead of an End-of-RIB, want %d (%v)", len(out), want, err)
		}
	}
	sends(wire.RF_IPv4_UC, 0)
	await.Closed(t, "resync", reset)
	sends(wire.RF_IPv6_UC, 0)
	sends(wire.RF_IPv4_UC, 1)
	idle(t, reset, "a second time")
}

// The library has graceful restart with every router of a reflector, whatever the OPENs of
// both say.
func TestGracefulRestartForEndOfRIB(t *testing.T) {
	theirs, err := openFrom(65000, wire.NewCapRouteRefresh()).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		message []byte
		want    bool
	}{
		"the router's, for the library": {addGracefulRestart(bytes.Clone(theirs)), true},
		"the library's, for the router": {addGracefulRestart(bytes.Clone(theirs)), false},
		"the router's own":              {theirs, false},
	} {
		if !c.want {
			if c.message, err = rewriteOpen(c.message, false, &bgp.Peer{HoldTime: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		m, err := parse(c.message, nil)
		if err == nil && int(binary.BigEndian.Uint16(c.message[16:])) != len(c.message) {
			err = errMalformed
		}
		if err != nil {
			t.Fatal(err)
		}
		body := m.Body.(*wire.BGPOpen)
		if got := readOpen(body).GracefulRestart; got != c.want || len(capabilities(body)) == 0 {
			t.Errorf("%s: graceful restart %t, want %t", name, got, c.want)
		}
	}
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

func contentsOf(t *testing.T, messages [][]byte, options *wire.MarshallingOption) (words []string) {
	t.Helper()
	for _, message := range messages {
		words = append(words, contents(t, message, options)...)
	}
	return words
}

// contents are the prefixes of an UPDATE.
func contents(t *testing.T, message []byte, options *wire.MarshallingOption) (words []string) {
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
	if is, _ := update.IsEndOfRib(); is {
		words = append(words, "end")
	}
	return words
}
