// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"fairlead.io/fairlead/internal/lb"
)

// answers returns the answers of a name server with a few names; "mute."
// it doesn't answer, to "noise." it answers nonsense, and to "bare." an error without question.
func answers(query []byte) [][]byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response = true
	name := dnsmessage.MustNewName
	known := map[string]dnsmessage.ResourceBody{
		"www.example.com. A":       &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}},
		"www.example.com. AAAA":    &dnsmessage.AAAAResource{AAAA: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}},
		"www.example.com. TXT":     &dnsmessage.TXTResource{TXT: []string{"in ", "parts"}},
		"example.com. NS":          &dnsmessage.NSResource{NS: name("Ns.Example.com.")},
		"alias.example.com. CNAME": &dnsmessage.CNAMEResource{CNAME: name("www.example.com.")},
		"1.2.0.192. PTR":           &dnsmessage.PTRResource{PTR: name("www.example.com.")},
	}
	switch body, ok := known[q.Name.String()+" "+lb.RecordType(q.Type).String()]; {
	case q.Name.String() == "mute.":
		return nil
	case q.Name.String() == "noise.":
		return [][]byte{[]byte("hello")}
	case q.Name.String() == "bare.":
		m.RCode, m.Questions = dnsmessage.RCodeServerFailure, nil
		answer, _ := m.Pack()
		return [][]byte{answer}
	case q.Name.String() == "CASE.":
		m.Questions[0].Name = name("case.")
		answer, _ := m.Pack()
		return [][]byte{answer}
	case !ok:
		m.RCode = dnsmessage.RCodeNameError
	default:
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: body}}
	}
	answer, _ := m.Pack()
	m.ID++
	foreign, _ := m.Pack()
	m.ID--
	m.Answers, m.RCode, m.Questions[0].Type = nil, dnsmessage.RCodeRefused, dnsmessage.TypeHINFO
	other, _ := m.Pack()
	m.RCode, m.Questions = dnsmessage.RCodeSuccess, nil
	none, _ := m.Pack()
	return [][]byte{foreign, other, none, query, answer} // the last one only is an answer to it
}

func TestDNS(t *testing.T) {
	dns := func(name string, kind lb.RecordType, answer string) lb.HealthCheck {
		return lb.HealthCheck{Type: lb.HealthDNS, DNS: &lb.DNSQuestion{Name: name, Type: kind, Answer: answer}}
	}
	missing := dns("nowhere.example.com", lb.RecordA, "")
	missing.DNS.Code = lb.NXDomain
	mute := dns("mute", lb.RecordA, "")
	mute.Timeout = 20 * time.Millisecond
	expectReasons(t, answerUDP(t, answers), map[string]reasonTest{
		"address":        {dns("www.example.com", lb.RecordA, "192.0.2.1"), ""},
		"any address":    {dns("www.example.com.", lb.RecordA, ""), ""},
		"other address":  {dns("www.example.com", lb.RecordA, "192.0.2.2"), "answer has no A 192.0.2.2"},
		"IPv6":           {dns("www.example.com", lb.RecordAAAA, "2001:DB8:0::1"), ""},
		"text":           {dns("www.example.com", lb.RecordTXT, "in parts"), ""},
		"name server":    {dns("example.com", lb.RecordNS, "NS.example.com"), ""},
		"alias":          {dns("alias.example.com", lb.RecordCNAME, "www.example.com."), ""},
		"reverse":        {dns("1.2.0.192", lb.RecordPTR, "www.example.com"), ""},
		"unknown":        {dns("nowhere.example.com", lb.RecordA, ""), "rcode nxdomain, want noerror"},
		"unknown wanted": {missing, ""},
		"nonsense":       {dns("noise", lb.RecordA, ""), "not a DNS answer"},
		"silence":        {mute, "timed out after 20ms"},
		"no question":    {dns("bare", lb.RecordA, ""), "rcode servfail, want noerror"},
		"other case":     {dns("CASE", lb.RecordA, ""), ""},
	})
	wantReason(t, dns("a", lb.RecordA, ""), closedPort(t), "connection refused")
}
