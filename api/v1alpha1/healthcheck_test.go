// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
)

// addHealthChecks adds samples of health checks to objects that have one at path, where
// format puts it.
func addHealthChecks(k *samples, format, path, defaults string) {
	for name, check := range map[string]string{
		"lowest":           `{type: tcp, port: 1, interval: 10ms, timeout: 1ns, rise: 1, fall: 1}`,
		"highest":          `{type: grpc, port: 65535, interval: 1h, timeout: 1h, rise: 100, fall: 100}`,
		"method":           `{type: https, method: OPTIONS}`,
		"path of http":     `{type: http, path: "/a?b=c#d"}`,
		"path of https":    `{type: https, path: /` + strings.Repeat("a", 1023) + `}`,
		"icmp":             `{type: icmp}`,
		"host":             `{type: http, host: a-1.example, expectedCodes: "204"}`,
		"longest host":     `{type: https, host: ` + strings.Repeat("a", 253) + `}`,
		"codes":            `{type: https, expectedCodes: "` + strings.Repeat("200-299,", 7) + `100-599"}`,
		"longest time-out": `{type: tcp, timeout: 2s}`,
		"udp":              `{type: udp, send: "a [b]\\n\\\\\\x0F", expect: "~"}`,
		"longest datagram": `{type: udp, send: "` + strings.Repeat(`\\xff`, 256) + `", expect: "` + strings.Repeat("a", 1024) + `"}`,
		"dns":              `{type: dns, dns: {name: _a.example., type: SRV}}`,
		"root":             `{type: dns, port: 53, dns: {name: "."}}`,
		"longest name":     `{type: dns, dns: {name: ` + strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("a", 61) + `}}`,
		"shortest answer":  `{type: dns, dns: {name: a, rcode: refused, answer: a}}`,
		"longest answer":   `{type: dns, dns: {name: a, answer: ` + strings.Repeat("a", 255) + `}}`,
		"most headers":     `{type: http, headers: {` + headers(16) + `}}`,
		"longest header":   `{type: https, headers: {a: ` + strings.Repeat("a", 1024) + `}}`,
		"shortest TLS":     `{type: grpc, service: a, tls: {verify: true, serverName: a, ca: a}}`,
		"longest TLS": `{type: grpc, service: ` + strings.Repeat("a", 253) + `, tls: {verify: true, serverName: ` + strings.Repeat("a", 253) +
			`, ca: ` + strings.Repeat("a", 16384) + `}}`,
		"lowest states":  `{type: tcp, initially: unhealthy, panicThreshold: 0, slowStart: 0s, passive: true}`,
		"highest states": `{type: tcp, panicThreshold: 100, slowStart: 1h}`,
	} {
		k.accepted["health: "+name] = accepted{fmt.Sprintf(format, check), defaults}
	}
	for name, c := range map[string]struct{ check, want string }{
		"no type":        {`{port: 80}`, ".type: Required value"},
		"type":           {`{type: ftp}`, ".type: Unsupported value"},
		"datagram":       {`{type: tcp, send: a}`, ".send: only udp checks send a datagram"},
		"text":           {`{type: dns, dns: {name: a}, expect: a}`, ".expect: only udp checks expect a text"},
		"bad escape":     {`{type: udp, send: "\\q"}`, ".send: should match"},
		"half an escape": {`{type: udp, expect: "\\x0"}`, ".expect: should match"},
		"long datagram":  {`{type: udp, send: ` + strings.Repeat("a", 1025) + `}`, ".send: may not be more than 1024 bytes"},
		"long text":      {`{type: udp, expect: ` + strings.Repeat("a", 1025) + `}`, ".expect: may not be more than 1024 bytes"},
		"no query":       {`{type: dns}`, ".dns: dns checks have a query"},
		"query of udp":   {`{type: udp, dns: {name: a}}`, ".dns: dns checks have a query"},
		"no name":        {`{type: dns, dns: {type: A}}`, ".dns.name: Required value"},
		"bad name":       {`{type: dns, dns: {name: a..b}}`, ".dns.name: should match"},
		"long label":     {`{type: dns, dns: {name: ` + strings.Repeat("a", 64) + `}}`, ".dns.name: should match"},
		"long name":      {`{type: dns, dns: {name: ` + strings.Repeat("a.", 127) + `}}`, ".dns.name: may not be more than 253 bytes"},
		"record type":    {`{type: dns, dns: {name: a, type: ANY}}`, ".dns.type: Unsupported value"},
		"low port":       {`{type: tcp, port: 0}`, ".port: greater than or equal to 1"},
		"high port":      {`{type: tcp, port: 65536}`, ".port: less than or equal to 65535"},
		"port of icmp":   {`{type: icmp, port: 80}`, ".port: icmp checks have no port"},
		"method":         {`{type: http, method: POST}`, ".method: Unsupported value"},
		"method of grpc": {`{type: grpc, method: GET}`, ".method: only http and https checks have a method"},
		"path of tcp":    {`{type: tcp, path: /}`, ".path: only http and https checks have a path"},
		"host of tcp":    {`{type: tcp, host: a}`, ".host: only http and https checks have a host"},
		"empty host":     {`{type: http, host: ""}`, ".host: at least 1 chars long"},
		"long host":      {`{type: http, host: ` + strings.Repeat("a", 254) + `}`, ".host: may not be more than 253 bytes"},
		"bad host":       {`{type: http, host: a_b}`, ".host: should match"},
		"codes of tcp":   {`{type: tcp, expectedCodes: "200"}`, ".expectedCodes: only http and https checks have codes"},
		"bad codes":      {`{type: http, expectedCodes: "2xx"}`, ".expectedCodes: should match"},
		"reversed codes": {`{type: http, expectedCodes: "200,404-400"}`, ".expectedCodes: want ranges with the lower code first"},
		"long codes":     {`{type: http, expectedCodes: "` + strings.Repeat("200,", 16) + `200"}`, ".expectedCodes: may not be more than 64 bytes"},
		"relative path":  {`{type: http, path: healthz}`, ".path: should match"},
		"spaces":         {`{type: http, path: /a b}`, ".path: should match"},
		"long path":      {`{type: http, path: /` + strings.Repeat("a", 1024) + `}`, ".path: may not be more than 1024 bytes"},
		"short interval": {`{type: tcp, interval: 9ms}`, ".interval: want 10ms to 1h"},
		"long interval":  {`{type: tcp, interval: 61m}`, ".interval: want 10ms to 1h"},
		"no interval":    {`{type: tcp, interval: often}`, ".interval: want 10ms to 1h"},
		"no timeout":     {`{type: tcp, timeout: 0s}`, ".timeout: want more than 0s"},
		"long timeout":   {`{type: tcp, interval: 1h, timeout: 61m}`, ".timeout: want more than 0s, up to 1h"},
		"longer timeout": {`{type: tcp, interval: 1s, timeout: 1001ms}`, ".timeout: longer than the interval"},
		"default":        {`{type: tcp, timeout: 3s}`, ".timeout: longer than the interval"},
		"low rise":       {`{type: tcp, rise: 0}`, ".rise: greater than or equal to 1"},
		"high rise":      {`{type: tcp, rise: 101}`, ".rise: less than or equal to 100"},
		"low fall":       {`{type: tcp, fall: 0}`, ".fall: greater than or equal to 1"},
		"high fall":      {`{type: tcp, fall: 101}`, ".fall: less than or equal to 100"},

		"response code":     {`{type: dns, dns: {name: a, rcode: none}}`, ".dns.rcode: Unsupported value"},
		"empty answer":      {`{type: dns, dns: {name: a, answer: ""}}`, ".dns.answer: at least 1 chars long"},
		"long answer":       {`{type: dns, dns: {name: a, answer: ` + strings.Repeat("a", 256) + `}}`, ".dns.answer: may not be more than 255 bytes"},
		"headers of tcp":    {`{type: tcp, headers: {a: b}}`, ".headers: only http and https checks have headers"},
		"many headers":      {`{type: http, headers: {` + headers(17) + `}}`, ".headers: must have at most 16 items"},
		"header":            {`{type: http, headers: {a: "\n"}}`, ".headers.a: should match"},
		"long header":       {`{type: http, headers: {a: ` + strings.Repeat("a", 1025) + `}}`, ".headers.a: may not be more than 1024 bytes"},
		"tls of tcp":        {`{type: tcp, tls: {}}`, ".tls: only https and grpc checks have tls"},
		"service of http":   {`{type: http, service: a}`, ".service: only grpc checks have a service"},
		"empty service":     {`{type: grpc, service: ""}`, ".service: at least 1 chars long"},
		"long service":      {`{type: grpc, service: ` + strings.Repeat("a", 254) + `}`, ".service: may not be more than 253 bytes"},
		"ca without verify": {`{type: https, tls: {ca: a}}`, ".tls.ca: only with verify"},
		"empty ca":          {`{type: https, tls: {verify: true, ca: ""}}`, ".tls.ca: at least 1 chars long"},
		"long ca":           {`{type: https, tls: {verify: true, ca: ` + strings.Repeat("a", 16385) + `}}`, ".tls.ca: may not be more than 16384 bytes"},
		"empty server name": {`{type: https, tls: {serverName: ""}}`, ".tls.serverName: at least 1 chars long"},
		"long server name":  {`{type: https, tls: {serverName: ` + strings.Repeat("a", 254) + `}}`, ".tls.serverName: may not be more than 253 bytes"},
		"bad server name":   {`{type: https, tls: {serverName: a_b}}`, ".tls.serverName: should match"},
		"initial state":     {`{type: tcp, initially: unknown}`, ".initially: Unsupported value"},
		"low threshold":     {`{type: tcp, panicThreshold: -1}`, ".panicThreshold: greater than or equal to 0"},
		"high threshold":    {`{type: tcp, panicThreshold: 101}`, ".panicThreshold: less than or equal to 100"},
		"negative start":    {`{type: tcp, slowStart: -1s}`, ".slowStart: want 0s to 1h"},
		"slow start":        {`{type: tcp, slowStart: 61m}`, ".slowStart: want 0s to 1h"},
	} {
		k.refused["health: "+name] = refusal{fmt.Sprintf(format, c.check), path + c.want}
	}
}

// headers are n of them, in a mapping of YAML.
func headers(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("a%d: b", i)
	}
	return strings.Join(all, ", ")
}
