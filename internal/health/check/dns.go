// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"fairlead.io/fairlead/internal/lb"
)

// dnsProber asks one question over UDP (RFC 1035).
type dnsProber struct {
	question dnsmessage.Question
	code     lb.ResponseCode
	answer   string // as answerText writes it; empty: any
}

func newDNSProber(check *lb.HealthCheck) (*dnsProber, error) {
	if check.DNS == nil {
		return nil, errors.New("no question")
	}
	q := check.DNS
	name, err := dnsmessage.NewName(rooted(q.Name))
	if err != nil {
		return nil, fmt.Errorf("name %s: %w", q.Name, err)
	}
	p := &dnsProber{code: q.Code, question: dnsmessage.Question{
		Name: name, Type: dnsmessage.Type(q.Type), Class: dnsmessage.ClassINET,
	}}
	if q.Answer != "" {
		p.answer = canonical(q)
	}
	return p, nil
}

// canonical is the answer that a question wants, as answerText writes it.
func canonical(q *lb.DNSQuestion) string {
	switch q.Type {
	case lb.RecordCNAME, lb.RecordNS, lb.RecordPTR:
		return strings.ToLower(rooted(q.Answer))
	case lb.RecordA, lb.RecordAAAA:
		if a, err := netip.ParseAddr(q.Answer); err == nil {
			return a.String()
		}
	default:
	}
	return q.Answer
}

// rooted is a name with its final dot.
func rooted(name string) string { return strings.TrimSuffix(name, ".") + "." }

func (p *dnsProber) probe(ctx context.Context, path way) error {
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{p.question},
	}
	packed, err := query.Pack()
	if err != nil {
		return err
	}
	conn, err := path.dialUDP(ctx)
	if err != nil {
		return err
	}
	return exchange(ctx, conn, packed, func(text []byte) (bool, error) {
		var answer dnsmessage.Message
		if err := answer.Unpack(text); err != nil {
			return true, errors.New("not a DNS answer")
		}
		return answer.Response && answer.ID == query.ID && p.repeated(&answer), p.judge(&answer)
	})
}

// repeated reports whether an answer has the question (RFC 5452 §4.2). Servers may leave it out
// of errors.
func (p *dnsProber) repeated(answer *dnsmessage.Message) bool {
	if len(answer.Questions) != 1 {
		return len(answer.Questions) == 0 && answer.RCode != dnsmessage.RCodeSuccess
	}
	q := answer.Questions[0]
	return q.Type == p.question.Type && q.Class == p.question.Class && strings.EqualFold(q.Name.String(), p.question.Name.String())
}

func (p *dnsProber) judge(answer *dnsmessage.Message) error {
	if got := lb.ResponseCode(answer.RCode); got != p.code {
		return fmt.Errorf("rcode %s, want %s", got, p.code)
	}
	if p.answer == "" {
		return nil
	}
	for _, record := range answer.Answers {
		if record.Header.Type == p.question.Type && answerText(record.Body) == p.answer {
			return nil
		}
	}
	return fmt.Errorf("answer has no %s %s", lb.RecordType(p.question.Type), p.answer)
}

// answerText writes the data of a record as a check does. Names are lower case.
func answerText(body dnsmessage.ResourceBody) string {
	switch body := body.(type) {
	case *dnsmessage.AResource:
		return netip.AddrFrom4(body.A).String()
	case *dnsmessage.AAAAResource:
		return netip.AddrFrom16(body.AAAA).String()
	case *dnsmessage.CNAMEResource:
		return strings.ToLower(body.CNAME.String())
	case *dnsmessage.NSResource:
		return strings.ToLower(body.NS.String())
	case *dnsmessage.PTRResource:
		return strings.ToLower(body.PTR.String())
	case *dnsmessage.TXTResource:
		return strings.Join(body.TXT, "")
	}
	return ""
}
