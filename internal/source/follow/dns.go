// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/time/rate"

	"fairlead.io/fairlead/internal/lb"
)

const (
	// queryTimeout is how long a query waits for a response; udpSize is the largest response over UDP that is
	// requested, in bytes, which no path fragments.
	queryTimeout, udpSize = 2 * time.Second, 1232
	// queryRate is the number of questions per second of all names together, maxServers the limit of resolv.conf(5).
	queryRate, maxServers = 100, 3
)

// resolver sends queries to DNS servers.
type resolver struct {
	// servers returns the servers' addresses.
	servers func() ([]netip.AddrPort, error)
	timeout time.Duration
	limit   *rate.Limiter
	// good is the index of the server that has answered last.
	good atomic.Int64
}

// newResolver returns a resolver with these servers, or with the system's if they are nil.
func newResolver(servers func() ([]netip.AddrPort, error)) *resolver {
	if servers == nil {
		servers = systemServers
	}
	return &resolver{servers: servers, timeout: queryTimeout, limit: rate.NewLimiter(queryRate, queryRate)}
}

// systemServers returns the servers of resolv.conf(5).
func systemServers() ([]netip.AddrPort, error) {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil, err
	}
	return serversOf(string(text))
}

// serversOf returns the servers of a resolv.conf. Its search lists and options don't count.
func serversOf(text string) (all []netip.AddrPort, err error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" || len(all) == maxServers {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			all = append(all, netip.AddrPortFrom(a, 53))
		}
	}
	if all == nil {
		return nil, errors.New("/etc/resolv.conf has no nameserver")
	}
	return all, nil
}

// question is a name, in lower case and with its final dot, and a type of records.
type question struct {
	name string
	kind dnsmessage.Type
}

// record is an address, or the data of an SRV record, whose target is as in questions.
type record struct {
	address                netip.Addr
	target                 string
	port, priority, weight uint16
}

// answer is a response to a question.
type answer struct {
	// records are of the question's type. Without any, why is "no such name" or "no records".
	records []record
	why     string
	// ttl is the time for which the answer may be cached.
	ttl time.Duration
}

// ask sends a question to one server after the other, until one answers. Errors are the lack of a response, and responses
// without an answer.
func (r *resolver) ask(ctx context.Context, q question, overTCP bool) (*answer, error) {
	name, err := dnsmessage.NewName(q.name)
	if err != nil {
		return nil, err
	}
	servers, err := r.servers()
	if err != nil {
		return nil, err
	}
	if err := r.limit.Wait(ctx); err != nil {
		return nil, err
	}
	var errs []error
	for i, first := 0, int(r.good.Load()); i < len(servers); i++ {
		at := (first + i) % len(servers)
		response, err := r.query(ctx, servers[at], dnsmessage.Question{Name: name, Type: q.kind, Class: dnsmessage.ClassINET}, overTCP)
		if err == nil {
			r.good.Store(int64(at))
			return read(response, q.kind), nil
		}
		errs = append(errs, fmt.Errorf("DNS server %s: %s %s: %w", servers[at], strings.TrimPrefix(q.kind.String(), "Type"), q.name, err))
	}
	return nil, errors.Join(errs...)
}

// query queries one server: twice by UDP, then by TCP; at once by TCP after a truncated response, of which no part is
// used.
func (r *resolver) query(ctx context.Context, server netip.AddrPort, q dnsmessage.Question, overTCP bool) (m *dnsmessage.Message, err error) {
	for _, network := range []string{"udp", "udp", "tcp"} {
		if overTCP && network == "udp" {
			continue
		}
		m, err = r.exchange(ctx, network, server, q)
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without ports, which differ each time
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
		case m.Truncated:
			overTCP, err = true, errors.New("truncated response")
		case m.RCode == dnsmessage.RCodeSuccess || m.RCode == dnsmessage.RCodeNameError:
			return m, nil
		default:
			return nil, fmt.Errorf("response %s", lb.ResponseCode(m.RCode))
		}
	}
	return nil, err
}

// exchange sends a query and receives its response.
func (r *resolver) exchange(ctx context.Context, network string, server netip.AddrPort, q dnsmessage.Question) (*dnsmessage.Message, error) {
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{q}, Additionals: []dnsmessage.Resource{{Body: &dnsmessage.OPTResource{}}},
	}
	_ = query.Additionals[0].Header.SetEDNS0(udpSize, dnsmessage.RCodeSuccess, false) // always nil
	packed, err := query.AppendPack(make([]byte, 2, 512))
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(r.timeout)
	conn, err := (&net.Dialer{Deadline: end}).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(end)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	binary.BigEndian.PutUint16(packed, uint16(len(packed)-2)) // RFC 1035 §4.2.2
	if network == "udp" {
		packed = packed[2:]
	}
	if _, err := conn.Write(packed); err != nil {
		return nil, err
	}
	for text := make([]byte, 1<<16); ; {
		n, err := receive(conn, network, text)
		if err != nil {
			return nil, err
		}
		m := &dnsmessage.Message{}
		switch err := m.Unpack(text[:n]); {
		case !m.Response || m.ID != query.ID:
		case m.Truncated: // it may end within a record
			return m, nil
		case err != nil:
			return nil, err
		case len(m.Questions) == 0 && m.RCode != dnsmessage.RCodeSuccess: // servers leave it out of errors
			return m, nil
		case len(m.Questions) == 1 && m.Questions[0].Type == q.Type && strings.EqualFold(m.Questions[0].Name.String(), q.Name.String()): // RFC 5452 §4.2
			return m, nil
		}
	}
}

// receive receives a message.
func receive(conn net.Conn, network string, into []byte) (n int, err error) {
	if network == "udp" {
		return conn.Read(into)
	}
	if _, err := io.ReadFull(conn, into[:2]); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, into[:binary.BigEndian.Uint16(into)])
}

// read returns the answer of a response. Recursive servers have resolved aliases.
func read(m *dnsmessage.Message, kind dnsmessage.Type) *answer {
	a := &answer{ttl: maxTTL, why: "no records"}
	for _, r := range m.Answers {
		if a.ttl = min(a.ttl, seconds(r.Header.TTL)); r.Header.Type != kind {
			continue
		}
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			a.records = append(a.records, record{address: netip.AddrFrom4(body.A)})
		case *dnsmessage.AAAAResource:
			a.records = append(a.records, record{address: netip.AddrFrom16(body.AAAA)})
		case *dnsmessage.SRVResource:
			a.records = append(a.records, record{target: absolute(body.Target.String()), port: body.Port, priority: body.Priority, weight: body.Weight})
		}
	}
	if m.RCode == dnsmessage.RCodeNameError {
		a.records, a.why = nil, "no such name"
	}
	for _, r := range m.Authorities {
		if soa, ok := r.Body.(*dnsmessage.SOAResource); ok && a.records == nil { // RFC 2308 §5
			a.ttl = min(a.ttl, seconds(r.Header.TTL), seconds(soa.MinTTL))
		}
	}
	return a
}

// seconds is a TTL; with the highest bit it is 0 (RFC 2181 §8).
func seconds(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

// absolute is a name as in questions.
func absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }
