// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// virtual is a virtual_server.
type virtual struct {
	*statement
	// protocol is 0 if it isn't balanced; unset is set if the file has none.
	protocol  lb.Protocol
	unset     bool
	forward   lb.Forward
	scheduler *statement
	// flags are the scheduler's.
	flags       map[string]*statement
	persistence time.Duration
	quorum      *statement
	weight      int
	family      *statement
	probing
	servers []*server
}

// virtualServer translates a virtual_server into a service for each address and port.
func (im *importer) virtualServer(s *statement) {
	first := len(im.findings)
	v := im.readVirtual(s)
	targets := im.targets(s, v.protocol)
	if len(v.servers) == 0 {
		im.report(s, "virtual_server %s: left out: it has no real servers", s.word(1))
		return
	}
	if v.unset && slices.ContainsFunc(targets, func(t target) bool { return t.mark == 0 }) {
		im.report(s, "virtual_server %s: no protocol: it is UDP, as for keepalived", s.word(1))
	}
	base := im.base(v)
	added := len(im.services)
	for _, t := range targets {
		if !im.addService(v, base, t) {
			break
		}
	}
	if added < len(im.services) {
		im.services[added].first, im.services[added].end = first, len(im.findings)
	}
}

// noCounterpart are keywords of virtual and real servers that are reported, with the reason.
var noCounterpart = map[string]string{
	"ops":                "datagrams from one port of a client are a flow, and go to one backend",
	"hashed":             "it has no effect",
	"persistence_engine": "clients are identified by their address",
	"ha_suspend":         "backends are always checked",
	"smtp_alert":         "metrics and alerts replace mail",
	"snmp_name":          "metrics replace SNMP",
	"omega":              "no scripts are run",
	"hysteresis":         "routes that are lost repeatedly are damped instead",
	"quorum_up":          "no scripts are run: BGP announces a VIP from minHealthy usable backends on",
	"quorum_down":        "no scripts are run: BGP withdraws a VIP below minHealthy usable backends",
	"notify_up":          "no scripts are run: metrics and alerts replace them",
	"notify_down":        "no scripts are run: metrics and alerts replace them",
	"lthreshold":         "a backend gets new connections again below maxConnections",
	"inhibit_on_failure": "a backend that fails loses its flows to the others; to keep them, drain it",
}

// readVirtual reads the block of a virtual server. Keywords that its real servers inherit may
// follow them.
func (im *importer) readVirtual(s *statement) *virtual {
	v := &virtual{
		statement: s, protocol: lb.UDP, unset: true, flags: map[string]*statement{}, weight: 1, probing: defaultProbing(),
	}
	var method, sorry, sorryMethod *statement
	var servers []*statement
	for _, s := range s.body {
		switch {
		case s.keyword() == "real_server":
			servers = append(servers, s)
		case s.keyword() == "lb_kind" || s.keyword() == "lvs_method":
			method = s
		case s.keyword() == "sorry_server":
			sorry = s
		case s.keyword() == "sorry_server_lvs_method":
			sorryMethod = s
		case s.keyword() == "sorry_server_inhibit": // a backup keeps its flows
		case im.readProbing(&v.probing, s):
		default:
			im.readVirtualKeyword(v, s)
		}
	}
	v.forward = im.method(method, lb.NAT)
	for _, s := range servers {
		if server := im.readServer(v, s); server != nil {
			v.servers = append(v.servers, server)
		}
	}
	if sorry != nil {
		if server := im.readServer(v, sorry); server != nil {
			server.backup, server.forward = true, im.method(sorryMethod, v.forward)
			v.servers = append(v.servers, server)
		}
	}
	im.unifyMethods(v)
	im.scaleWeights(v)
	return v
}

