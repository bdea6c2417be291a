// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HealthCheck defines probes of backends.
//
// +kubebuilder:validation:XValidation:rule="!has(self.method) || self.type in ['http', 'https']",message="only http and https checks have a method",fieldPath=".method"
// +kubebuilder:validation:XValidation:rule="!has(self.path) || self.type in ['http', 'https']",message="only http and https checks have a path",fieldPath=".path"
// +kubebuilder:validation:XValidation:rule="!has(self.host) || self.type in ['http', 'https']",message="only http and https checks have a host",fieldPath=".host"
// +kubebuilder:validation:XValidation:rule="!has(self.expectedCodes) || self.type in ['http', 'https']",message="only http and https checks have codes",fieldPath=".expectedCodes"
// +kubebuilder:validation:XValidation:rule="!has(self.headers) || self.type in ['http', 'https']",message="only http and https checks have headers",fieldPath=".headers"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || self.type in ['https', 'grpc']",message="only https and grpc checks have tls",fieldPath=".tls"
// +kubebuilder:validation:XValidation:rule="!has(self.service) || self.type == 'grpc'",message="only grpc checks have a service",fieldPath=".service"
// +kubebuilder:validation:XValidation:rule="!has(self.send) || self.type == 'udp'",message="only udp checks send a datagram",fieldPath=".send"
// +kubebuilder:validation:XValidation:rule="!has(self.expect) || self.type == 'udp'",message="only udp checks expect a text",fieldPath=".expect"
// +kubebuilder:validation:XValidation:rule="has(self.dns) == (self.type == 'dns')",message="dns checks have a query, others have none",fieldPath=".dns"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || self.type != 'icmp'",message="icmp checks have no port",fieldPath=".port"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || duration(self.timeout) <= duration(has(self.interval) ? self.interval : '2s')",message="longer than the interval",fieldPath=".timeout"
type HealthCheck struct {
	// Type is the protocol. "udp" sends a datagram, "dns" a query over UDP.
	//
	// +required
	// +kubebuilder:validation:Enum=tcp;http;https;grpc;dns;udp;icmp
	Type string `json:"type"`
	// Port is the port to probe. The default is the port of each backend.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty" range:"1-65535"`
	// Method is the method of http and https requests. The default is GET.
	//
	// +optional
	// +kubebuilder:validation:Enum=GET;HEAD;OPTIONS
	Method string `json:"method,omitempty"`
	// Path is the path of http and https requests. The default is "/".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^\x00-\x20\x7f]*$`
	Path string `json:"path,omitempty"`
	// Host is the host name of http and https requests, which https also sends in the TLS
	// handshake. The default is the address of the backend.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Host string `json:"host,omitempty"`
	// ExpectedCodes are the status codes of healthy responses to http and https requests:
	// codes and ranges, such as "200-299,404". The default is 200-399.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.split(',').all(r, !r.contains('-') || r.split('-')[0] <= r.split('-')[1])",message="want ranges with the lower code first"
	// +kubebuilder:validation:Pattern=`^[1-5][0-9]{2}(-[1-5][0-9]{2})?(,[1-5][0-9]{2}(-[1-5][0-9]{2})?)*$`
	ExpectedCodes string `json:"expectedCodes,omitempty"`
	// Headers are sent by http and https requests, by name. Values may be secrets: who may read
	// the object can read them.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Headers map[string]HeaderValue `json:"headers,omitempty"`
	// TLS has the TLS settings of https and grpc checks. Without it https verifies nothing, and
	// grpc uses no TLS.
	//
	// +optional
	TLS *HealthCheckTLS `json:"tls,omitempty"`
	// Service is the service name of grpc checks (grpc.health.v1). The default is the server
	// itself.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Service string `json:"service,omitempty"`
	// DNS is the query of dns checks. A response with the expected code is healthy, with or
	// without records unless there is an answer.
	//
	// +optional
	DNS *DNSQuery `json:"dns,omitempty"`
	// Send is the datagram of udp checks in ASCII, with \n, \r, \t, \\ and \x00 to \xff for
	// other bytes. The default is an empty datagram.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([ -\[\]-~]|\\([nrt\\]|x[0-9a-fA-F]{2}))*$`
	Send string `json:"send,omitempty"`
	// Expect is a text that responses to udp checks have to contain, written as send is. By
	// default any response is healthy, and so is none: only a closed port (ICMP) is a failure.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([ -\[\]-~]|\\([nrt\\]|x[0-9a-fA-F]{2}))*$`
	Expect string `json:"expect,omitempty"`
	// Interval is the time between two probes of a backend. The default is 2s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1h')",message="want 10ms to 1h"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Timeout is the limit of a probe, at most the interval. The default is 1s, or the
	// interval if that is shorter.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1h')",message="want more than 0s, up to 1h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Rise is the number of successful probes in a row that make a backend healthy. The
	// default is 2.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Rise int32 `json:"rise,omitempty" range:"1-65535"`
	// Fall is the number of failed probes in a row that make a backend unhealthy. The
	// default is 3.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Fall int32 `json:"fall,omitempty" range:"1-65535"`
	// Initially is the state of backends before their first probe has succeeded or "fall" have
	// failed. "auto" is unhealthy for backends that are added to a service of a running agent,
	// and healthy for others. The default is auto.
	//
	// +optional
	// +kubebuilder:validation:Enum=auto;healthy;unhealthy
	Initially string `json:"initially,omitempty"`
	// PanicThreshold is a percentage of the backends: while fewer are healthy, all count as
	// healthy. The default is 0, which is never.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PanicThreshold int32 `json:"panicThreshold,omitempty" range:"0-100"`
	// SlowStart is the time in which a backend that became healthy gets its full weight. The
	// default is 0s, which is at once.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="want 0s to 1h"
	SlowStart *metav1.Duration `json:"slowStart,omitempty"`
	// Passive advances a backend's next probe when it refuses a client's connection. It needs
	// the mode nat, in which nodes see responses. The default is false.
	//
	// +optional
	Passive bool `json:"passive,omitempty"`
}

