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
	// protocol is 0 for SCTP, which isn't balanced; unset is set if the file has none.
	protocol lb.Protocol
	unset    bool
	// ipFamily is 0 until it is known.
	ipFamily  family
	forward   lb.Forward // of the service
	method    method
	scheduler *statement
	// port, fallback and other are the scheduler's flags.
	port, fallback, other *statement
	persistence           time.Duration
	quorumAt              *statement
	quorum, weight        int
	probing
	servers []*server
	sorry   *server
}

// family is an address family: 4, 6, or 0 if it isn't known.
type family int

var ipFamilies = map[string]family{"inet": 4, "inet6": 6}

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return 4
	}
	return 6
}

// virtualServer translates a virtual_server into a service for each address and port.
func (x *reader) virtualServer(s *statement) {
	first := len(x.findings.all)
	v := &virtual{statement: s, protocol: lb.UDP, unset: true, quorum: 1, weight: 1}
	v.interval, v.timeout = &timer{value: time.Minute}, &timer{value: 5 * time.Second}
	if s.word(1) != "group" && s.word(1) != "fwmark" {
		address, ok := s.address(1)
		if _, valid := s.port(2); !ok || !valid {
			return // keepalived skips the block
		}
		v.ipFamily = familyOf(address)
	}
	inner := &reader{importer: x.importer, v: v, probing: &v.probing}
	inner.block("virtual_server", s)
	v.end()
	targets := x.targets(v)
	if len(v.servers) == 0 {
		s.report("virtual_server %s: left out: it has no real servers", s.word(1))
		return
	}
	if v.unset && slices.ContainsFunc(targets, func(t target) bool { return t.mark == 0 }) {
		s.report("virtual_server %s: no protocol: it is UDP, as for keepalived", s.word(1))
	}
	base := v.base()
	added := len(x.services)
	for _, t := range targets {
		if !x.addService(v, base, t) {
			break
		}
	}
	if added < len(x.services) {
		x.services[added].first, x.services[added].end = first, len(x.findings.all)
	}
}

// end has the rules that apply at the end of a virtual server, whatever the order in it.
func (v *virtual) end() {
	switch {
	case len(v.servers) == 0:
		return
	case v.sorry != nil && !v.sameFamily(v.sorry):
		v.sorry = nil
	case v.sorry != nil:
		v.servers = append(v.servers, v.sorry)
	}
	for _, r := range v.servers {
		r.method.inherit(&v.method)
		v.endServer(r)
	}
	v.unifyMethods()
	v.scaleWeights()
	if v.ipFamily > 0 || v.word(1) == "group" {
		return
	}
	v.ipFamily = familyOf(v.servers[0].address)
	for _, r := range v.servers { // all are tunnelled
		if familyOf(r.address) != v.ipFamily {
			v.ipFamily = 4
		}
	}
}

// sameFamily reports whether a real server or a sorry server has the address family of its
// virtual server, or may have another because it is tunnelled. It defines an unknown family.
func (v *virtual) sameFamily(r *server) bool {
	if r.method.kind == "TUN" {
		return true
	}
	if v.ipFamily == 0 {
		v.ipFamily = familyOf(r.address)
	}
	if v.ipFamily != familyOf(r.address) {
		r.report("%s %s: left out, as by keepalived: it isn't of the virtual server's address family",
			r.keyword(), r.address)
		return false
	}
	return true
}

