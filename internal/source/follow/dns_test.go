// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer answers over UDP and TCP by a function, which returns several messages, or none.
type dnsServer struct {
	*testing.T
	at  netip.AddrPort
	udp net.PacketConn
	tcp net.Listener
	mu  sync.Mutex
	// queries are the networks and names of queries.
	queries []string
	respond func(network string, query *dnsmessage.Message) [][]byte
}

// serveDNS starts a server, which ends with the test.
func serveDNS(t *testing.T, respond func(network string, query *dnsmessage.Message) [][]byte) *dnsServer {
	t.Helper()
	s := &dnsServer{T: t, respond: respond}
	var err error
	if s.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.at = s.tcp.Addr().(*net.TCPAddr).AddrPort()
	if s.udp, err = net.ListenPacket("udp", s.at.String()); err != nil {
		t.Fatal(errors.Join(err, s.tcp.Close()))
	}
	var running sync.WaitGroup
	running.Go(s.serveUDP)
	running.Go(s.serveTCP)
	t.Cleanup(func() {
		_, _ = s.udp.Close(), s.tcp.Close()
		running.Wait()
	})
	return s
}

func (s *dnsServer) serveUDP() {
	for text := make([]byte, 1<<16); ; {
		n, from, err := s.udp.ReadFrom(text)
		if err != nil {
			return
		}
		for _, response := range s.answer("udp", text[:n]) {
			_, _ = s.udp.WriteTo(response, from)
		}
	}
}

func (s *dnsServer) serveTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		length := make([]byte, 2)
		if _, err := io.ReadFull(conn, length); err == nil {
			text := make([]byte, binary.BigEndian.Uint16(length))
			if _, err := io.ReadFull(conn, text); err == nil {
				for _, response := range s.answer("tcp", text) {
					_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(response))), response...))
				}
			}
		}
		_ = conn.Close()
	}
}

// answer returns the responses to a query, which it checks.
func (s *dnsServer) answer(network string, text []byte) [][]byte {
	var query dnsmessage.Message
	if err := query.Unpack(text); err != nil || len(query.Questions) != 1 || !query.RecursionDesired {
		s.Errorf("query %+v: %v", query, err)
		return nil
	}
	if edns := query.Additionals; len(edns) != 1 || edns[0].Header.Type != dnsmessage.TypeOPT || edns[0].Header.Class != udpSize {
		s.Errorf("query with %+v: want EDNS with %d bytes", edns, udpSize)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, network+" "+query.Questions[0].Name.String())
	return s.respond(network, &query)
}

// took returns the queries since the last call.
func (s *dnsServer) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.queries = nil }()
	return s.queries
}

// pack packs a response to a query, as changed.
func pack(t *testing.T, query *dnsmessage.Message, change func(*dnsmessage.Message)) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true, RecursionAvailable: true}, Questions: query.Questions}
	change(&m)
	text, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return text
}

// resource is a record with a TTL.
func resource(name string, ttl uint32, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: ttl}, Body: body}
}

func resolverOf(servers ...*dnsServer) *resolver {
	r := newResolver(func() (all []netip.AddrPort, err error) {
		for _, s := range servers {
			all = append(all, s.at)
		}
		return all, nil
	})
	r.timeout = 200 * time.Millisecond
	return r
}

