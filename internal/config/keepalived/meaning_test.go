// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// meaning is a part of a file, with texts of the configuration or of findings that it makes, or
// doesn't make (after "!").
type meaning struct {
	// outer is the head of the virtual server; without it the part is the whole file.
	outer, text string
	want        []string
	// silent is set if there are no findings: the result serves and checks as keepalived does.
	silent bool
}

const outer = "virtual_server 192.0.2.10 80"

// check is a real server with a check.
func checked(check string) string {
	return "protocol TCP\nreal_server 10.0.0.21 80 {\n" + check + "\n}"
}

// servers are two real servers of a TCP service.
const servers = "protocol TCP\nreal_server 10.0.0.21 80 {\n}\nreal_server 10.0.0.22 80 {\n}"

var meanings = map[string]meaning{
	"unknown scheduler": {outer, "lb_algo loadbalance\n" + servers, []string{
		"scheduler: wlc", "f:2: lb_algo loadbalance: keepalived ignores it",
	}, false},
	"no scheduler":       {outer, servers, []string{"scheduler: wlc"}, true},
	"repeated scheduler": {outer, "lb_algo sh\nlb_algo rr\n" + servers, []string{"scheduler: rr"}, true},
	"upper case": {
		outer, "lb_algo RR\nPROTOCOL UDP\n" + servers,
		[]string{"scheduler: wlc", "f:3: PROTOCOL: unknown keyword", "!udp"}, false,
	},
	"status codes": {outer, "lb_algo rr\n" + checked("HTTP_GET {\nurl {\npath /\nstatus_code 200\nstatus_code 302 310-311\n}\n}"),
		[]string{`expectedCodes: "200,302,310-311"`}, true},
	"status codes that aren't valid": {outer, checked("HTTP_GET {\nurl {\npath /\nstatus_code 42 x\n}\n}"),
		[]string{`expectedCodes: "200-299"`, `f:7: status_code "42"`, `f:7: status_code "x"`}, false},
	"lb_kind in a real server": {outer, "lb_kind TUN\nprotocol TCP\nreal_server 10.0.0.21 80 {\nlb_kind DR\n}",
		[]string{"forward: ipip", "f:5: lb_kind: unknown keyword"}, false},
	"method after real servers": {outer, servers + "\nlb_kind DR", []string{"forward: l2dsr"}, true},
	"alpha with an argument": {
		outer, "alpha 1\n" + checked("TCP_CHECK {\n}"),
		[]string{"initially: unhealthy"}, true,
	},
	"alpha after real servers": {
		outer, checked("TCP_CHECK {\n}") + "\nalpha",
		[]string{"initially: unhealthy"}, true,
	},
	"alpha off in a real server": {
		outer, "alpha\n" + checked("alpha off\nTCP_CHECK {\n}"),
		[]string{"!initially"}, true,
	},
	"whole address": {
		"virtual_server 192.0.2.10/32 80", servers,
		[]string{"address: 192.0.2.10"}, true,
	},
	"IPv6 address": {
		"virtual_server 2001:db8::1/128 80", "protocol TCP\nreal_server fd00::21 80 {\n}",
		[]string{`address: "2001:db8::1"`}, true,
	},
	"NAT": {
		outer, "lb_kind NAT\n" + servers,
		[]string{"forward: nat", "f:1: NAT: real servers see the node's address"}, false,
	},
	"network": {
		"virtual_server 192.0.2.10/24 80", servers,
		[]string{"address: 192.0.2.10", "f:1: virtual_server 192.0.2.10/24: it is the address"}, false,
	},
	"address with a range": {
		"virtual_server 192.0.2.10-20 80", servers,
		[]string{"address: 192.0.2.10", "!192.0.2.11", "f:1: "}, false,
	},
	"flag before the scheduler": {
		outer, "mh-port\nlb_algo mh\n" + servers,
		[]string{"affinity: client", "f:2: mh-port: keepalived ignores it"}, false,
	},
	"flag after the scheduler": {outer, "lb_algo mh\nmh-port\n" + servers, []string{"!affinity"}, true},
	"flag of any scheduler":    {outer, "flag-2\nlb_algo mh\n" + servers, []string{"!affinity"}, true},
	"persistence": {
		outer, "persistence_timeout\n" + servers,
		[]string{"affinity: client", "affinityTimeout: 6m"}, true,
	},
	"persistence that isn't valid": {
		outer, "persistence_timeout 0\n" + servers,
		[]string{"!affinity", "f:2: persistence_timeout"}, false,
	},
	"persistence with earlier timeout": {
		outer, "persistence_timeout 60\npersistence_timeout x\n" + servers,
		[]string{"affinityTimeout: 1m", "f:3: "}, false,
	},
	"granularity": {
		outer, "persistence_granularity 255.255.255.255\n" + servers,
		[]string{"affinityTimeout: 6m"}, true,
	},
	"granularity of another family": {
		outer, "persistence_granularity 128\n" + servers,
		[]string{"affinityTimeout: 6m", "f:2: persistence_granularity"}, false,
	},
	"unknown protocol": {
		outer, "protocol TCP\nprotocol TLS\nreal_server 10.0.0.21 {\n}",
		[]string{"!protocol: udp", "f:3: protocol TLS"}, false,
	},
	"no protocol": {
		outer, "real_server 10.0.0.21 80 {\n}",
		[]string{"protocol: udp", "f:1: "}, false,
	},
	"SCTP": {
		outer, "protocol sctp\nreal_server 10.0.0.21 80 {\n}",
		[]string{"services: []", "f:2: protocol sctp"}, false,
	},
	"port 0": {
		"virtual_server 192.0.2.10 0", servers,
		[]string{"services: []", "f:1: "}, false,
	},
	"port with a suffix": {
		"virtual_server 192.0.2.10 80/tcp", servers,
		[]string{"port: 80", `f:1: virtual_server "80/tcp": keepalived reads it as 80`}, false,
	},
	"weight without a number": {
		outer, "protocol TCP\nreal_server 10.0.0.21 80 {\nweight off\n}",
		[]string{"weight: 0", "f:4: weight"}, false,
	},
	"weight above 65535": {
		outer, "protocol TCP\nreal_server 10.0.0.21 80 {\nweight 100000\n}",
		[]string{"weight: 256", "f:3: "}, false,
	},
	"weight of the virtual server": {
		outer, servers + "\nweight 9",
		[]string{"{address: 10.0.0.21, weight: 9}"}, true,
	},
	"inherited settings": {outer, "lb_algo rr\n" + checked("retry 5\nTCP_CHECK {\nconnect_timeout 2\n}") + "\ndelay_loop 7.5\nretry 3\nconnect_timeout 3",
		[]string{"interval: 7.5s", "timeout: 2s", "fall: 6"}, true},
	"settings of a check": {
		outer, "retry 5\ndelay_loop 60\n" + checked("TCP_CHECK {\nretry 0\ndelay_loop 10\n}"),
		[]string{"interval: 10s", "fall: 1"}, true,
	},
	"retry 0": {outer, "retry 0\n" + checked("TCP_CHECK {\n}"), []string{"fall: 2", "f:2: retry"}, false},
	"seconds with a unit": {
		outer, "delay_loop 6s\n" + checked("TCP_CHECK {\n}"),
		[]string{"interval: 10ms", "f:2: delay_loop \"6s\": keepalived reads it as 6µs"}, false,
	},
	"many decimals": {
		outer, "delay_loop 6.0000005\n" + checked("TCP_CHECK {\n}"),
		[]string{"interval: 6.000001s", "f:2: "}, false,
	},
	"host names": {
		outer, "virtualhost v\n" + checked("HTTP_GET {\nurl {\npath /\n}\n}\nvirtualhost r"),
		[]string{"host: r"}, true,
	},
	"host name of a URL": {outer, "virtualhost v\n" + checked("HTTP_GET {\nvirtualhost c\nurl {\npath /\nvirtualhost u\n}\n}"),
		[]string{"host: u"}, true},
	"URL without a path": {outer, checked("HTTP_GET {\nurl {\nstatus_code 404\nvirtualhost u\n}\nurl {\npath /\n}\n}"),
		[]string{`expectedCodes: "200-299"`, "!host: u", "f:5: url: keepalived ignores it"}, false},
	"two checks": {
		outer, checked("TCP_CHECK {\n}\nHTTP_GET {\nurl {\npath /\n}\n}"),
		[]string{"type: tcp", "f:6: HTTP_GET: a backend has one check"}, false,
	},
	"names of SSL_GET": {
		outer, checked("SSL_GET {\nvirtualhost a\nurl {\npath /\n}\n}"),
		[]string{"host: a", "f:4: SSL_GET: a is sent as server name"}, false,
	},
	"SNI": {
		outer, checked("SSL_GET {\nenable_sni\nvirtualhost a\nurl {\npath /\n}\n}"),
		[]string{"host: a"}, true,
	},
	"check without a port": {
		outer, "protocol TCP\nreal_server 10.0.0.21 {\nTCP_CHECK {\n}\n}",
		[]string{"type: tcp", "f:4: TCP_CHECK: the service's port is probed"}, false,
	},
	"other address family": {
		outer, "protocol TCP\nreal_server fd00::21 80 {\n}\nreal_server 10.0.0.22 80 {\n}",
		[]string{"!{address: \"fd00", "f:3: real_server"}, false,
	},
	"same real server": {
		outer, "protocol TCP\nreal_server 10.0.0.21 80 {\nweight 2\n}\nreal_server 10.0.0.21 80 {\n}",
		[]string{"weight: 2", "f:6: real_server"}, false,
	},
	"gue without a port": {
		outer, "lb_kind TUN type gue\n" + servers,
		[]string{"forward: ipip", "f:2: lb_kind: keepalived ignores these options"}, false,
	},
	"gue": {outer, "lb_kind TUN type gue port 6080\n" + servers, []string{"forward: gue"}, true},
	"several sorry servers": {
		outer, servers + "\nsorry_server 10.0.0.98 80\nsorry_server 10.0.0.99 80",
		[]string{"10.0.0.99, backup: true", "!10.0.0.98"}, true,
	},
	"sorry_server_inhibit": {
		outer, "sorry_server_inhibit\n" + servers + "\nsorry_server 10.0.0.99 80\nsorry_server_inhibit",
		[]string{"f:2: sorry_server_inhibit: keep", "!f:9"}, false,
	},
	"quorum above all weights": {outer, "quorum 9\nprotocol TCP\nreal_server 10.0.0.21 80 {\n}\nreal_server 10.0.0.22 80 {\nweight 0\n}",
		[]string{"!minHealthy: 2", "f:2: quorum 9: minHealthy 1"}, false},
	"connections of a VRRP instance": {"", "vrrp_instance V {\ninterface eth0\nlvs_sync_daemon_interface eth0\n}",
		[]string{"f:1: vrrp_instance V: ", "f:3: lvs_sync_daemon_interface: connections aren't synchronized"}, false},
	"name with a short label": {
		outer, checked("DNS_CHECK {\nname a.example.com\ntype mx\n}"),
		[]string{"dns: {name: \".\", type: MX}", "f:5: name a.example.com: keepalived ignores it"}, false,
	},
	"port that isn't one": {
		"virtual_server 192.0.2.10 http", "weight\n" + servers,
		[]string{"services: []", "f:1: virtual_server \"http\""}, false,
	},
	"only a sorry server": {
		outer, "protocol TCP\nsorry_server 10.0.0.99 80",
		[]string{"services: []", "f:1: "}, false,
	},
	"parameter that begins a comment": {outer, "lb_algo rr ${_HASH} x\n" + servers, []string{"scheduler: rr"}, true},
	"escaped comment": {
		outer, checked("HTTP_GET {\nurl {\npath /a\\#b\n}\n}"),
		[]string{"path: /a\n"}, true,
	},
	"condition after a brace": {
		"", "virtual_server 192.0.2.10 80 { @other weight 7\nlb_kind DR\nprotocol TCP\nreal_server 10.0.0.21 80 { @main weight 3\n} }",
		[]string{"{address: 10.0.0.21, weight: 3}"}, true,
	},
	"condition in a condition": {
		"", "@main @main none\n@^main none\n",
		[]string{"services: []", "f:1: @main: unknown keyword", "!f:2"}, false,
	},
	"comment and quotes": {
		outer, "protocol \"TCP\" ! UDP\n\t lb_algo\trr#wlc\r\nreal_server 10.0.0.21 80 {\r\n\t}",
		[]string{"scheduler: rr", "!udp"}, true,
	},
	"further parameters": {
		outer, "protocol TCP lb_algo rr\nreal_server 10.0.0.21 80 {\n}",
		[]string{"scheduler: wlc", `f:2: protocol: keepalived ignores "lb_algo rr"`}, false,
	},
	"settings of IPVS": {"global_defs", "lvs_timeouts tcp 7200 tcpfin 60 udp 30\nlvs_sync_daemon eth0 VI_1\nlvs_flush\nnone",
		[]string{"f:2: lvs_timeouts: set idleTimeout", "f:3: lvs_sync_daemon: ", "f:4: lvs_flush: ", "f:5: none: unknown keyword"}, false},
	"unknown block": {"", "virtual_servers 192.0.2.1 80 {\nvirtual_server 192.0.2.10 80 {\n" + servers + "\n}\n}",
		[]string{"address: 192.0.2.10", "f:1: virtual_servers: unknown keyword"}, false},
	"group of both families": {"", "virtual_server_group g {\n192.0.2.1 80\n2001:db8::1 80\n}\nvirtual_server group g {\nlb_kind TUN\n" + servers + "\n}",
		[]string{"address: 192.0.2.1", `address: "2001:db8::1"`}, true},
	"group of another family": {"", "virtual_server_group g {\n2001:db8::1 80\n}\nvirtual_server group g {\n" + servers + "\n}",
		[]string{"services: []", "f:4: group g: left out"}, false},
	"mark of the group's family": {"", "virtual_server_group g {\nfwmark 3 inet6\n}\nvirtual_server group g {\nlb_kind TUN\n" + servers + "\n}",
		[]string{`address: "2001:db8::3"`, "!address: 192.0.2.3", "f:2: fwmark 3: tcp 192.0.2.3:80 is left out"}, false},
	"mark of tunnels": {"", "virtual_server fwmark 3 {\nlb_kind TUN\nreal_server fd00::21 {\n}\n}",
		[]string{`address: "2001:db8::3"`, "f:1: fwmark 3: tcp 192.0.2.3:80 is left out"}, false},
	"mark of mixed tunnels": {"", "virtual_server fwmark 3 {\nlb_kind TUN\nreal_server fd00::21 {\n}\nreal_server 10.0.0.21 {\n}\n}",
		[]string{"address: 192.0.2.3", "!address: \"2001:db8::3\""}, false},
}