func (im *importer) readVirtualKeyword(v *virtual, s *statement) {
	switch s.keyword() {
	case "lb_algo", "lvs_sched":
		v.scheduler = s
	case "sh-port", "mh-port", "flag-2":
		v.flags["port"] = s
	case "sh-fallback", "mh-fallback", "flag-1":
		v.flags["fallback"] = s
	case "flag-3":
		v.flags["flag-3"] = s
	case "protocol":
		im.readProtocol(v, s)
	case "persistence_timeout":
		v.persistence = im.persistence(s)
	case "persistence_granularity":
		if v.persistence == 0 {
			v.persistence = defaultPersistence
		}
		if s.word(1) != "255.255.255.255" && s.word(1) != "128" {
			im.report(s, "persistence_granularity %s: clients are addresses, not networks", s.word(1))
		}
	case "quorum":
		v.quorum = s
	case "weight":
		if n, ok := im.number(s, 1, maxWeight); ok {
			v.weight = n
		}
	case "ip_family":
		v.family = s
	default:
		im.leftOut(s)
	}
}

// leftOut reports a keyword that isn't translated.
func (im *importer) leftOut(s *statement) {
	if text, known := noCounterpart[s.keyword()]; known {
		im.report(s, "%s: %s", s.keyword(), text)
	} else {
		im.report(s, "%s: unknown keyword", s.keyword())
	}
}

func (im *importer) readProtocol(v *virtual, s *statement) {
	v.unset = false
	switch word := s.word(1); {
	case strings.EqualFold(word, "TCP"):
		v.protocol = lb.TCP
	case strings.EqualFold(word, "UDP"):
		v.protocol = lb.UDP
	default:
		v.protocol = 0
		im.report(s, "protocol %s: only TCP and UDP are balanced", word)
	}
}

// defaultPersistence is IPVS_SVC_PERSISTENT_TIMEOUT of keepalived.
const defaultPersistence = 6 * time.Minute

// persistence reads a time in seconds; one that isn't valid is the default.
func (im *importer) persistence(s *statement) time.Duration {
	if s.word(1) == "" {
		return defaultPersistence
	}
	n, ok := im.number(s, 1, math.MaxInt32)
	if !ok {
		return defaultPersistence
	}
	timeout := time.Duration(n) * time.Second
	if timeout > lb.MaxAffinityTimeout {
		im.report(s, "persistence_timeout %d: affinityTimeout is at most %s", n, duration(lb.MaxAffinityTimeout))
		timeout = lb.MaxAffinityTimeout
	}
	return timeout
}

// base returns the common fields of a virtual server's services.
func (im *importer) base(v *virtual) lb.Service {
	base := lb.Service{Forward: v.forward, MinHealthy: 1}
	im.schedule(v, &base)
	if v.persistence > 0 {
		base.Affinity, base.AffinityTimeout = lb.AffinityClient, v.persistence
	}
	if v.quorum != nil {
		base.MinHealthy = im.minHealthy(v)
	}
	return base
}

// minHealthy returns the smallest number of backends whose weights reach the quorum. A backup is
// one backend, for which the VIP is announced too.
func (im *importer) minHealthy(v *virtual) int {
	quorum, ok := im.number(v.quorum, 1, math.MaxInt32)
	if !ok || quorum == 1 {
		return 1
	}
	if slices.ContainsFunc(v.servers, func(s *server) bool { return s.backup }) {
		im.report(v.quorum, "quorum %d: the sorry_server is used while no real server is: minHealthy is 1", quorum)
		return 1
	}
	weights := make([]int, len(v.servers))
	for i, s := range v.servers {
		weights[i] = s.ownWeight
	}
	slices.Sort(weights)
	slices.Reverse(weights)
	n, sum := 0, 0
	for n < len(weights) && sum < quorum {
		sum += weights[n]
		n++
	}
	n = max(1, n)
	im.report(v.quorum, "quorum %d: minHealthy %d counts backends, not their weights, and BGP withdraws the VIP below it", quorum, n)
	return n
}