// Responses become answers, with the shortest TTL of all records.
func TestResponses(t *testing.T) {
	soa := resource("example.", 60, &dnsmessage.SOAResource{NS: dnsmessage.MustNewName("a."), MBox: dnsmessage.MustNewName("b."), MinTTL: 4})
	alias := resource("a.example.", 3, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("b.example.")})
	target := dnsmessage.MustNewName("T1.Example.")
	for name, c := range map[string]struct {
		kind     dnsmessage.Type
		response func(*dnsmessage.Message)
		want     string
	}{
		"addresses": {dnsmessage.TypeA, func(m *dnsmessage.Message) {
			m.Answers = []dnsmessage.Resource{resource("a.example.", 6, &dnsmessage.AResource{A: [4]byte{10, 0, 0, 1}}), resource("a.example.", 5, &dnsmessage.AResource{A: [4]byte{10, 0, 0, 2}})}
		}, "[10.0.0.1 10.0.0.2] 5s"},
		"alias": {dnsmessage.TypeAAAA, func(m *dnsmessage.Message) {
			m.Answers = []dnsmessage.Resource{alias, resource("b.example.", 600, &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("fd00::1").As16()})}
		}, "[fd00::1] 3s"},
		"alias alone": {dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Answers = []dnsmessage.Resource{alias} }, "no records 3s"},
		"SRV": {dnsmessage.TypeSRV, func(m *dnsmessage.Message) {
			m.Answers = []dnsmessage.Resource{resource("a.example.", 0, &dnsmessage.SRVResource{Priority: 1, Weight: 2, Port: 3, Target: target})}
		}, "[1 2 3 t1.example.] 0s"},
		"negative TTL": {dnsmessage.TypeA, func(m *dnsmessage.Message) {
			m.RCode, m.Authorities = dnsmessage.RCodeNameError, []dnsmessage.Resource{soa}
		}, "no such name 4s"},
		"no records": {dnsmessage.TypeA, func(*dnsmessage.Message) {}, "no records 10s"},
		"huge TTL": {dnsmessage.TypeA, func(m *dnsmessage.Message) {
			m.Answers = []dnsmessage.Resource{resource("a.example.", 1<<31, alias.Body)}
		}, "no records 0s"},
		"SERVFAIL": {dnsmessage.TypeA, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure }, "response servfail"},
		"REFUSED":  {dnsmessage.TypeA, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeRefused }, "response refused"},
		"FORMERR":  {dnsmessage.TypeA, func(m *dnsmessage.Message) { m.RCode, m.Questions = dnsmessage.RCodeFormatError, nil }, "response formerr"},
		"other question": {dnsmessage.TypeA, func(m *dnsmessage.Message) {
			m.Questions = []dnsmessage.Question{{Name: target, Type: dnsmessage.TypeA}}
		}, "i/o timeout"},
		"other ID":    {dnsmessage.TypeA, func(m *dnsmessage.Message) { m.ID++ }, "i/o timeout"},
		"no response": {dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Response = false }, "i/o timeout"},
	} {
		s := serveDNS(t, func(_ string, query *dnsmessage.Message) [][]byte { return [][]byte{pack(t, query, c.response)} })
		a, err := resolverOf(s).ask(t.Context(), question{"a.example.", c.kind}, false)
		got := fmt.Sprint(err)
		if err == nil {
			got = a.why + " " + a.ttl.String()
			if a.records != nil {
				var all []string
				for _, r := range a.records {
					if r.target != "" {
						all = append(all, fmt.Sprint(r.priority, r.weight, r.port, " ", r.target))
					} else {
						all = append(all, r.address.String())
					}
				}
				got = fmt.Sprint(all, " ", a.ttl)
			}
		}
		if !strings.HasSuffix(got, c.want) && (c.want != "i/o timeout" || !strings.HasSuffix(got, "EOF")) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The complete answer comes by TCP: at once if that by UDP is truncated, also within a record, else after two attempts.
func TestTCP(t *testing.T) {
	many := func(m *dnsmessage.Message) {
		for i := range 200 {
			target := dnsmessage.MustNewName(fmt.Sprintf("t%d.example.", i))
			m.Answers = append(m.Answers, resource("a.example.", 5, &dnsmessage.SRVResource{Port: 80, Target: target}))
		}
	}
	q := question{"a.example.", dnsmessage.TypeSRV}
	for name, c := range map[string]struct {
		udp  func(query *dnsmessage.Message) [][]byte
		want []string
	}{
		"bit": {func(query *dnsmessage.Message) [][]byte {
			return [][]byte{pack(t, query, func(m *dnsmessage.Message) { m.Truncated = true })}
		}, []string{"udp a.example.", "tcp a.example."}},
		"within a record": {func(query *dnsmessage.Message) [][]byte {
			return [][]byte{pack(t, query, func(m *dnsmessage.Message) { m.Truncated = true; many(m) })[:512]}
		}, []string{"udp a.example.", "tcp a.example."}},
		"cut without bit": {func(query *dnsmessage.Message) [][]byte { return [][]byte{pack(t, query, many)[:512]} },
			[]string{"udp a.example.", "udp a.example.", "tcp a.example."}},
		"lost": {func(*dnsmessage.Message) [][]byte { return nil }, []string{"udp a.example.", "udp a.example.", "tcp a.example."}},
		"forged": {func(query *dnsmessage.Message) [][]byte {
			forged := pack(t, query, func(m *dnsmessage.Message) { m.ID++; m.RCode = dnsmessage.RCodeNameError })
			return [][]byte{forged, []byte("x"), pack(t, query, func(m *dnsmessage.Message) { m.Truncated = true })}
		}, []string{"udp a.example.", "tcp a.example."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveDNS(t, func(network string, query *dnsmessage.Message) [][]byte {
				if network == "udp" {
					return c.udp(query)
				}
				return [][]byte{pack(t, query, many)}
			})
			r := resolverOf(s)
			r.timeout = 2 * time.Second // a busy machine answers by TCP in it
			a, err := r.ask(t.Context(), q, false)
			if err != nil || len(a.records) != 200 {
				t.Errorf("%+v, error %v", a, err)
			}
			if got := s.took(); !slices.Equal(got, c.want) {
				t.Errorf("queries %q, want %q", got, c.want)
			}
			_ = s.tcp.Close() // the part isn't used
			if _, err := resolverOf(s).ask(t.Context(), q, false); err == nil {
				t.Error("an answer without TCP")
			}
		})
	}
}

// A server that doesn't answer is followed by the next one, which is queried first from then on.
func TestServers(t *testing.T) {
	silent := serveDNS(t, func(string, *dnsmessage.Message) [][]byte { return nil })
	good := serveDNS(t, func(_ string, query *dnsmessage.Message) [][]byte {
		return [][]byte{pack(t, query, func(*dnsmessage.Message) {})}
	})
	r := resolverOf(silent, good)
	for i, want := range []int{3, 0, 0} {
		if _, err := r.ask(t.Context(), question{"a.", dnsmessage.TypeA}, false); err != nil {
			t.Fatal(err)
		}
		if got := silent.took(); len(got) != want {
			t.Errorf("question %d: the silent server got %q", i, got)
		}
	}
	got, err := serversOf("# nameserver 192.0.2.9\nsearch wild.test example.com\nnameserver 192.0.2.1\n; x\nnameserver fe80::1%eth0 x\n\tnameserver 192.0.2.2\noptions ndots:5\nnameserver x\nnameserver 192.0.2.3\n")
	if text := fmt.Sprint(got); err != nil || text != "[192.0.2.1:53 [fe80::1%eth0]:53 192.0.2.2:53]" {
		t.Errorf("servers %s, %v", text, err)
	}
	if _, err := serversOf("search a\n"); err == nil {
		t.Error("servers of a file without any")
	}
}
