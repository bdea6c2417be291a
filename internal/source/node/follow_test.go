// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/client-go/rest"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/source/follow"
	"fairlead.io/fairlead/test/await"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// names is a DNS server with the addresses of names; without it is silent.
type names struct {
	conn net.PacketConn
	mu   sync.Mutex
	all  map[string]string
}

func startNames(t *testing.T) *names {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.serve()
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return n
}

func (n *names) serve() {
	for text := make([]byte, 1<<12); ; {
		size, from, err := n.conn.ReadFrom(text)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(text[:size]) != nil {
			continue
		}
		n.mu.Lock()
		addresses, known := n.all[m.Questions[0].Name.String()]
		n.mu.Unlock()
		if !known {
			continue
		}
		m.Response, m.Additionals = true, nil
		for a := range strings.FieldsSeq(addresses) {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()},
			})
		}
		if packed, err := m.Pack(); err == nil {
			_, _ = n.conn.WriteTo(packed, from)
		}
	}
}

func (n *names) set(all map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = all
}

// runFile is a file source that runs.
type runFile struct {
	*testing.T
	File
	path    string
	updates chan string
	end     func()
}

// write writes the file of services with these backends, at 10.1.1.1 and following.
func (r *runFile) write(backends ...string) {
	r.Helper()
	var text strings.Builder
	text.WriteString("node: {name: lb1, interfaces: [eth0]}\nservices:\n")
	for i, b := range backends {
		fmt.Fprintf(&text, "  - {name: s%d, address: 10.1.1.%d, port: 80, forward: nat, backends: %s}\n", i, i+1, b)
	}
	if err := errors.Join(os.WriteFile(r.path+".next", []byte(text.String()), 0o600), os.Rename(r.path+".next", r.path)); err != nil {
		r.Fatal(err)
	}
}

// start runs the source until end is called, or the test ends.
func (r *runFile) start(n *names) {
	r.Helper()
	settings, err := config.Open(r.path, slog.New(slog.DiscardHandler), config.Parser(dataplanetest.Limits()))
	if err != nil {
		r.Fatal(err)
	}
	o := Options{StateDir: filepath.Dir(r.path), Limits: dataplanetest.Limits(), Log: slog.New(slog.NewTextHandler(r.Output(), nil))}
	r.File = OpenFile(settings, KubernetesOptions{}, false, o)
	r.File.Follow = follow.New(follow.Options{
		StateDir: o.StateDir, Node: "lb1", Check: r.File.Follow.Check, Log: o.Log,
		Servers: func() ([]netip.AddrPort, error) {
			return []netip.AddrPort{n.conn.LocalAddr().(*net.UDPAddr).AddrPort()}, nil
		},
		Cluster: func() (*rest.Config, string, error) { return nil, "", errors.New("not in a cluster") },
	})
	r.updates = make(chan string, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- r.File.Run(ctx, func(u source.Update) error {
			r.updates <- describe(u)
			return nil
		})
	}()
	r.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(r.end)
}

// describe is for example "whole incomplete s0: 10.0.0.1 10.0.0.2*0; removed tcp 10.1.1.2:80".
func describe(u source.Update) string {
	var parts, services []string
	for flag, on := range map[string]bool{"whole": u.Whole, "incomplete": u.Incomplete} {
		if on {
			parts = append(parts, flag)
		}
	}
	slices.Sort(parts)
	slices.Reverse(parts)
	for _, s := range u.Changed {
		text := s.Name + ":"
		for _, b := range s.Backends {
			text += " " + b.Address.String()
			if b.Weight != 1 {
				text += fmt.Sprintf("*%d", b.Weight)
			}
		}
		services = append(services, text)
	}
	for _, vip := range u.Removed {
		services = append(services, "removed "+vip.String())
	}
	return strings.Join(append(parts, strings.Join(services, "; ")), " ")
}