// schedulers are those that keepalived knows and no data plane has, with the nearest ones.
var schedulers = map[string]struct {
	nearest lb.Scheduler
	text    string
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

// readScheduler reads the name of a scheduler; keepalived ignores one that it doesn't know.
func (v *virtual) readScheduler(s *statement) {
	if _, known := schedulers[s.word(1)]; !known && !slices.Contains([]string{"rr", "wrr", "lc", "wlc", "sh", "mh"}, s.word(1)) {
		s.report("%s %s: keepalived ignores it: there is no scheduler of this name, and the default is wlc",
			s.keyword(), s.word(1))
		return
	}
	v.scheduler = s
}

// algorithm is the name of the scheduler, as far as it has been read.
func (v *virtual) algorithm() string {
	if v.scheduler == nil {
		return ""
	}
	return v.scheduler.word(1)
}

// schedulerFlag reads a flag, which has an effect only after its scheduler.
func (v *virtual) schedulerFlag(s *statement) {
	of, flag, _ := strings.Cut(s.keyword(), "-")
	if of != "flag" && of != v.algorithm() {
		s.report("%s: keepalived ignores it: it doesn't follow lb_algo %s", s.keyword(), of)
		return
	}
	switch flag {
	case "fallback", "1":
		v.fallback = s
	case "port", "2":
		v.port = s
	default:
		v.other = s
	}
}

// schedule chooses the scheduler.
func (v *virtual) schedule(to *lb.Service) {
	algorithm := v.algorithm()
	if algorithm == "" {
		algorithm = "wlc" // keepalived's default
	}
	hashes := algorithm == "sh" || algorithm == "mh"
	for _, flag := range []struct {
		*statement
		known bool
	}{{v.port, hashes}, {v.fallback, algorithm == "mh"}, {v.other, false}} {
		if flag.statement != nil && !flag.known {
			flag.report("%s: there is no counterpart with the scheduler %s", flag.keyword(), algorithm)
		}
	}
	near, known := schedulers[algorithm]
	switch {
	case algorithm == "mh" && v.port == nil:
		to.Affinity = lb.AffinityClient // IPVS hashes the client's address
	case algorithm == "mh":
	case algorithm == "sh" && v.port != nil:
		v.port.report("%s: the scheduler is maglev, which hashes the client's port too", v.port.keyword())
	case known:
		to.Scheduler = near.nearest
		v.scheduler.report("scheduler %s: %s: the nearest is %s", algorithm, near.text, near.nearest)
	default:
		_ = to.Scheduler.UnmarshalText([]byte(algorithm)) // has the same names
	}
}

func (v *virtual) readProtocol(s *statement) {
	switch word := strings.ToUpper(s.word(1)); word {
	case "TCP":
		v.protocol, v.unset = lb.TCP, false
	case "UDP":
		v.protocol, v.unset = lb.UDP, false
	case "SCTP":
		v.protocol, v.unset = 0, false
		s.report("protocol %s: only TCP and UDP are balanced", s.word(1))
	default:
		s.report("protocol %s: keepalived ignores it: it knows TCP, UDP and SCTP", s.word(1))
	}
}

// readFamily reads ip_family, which keepalived ignores if the family is known already.
func (v *virtual) readFamily(s *statement) {
	f := ipFamilies[s.word(1)]
	if f == 0 || v.ipFamily != 0 && v.ipFamily != f {
		s.report("ip_family %s: keepalived ignores it: the virtual server or an earlier directive is of another family",
			s.word(1))
		return
	}
	v.ipFamily = f
}

// defaultPersistence is IPVS_SVC_PERSISTENT_TIMEOUT of keepalived, maxPersistence its
// LVS_MAX_TIMEOUT in seconds.
const (
	defaultPersistence = 6 * time.Minute
	maxPersistence     = 86400 * 31
)

// persistenceTimeout reads a time in seconds; keepalived ignores one that isn't valid.
func (v *virtual) persistenceTimeout(s *statement) {
	if len(s.words) == 1 {
		v.persistence = defaultPersistence
		return
	}
	n, ok := s.number(1, 1, maxPersistence, false)
	if !ok {
		return
	}
	timeout := time.Duration(n) * time.Second
	if timeout > lb.MaxAffinityTimeout {
		s.report("persistence_timeout %d: affinityTimeout is at most %s", n, duration(lb.MaxAffinityTimeout))
	}
	v.persistence = min(timeout, lb.MaxAffinityTimeout)
}

// granularity reads the mask of an IPv4 client's address, or the length of an IPv6 one's. It
// defines an unknown address family, and makes the service persistent.
func (v *virtual) granularity(s *statement) {
	f := v.ipFamily
	if f == 0 {
		f = 6
		if strings.Contains(s.word(1), ".") {
			f = 4
		}
	}
	if f == 6 {
		if _, ok := s.number(1, 1, 128, false); !ok {
			return
		}
	} else if strings.Trim(s.word(1), "0123456789.") != "" {
		s.report("persistence_granularity %s: keepalived ignores it: want a mask such as 255.255.255.255", s.word(1))
		return
	}
	if s.word(1) != map[family]string{4: "255.255.255.255", 6: "128"}[f] {
		s.report("persistence_granularity %s: clients are addresses, not networks", s.word(1))
	}
	v.ipFamily = f
	if v.persistence == 0 {
		v.persistence = defaultPersistence
	}
}

// readQuorum reads the weight that a virtual server needs.
func (v *virtual) readQuorum(s *statement) {
	v.quorumAt, v.quorum = s, 1
	if n, ok := s.number(1, 1, math.MaxUint32, true); ok {
		v.quorum = n
	}
}

// base returns the common fields of a virtual server's services.
func (v *virtual) base() lb.Service {
	base := lb.Service{Forward: v.forward, MinHealthy: v.minHealthy()}
	v.schedule(&base)
	if v.persistence > 0 {
		base.Affinity, base.AffinityTimeout = lb.AffinityClient, v.persistence
	}
	return base
}

// minHealthy returns the smallest number of backends whose weights reach the quorum. A backup is
// one backend, for which the VIP is announced too.
func (v *virtual) minHealthy() int {
	if v.quorum == 1 {
		return 1
	}
	if v.sorry != nil {
		v.quorumAt.report("quorum %d: the sorry_server is used while no real server is: minHealthy is 1", v.quorum)
		return 1
	}
	weights := make([]int, len(v.servers))
	for i, s := range v.servers {
		weights[i] = s.ownWeight
	}
	slices.Sort(weights)
	slices.Reverse(weights)
	n, sum := 0, 0
	for n < len(weights) && weights[n] > 0 && sum < v.quorum { // keepalived reduces a quorum above the sum
		sum += weights[n]
		n++
	}
	n = max(1, n)
	v.quorumAt.report("quorum %d: minHealthy %d counts backends, not their weights, and BGP withdraws the VIP below it", v.quorum, n)
	return n
}

// addService adds the service of one VIP. It returns false if there is no room for another.
func (im *importer) addService(v *virtual, s lb.Service, t target) bool {
	s.VIP, s.FirewallMark = t.VIP, t.mark
	s.Name = fmt.Sprintf("%s-%s-%d", t.Protocol, t.Address, t.Port)
	if other, taken := im.taken[t.VIP]; taken {
		v.report("%s: left out: it is already the VIP of %s:%d", t.VIP, other.File, other.Line)
		return true
	}
	if len(im.services) >= maxServices || len(v.servers) > maxBackends || im.backends+len(v.servers) > maxAllBackends {
		v.report("%s: left out, and so are further services: %d services with %d backends are the most that are translated",
			t.VIP, maxServices, maxAllBackends)
		return false
	}
	for _, server := range v.servers {
		port := t.Port
		switch {
		case server.port == 0 || server.port == port:
		case s.Forward.Translates():
			port = server.port
		default:
			server.report("%s %s %d: %s doesn't translate ports: packets keep port %d",
				server.keyword(), server.address, server.port, s.Forward, port)
		}
		s.Backends = append(s.Backends, lb.Backend{
			Address: server.address, Port: port, Weight: server.weight, Backup: server.backup, MaxConnections: server.maxConnections,
		})
	}
	if other := im.mixed(&s); other != nil {
		v.report("%s: left out: the firewall mark %d has port %d of %s too, and backends with another port",
			t.VIP, t.mark, other.Port, other.VIP)
		return true
	}
	s.Health = v.health(&s)
	s, ok := v.valid(s)
	if ok {
		if s.Forward == lb.NAT && !im.translates {
			im.translates = true
			v.report("NAT: real servers see the node's address in place of the client's, in all services with nat")
		}
		im.taken[t.VIP] = v.Place
		im.backends += len(s.Backends)
		im.services = append(im.services, service{Service: s, origin: v.statement})
	}
	return true
}

// valid removes from a service the parts that an agent would reject, and reports them. It
// returns false for a service that is left out.
func (v *virtual) valid(s lb.Service) (lb.Service, bool) {
	servers := slices.Clone(v.servers)
	for {
		found := s.Check()
		if len(found) == 0 {
			return s, true
		}
		first := found[0]
		var index int
		if n, _ := fmt.Sscanf(first.Path, "backends[%d]", &index); n == 1 {
			servers[index].report("%s %s: left out: %v", servers[index].keyword(), servers[index].word(1), first.Err)
			s.Backends, servers = slices.Delete(s.Backends, index, index+1), slices.Delete(servers, index, index+1)
			s.MinHealthy = max(1, min(s.MinHealthy, len(s.Backends)))
			continue
		}
		if strings.HasPrefix(first.Path, "health.") {
			v.report("%s: backends are not checked: %v", s.Name, first)
			s.Health = nil
			continue
		}
		v.report("%s: left out: %v", s.Name, first)
		return s, false
	}
}

// mixed returns a service of the same firewall mark that can't be one IPVS service with s: packets
// to different ports keep them, so backends can't have others.
func (im *importer) mixed(s *lb.Service) *service {
	translates := func(s *lb.Service) bool {
		return slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Port != s.Port })
	}
	for i := range im.services {
		other := &im.services[i].Service
		if s.FirewallMark == 0 || other.FirewallMark != s.FirewallMark || other.Port == s.Port {
			continue
		}
		if familyOf(other.Address) == familyOf(s.Address) && (translates(s) || translates(other)) {
			return &im.services[i]
		}
	}
	return nil
}