// HeaderValue is the value of a header, without control characters.
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0a-\x1f\x7f]*$`
type HeaderValue string

// HealthCheckTLS has the TLS settings of https and grpc checks.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ca) || has(self.verify) && self.verify",message="only with verify",fieldPath=".ca"
type HealthCheckTLS struct {
	// Verify rejects backends without a valid certificate for serverName. The default is
	// false.
	//
	// +optional
	Verify bool `json:"verify,omitempty"`
	// ServerName is sent in the handshake (RFC 6066). The default is the check's host, or else
	// the probed address, which is not sent.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ServerName string `json:"serverName,omitempty"`
	// CA has certificates of authorities in PEM, for verify. In a node's configuration file it
	// is the path of a file with them. The default is the authorities of the agent's system.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	CA string `json:"ca,omitempty"`
}

// DNSQuery is a query for the records of a name.
type DNSQuery struct {
	// Name is fully qualified, with or without its final dot.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(\.|[!-\-/-~]{1,63}(\.[!-\-/-~]{1,63})*\.?)$`
	Name string `json:"name"`
	// Type is the type of the records. The default is A.
	//
	// +optional
	// +kubebuilder:validation:Enum=A;AAAA;CNAME;MX;NS;PTR;SOA;SRV;TXT
	Type string `json:"type,omitempty"`
	// Code is the response code of a healthy response. The default is noerror.
	//
	// +optional
	// +kubebuilder:validation:Enum=noerror;formerr;servfail;nxdomain;notimp;refused
	Code string `json:"rcode,omitempty"`
	// Answer is the data of a record that a healthy response has: the address of A and AAAA,
	// the name of CNAME, NS and PTR, the text of TXT. By default any response is healthy.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Answer string `json:"answer,omitempty"`
}