// expect waits for an update. Others without a change don't matter.
func (r *runFile) expect(want string) {
	r.Helper()
	for over := time.After(time.Minute); ; {
		select {
		case got := <-r.updates:
			if got == want {
				return
			}
			if got != "" && got != "incomplete " {
				r.Fatalf("update %q, want %q", got, want)
			}
		case <-over:
			r.Fatalf("no update, want %q", want)
		}
	}
}

// state is the state of a service's backends.
func (r *runFile) state(name string) (s source.FollowedBackends) {
	for _, s = range r.File.Followed().Backends {
		if s.Service == name {
			return s
		}
	}
	r.Fatalf("%s isn't followed", name)
	return s
}

// A service whose backends are followed is handed over with the first answer; others are served meanwhile, and services
// of an earlier agent aren't removed. Each answer is one update.
func TestFileFollows(t *testing.T) {
	n := startNames(t)
	r := &runFile{T: t, path: filepath.Join(t.TempDir(), "fairlead.yaml")}
	const a, b, list = "{dns: a.test, type: a}", "{dns: b.test, type: a}", "[{address: 10.0.0.9}]"
	r.write(list, a, "{service: shop, port: http}")
	r.start(n)
	r.expect("whole incomplete s0: 10.0.0.9")
	if s := r.state("s2"); !s.Awaited || s.Error != "not in a cluster" || !s.Answered.IsZero() {
		t.Errorf("the state is %+v", s)
	}
	n.set(map[string]string{"a.test.": "10.0.0.1 10.0.0.2 10.1.1.2"})
	r.expect("incomplete s1: 10.0.0.1 10.0.0.2")
	if s := r.state("s1"); s.Awaited || s.Error != "" || s.Backends != 2 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "10.1.1.2 is the VIP itself") {
		t.Errorf("the state is %+v", s)
	}
	// A service that lists its backends keeps them until there is an answer.
	r.write(b, a) // it removes s2, so it is applied a second later, unless requested
	r.expect("s0: 10.0.0.9")
	if s := r.state("s0"); s.Awaited || s.Backends != 0 {
		t.Errorf("the state is %+v", s)
	}
	n.set(map[string]string{"a.test.": "10.0.0.1 10.0.0.2", "b.test.": "10.0.0.3"})
	r.expect("s0: 10.0.0.3")
	// The backends of the name before leave as records do.
	r.write(a, a)
	r.expect("s0: 10.0.0.1 10.0.0.2 10.0.0.3")
}

// The next agent serves the last answers while there is none; nothing is left of them after Forget.
func TestSavedBackends(t *testing.T) {
	n := startNames(t)
	r := &runFile{T: t, path: filepath.Join(t.TempDir(), "fairlead.yaml")}
	r.write("{dns: a.test, type: a}", "{dns: b.test, type: a}")
	n.set(map[string]string{"a.test.": "10.0.0.1 10.0.0.2"})
	r.start(n)
	r.expect("whole incomplete s0: 10.0.0.1 10.0.0.2")
	r.end()
	n.set(nil)
	began := time.Now()
	r.start(n)
	r.expect("whole incomplete s0: 10.0.0.1 10.0.0.2")
	if s := r.state("s0"); s.Awaited || s.Answered.After(began) || s.Answered.IsZero() || s.Backends != 2 {
		t.Errorf("the state is %+v", s)
	}
	if !r.state("s1").Awaited {
		t.Error("ready without an answer")
	}
	n.set(map[string]string{"a.test.": "10.0.0.2 10.0.0.3", "b.test.": "10.0.0.4"})
	for got := ""; !strings.Contains(got, "s1: 10.0.0.4"); { // after the other one, or together
		select {
		case got = <-r.updates:
		case <-time.After(await.Patience):
			t.Fatal("no update")
		}
	}
	r.end()
	if err := errors.Join(r.Forget(), r.Forget()); err != nil {
		t.Error(err)
	}
	n.set(nil)
	r.start(n)
	r.expect("whole incomplete ")
}