// addService adds the service of one VIP. It returns false if there is no room for another.
func (im *importer) addService(v *virtual, s lb.Service, t target) bool {
	s.VIP, s.FirewallMark = t.VIP, t.mark
	s.Name = fmt.Sprintf("%s-%s-%d", t.Protocol, t.Address, t.Port)
	if other, taken := im.taken[t.VIP]; taken {
		im.report(v.statement, "%s: left out: it is already the VIP of %s:%d", t.VIP, other.File, other.Line)
		return true
	}
	if len(im.services) >= maxServices || len(v.servers) > maxBackends || im.backends+len(v.servers) > maxAllBackends {
		im.report(v.statement, "%s: left out, and so are further services: %d services with %d backends are the most that are translated",
			t.VIP, maxServices, maxAllBackends)
		return false
	}
	if v.family != nil && (v.family.word(1) == "inet") != t.Address.Is4() {
		im.report(v.family, "ip_family %s: %s is of the other family", v.family.word(1), t.VIP)
	}
	for _, server := range v.servers {
		port := t.Port
		switch {
		case server.port == 0 || server.port == port:
		case s.Forward.Translates():
			port = server.port
		default:
			im.report(server.statement, "%s %s %d: %s doesn't translate ports: packets keep port %d",
				server.keyword(), server.address, server.port, s.Forward, port)
		}
		s.Backends = append(s.Backends, lb.Backend{
			Address: server.address, Port: port, Weight: server.weight, Backup: server.backup, MaxConnections: server.maxConnections,
		})
	}
	s.Health = im.health(v, &s)
	s, ok := im.valid(s, v.statement, v.servers)
	if ok {
		im.taken[t.VIP] = v.Place
		im.backends += len(s.Backends)
		im.services = append(im.services, service{Service: s, origin: v.statement})
	}
	return true
}

// schedule chooses the scheduler.
func (im *importer) schedule(v *virtual, to *lb.Service) {
	word, at := "wlc", v.statement // keepalived's default
	if v.scheduler != nil {
		word, at = v.scheduler.word(1), v.scheduler
	}
	hashes := word == "sh" || word == "mh"
	for _, flag := range []string{"port", "fallback", "flag-3"} {
		if s := v.flags[flag]; s != nil && (!hashes || flag == "flag-3" || flag == "fallback" && word == "sh") {
			im.report(s, "%s: there is no counterpart with the scheduler %s", s.keyword(), word)
		}
	}
	switch port := v.flags["port"]; {
	case word == "mh" && port == nil:
		to.Affinity = lb.AffinityClient // IPVS hashes the client's address
	case word == "mh":
	case word == "sh" && port != nil:
		im.report(port, "%s: the scheduler is maglev, which hashes the client's port too", port.keyword())
	case to.Scheduler.UnmarshalText([]byte(word)) == nil && word != "maglev":
	default:
		n, known := nearest[word]
		if !known {
			n.text = "there is no scheduler of this name"
		}
		to.Scheduler = n.scheduler
		im.report(at, "scheduler %s: %s: the nearest is %s", word, n.text, n.scheduler)
	}
}

// nearest are the schedulers that replace those that no data plane has.
var nearest = map[string]struct {
	scheduler lb.Scheduler
	text      string
}{
	"lblc":  {lb.SchedulerWLC, "it chooses by destination, which is the VIP"},
	"lblcr": {lb.SchedulerWLC, "it chooses by destination, which is the VIP"},
	"dh":    {lb.SchedulerMaglev, "it chooses by destination, which is the VIP"},
	"sed":   {lb.SchedulerWLC, "it counts the new connection too"},
	"nq":    {lb.SchedulerWLC, "it prefers idle backends"},
	"twos":  {lb.SchedulerWLC, "it compares two random backends"},
	"fo":    {lb.SchedulerWLC, "it uses only the backend of the highest weight, where all backends get flows"},
	"ovf":   {lb.SchedulerWLC, "it fills one backend after the other, where all backends get flows"},
}

// server is a real_server.
type server struct {
	*statement
	address netip.Addr
	// port is 0 for the virtual server's.
	port uint16
	// weight is ownWeight, the file's, or scaled to lb.MaxWeight.
	weight, ownWeight int
	maxConnections    int
	// backup is a sorry_server.
	backup  bool
	forward lb.Forward
	probing
	// checks have a counterpart; checked is set if the file has any check at all.
	checks  []*check
	checked bool
}