// TestMeaning shows that files mean to an import the same as to keepalived, by its sources and by the
// messages of "keepalived --config-test".
func TestMeaning(t *testing.T) {
	for name, m := range meanings {
		text := m.text
		switch {
		case m.outer == "":
		case strings.Contains(text, "lb_kind") || m.outer == "global_defs":
			text = m.outer + " {\n" + text + "\n}\n"
		default: // nat has a finding of its own
			text = m.outer + " {\n" + text + "\nlb_kind DR\n}\n"
		}
		o := Options{Interfaces: []string{"eth0"}, ConfigID: "main"}
		if strings.Contains(text, "fwmark 3") {
			o.AddMark(3, []lb.VIP{vip("192.0.2.3:80", lb.TCP), vip("[2001:db8::3]:80", lb.TCP)})
		}
		r, err := Import("f", text, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range m.want {
			part, not := strings.CutPrefix(want, "!")
			if strings.Contains(r.YAML, part) == not {
				t.Errorf("%s: want %q in\n%s", name, want, r.YAML)
			}
		}
		if m.silent != (len(r.Findings) == 0) {
			t.Errorf("%s: findings %v", name, r.Findings)
		}
		t.Run(name, func(t *testing.T) { checkMessages(t, "f", text, o, runKeepalived(t, text, "--config-id", "main")) })
	}
}

// A large file is within the limits that the import names: only repeated lines count more. The finding is
// about nat.
func TestLargeFile(t *testing.T) {
	var text strings.Builder
	for i := range 850 {
		fmt.Fprintf(&text, "virtual_server 10.%d.%d.1 80 {\n    lb_algo rr\n    protocol TCP\n", i/250, i%250)
		for j := range 48 {
			fmt.Fprintf(&text, "    real_server 198.51.100.%d %d {\n        weight 1\n        TCP_CHECK {\n"+
				"            connect_timeout 3\n        }\n    }\n", j+1, 1000+i)
		}
		text.WriteString("}\n")
	}
	r, err := Import("f", text.String(), Options{Interfaces: []string{"eth0"}})
	if err != nil || len(r.Findings) != 1 || strings.Count(r.YAML, "address: 198.51.100.48,") != 850 {
		t.Errorf("%v", err)
	}
}
