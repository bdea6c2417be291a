// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// RecordType is a type of DNS records, by its IANA number.
type RecordType uint8

// The record types that a check can ask for (RFC 1035 §3.2.2, RFC 3596, RFC
// 2782).
const (
	RecordA     RecordType = 1
	RecordNS    RecordType = 2
	RecordCNAME RecordType = 5
	RecordSOA   RecordType = 6
	RecordPTR   RecordType = 12
	RecordMX    RecordType = 15
	RecordTXT   RecordType = 16
	RecordAAAA  RecordType = 28
	RecordSRV   RecordType = 33
)

var recordWords = words{
	RecordA: "A", RecordNS: "NS", RecordCNAME: "CNAME", RecordSOA: "SOA", RecordPTR: "PTR",
	RecordMX: "MX", RecordTXT: "TXT", RecordAAAA: "AAAA", RecordSRV: "SRV",
}

// String returns for example "AAAA".
func (t RecordType) String() string { return recordWords.text(uint8(t)) }

// MarshalText writes the type as String does.
func (t RecordType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses MarshalText's output, in either case.
func (t *RecordType) UnmarshalText(text []byte) error {
	return recordWords.read("record type", strings.ToUpper(string(text)), (*uint8)(t))
}

// ResponseCode is the response code of a DNS server (RFC 1035 §4.1.1).
type ResponseCode uint8

// The response codes. The zero value is success.
const (
	NoError ResponseCode = iota
	FormErr
	ServFail
	NXDomain
	NotImp
	Refused
)

var responseWords = words{
	NoError: "noerror", FormErr: "formerr", ServFail: "servfail", NXDomain: "nxdomain", NotImp: "notimp", Refused: "refused",
}

// String returns for example "nxdomain".
func (c ResponseCode) String() string { return responseWords.text(uint8(c)) }

// MarshalText writes the code as String does.
func (c ResponseCode) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses MarshalText's output; any other text is an error.
func (c *ResponseCode) UnmarshalText(text []byte) error {
	return responseWords.read("response code", string(text), (*uint8)(c))
}

// DNSQuestion is the query of a DNS check, and the expected response.
type DNSQuestion struct {
	// Name is fully qualified, with or without its final dot.
	Name string     `json:"name"`
	Type RecordType `json:"type"`
	// Code is the expected response code.
	Code ResponseCode `json:"rcode"`
	// Answer is the data of a record that the response has to contain: the address of A and
	// AAAA, the name of CNAME, NS and PTR, the text of TXT. Empty is any.
	Answer string `json:"answer,omitempty"`
}

const maxDNSName = 253 // RFC 1035 §2.3.4, as it is written

func (q *DNSQuestion) check(f *findings, path string) {
	f.add(path+".name", CheckDNSName(q.Name))
	f.add(path+".type", recordWords.check("record type", uint8(q.Type)))
	f.add(path+".rcode", responseWords.check("response code", uint8(q.Code)))
	if q.Answer != "" {
		f.add(path+".answer", q.checkAnswer())
	}
}

func (q *DNSQuestion) checkAnswer() error {
	if q.Code != NoError {
		return fmt.Errorf("an answer of %s has no records", q.Code)
	}
	switch q.Type {
	case RecordA, RecordAAAA:
		if a, err := netip.ParseAddr(q.Answer); err != nil || a.Is4() != (q.Type == RecordA) || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("%q is not an address that a record of type %s holds", q.Answer, q.Type)
		}
	case RecordCNAME, RecordNS, RecordPTR:
		return CheckDNSName(q.Answer)
	case RecordTXT:
	case RecordSOA, RecordMX, RecordSRV:
		return fmt.Errorf("not compared for records of type %s: leave it out", q.Type)
	}
	return nil
}

// CheckDNSName returns why a name can't be queried.
func CheckDNSName(name string) error {
	trimmed := strings.TrimSuffix(name, ".")
	switch {
	case name == "":
		return errors.New("no name")
	case len(trimmed) > maxDNSName:
		return fmt.Errorf("%d characters are too many: want at most %d", len(trimmed), maxDNSName)
	case name == ".":
		return nil // the root
	}
	for label := range strings.SplitSeq(trimmed, ".") {
		if len(label) < 1 || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("bad name %q: want labels of 1 to 63 characters between dots", name)
		}
	}
	return nil
}
