// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"math"
	"slices"
	"strings"
	"time"
)

// outcome is how an import treats a directive.
type outcome string

// The outcomes. An approximated directive is translated, with a report if the result differs.
const (
	translated   outcome = "translated"
	approximated outcome = "approximated"
	reported     outcome = "reported"
)

// directive is a keyword of keepalived.
type directive struct {
	// words are keywords with one meaning, separated by spaces.
	words string
	// least and most are the numbers of parameters. keepalived exits if there are fewer, and
	// ignores further ones.
	least, most int
	outcome     outcome
	// text is the counterpart, or why there is none.
	text string
	// read translates a statement; without it the statement is reported with text.
	read func(*reader, *statement)
	// inside is the name of the block of keywords that follows in braces: anything for a block
	// that is read or reported as a whole, empty if there are none.
	inside string
}

// anything is a block of other statements than keywords, or of those that aren't translated.
const anything = "*"

// The reasons why directives have no counterpart.
const (
	noVRRP    = "nodes don't take over addresses by VRRP: all of them announce their VIPs by BGP (section bgp)"
	noBFD     = "BFD belongs to a BGP peer (bgp.peers[].bfd)"
	noMail    = "metrics and alerts replace mail"
	noSNMP    = "metrics replace SNMP and D-Bus"
	noScripts = "no scripts are run: metrics and alerts replace them"
	noFiles   = "no files or processes are watched"
	noProcess = "it configures keepalived's own processes and files"
	noSource  = "probes have the address that the node uses towards the backend"
	noCheck   = "the backend isn't checked unless the service has another check"
	network   = "addresses, routes and rules of the node are left to its network configuration; VIPs are announced by BGP"
	noInhibit = "a backend that fails loses its flows to the others; to keep them, drain it"
)

// blocks are all directives, by the names of the blocks that they are in.
var blocks = map[string][]directive{
	"": {
		{"virtual_server", 1, 2, translated, "a service for each address and port; the name is protocol, address and port",
			(*reader).virtualServer, "virtual_server"},
		{"virtual_server_group", 1, 1, translated, "services of the virtual servers that use it; ranges are expanded",
			ignore, anything},
		{"global_defs", 0, 0, reported, "each directive",
			func(x *reader, s *statement) { x.block("global_defs", s) }, "global_defs"},
		{"SSL", 0, 0, reported, "checks have no client certificate; health.tls.ca is the counterpart of ca", nil, anything},
		{"vrrp_instance", 0, 1, reported, noVRRP, (*reader).vrrpInstance, anything},
		{"vrrp_sync_group vrrp_script vrrp_track_process garp_group track_group linkbeat_interfaces " +
			"interface_up_down_delays", 0, 1, reported, noVRRP, nil, anything},
		{"linkbeat_use_polling", 0, 0, reported, noVRRP, nil, ""},
		{"track_file vrrp_track_file", 1, 1, reported, noFiles, nil, anything},
		{"bfd_instance", 1, 1, reported, noBFD, nil, anything},
		{"static_ipaddress static_routes static_rules", 0, 0, reported, network, nil, anything},
		{"net_namespace net_namespace_ipvs namespace_with_ipsets", 0, 1, reported,
			"the agent is in the network namespace in which it is started", nil, ""},
		{"instance use_pid_dir child_wait_time", 0, 1, reported, noProcess, nil, ""},
	},
	"global_defs": globalDirectives,
	"virtual_server": slices.Concat(serverDirectives, probingDirectives(alwaysAlpha), []directive{
		{"lb_algo lvs_sched", 1, 1, approximated, "`scheduler`: `rr`, `wrr`, `lc`, `wlc` (the default), `sh`; `mh`: " +
			"`maglev`, with `affinity: client` unless `mh-port` follows; others: the nearest", ofVirtual((*virtual).readScheduler), ""},
		{"flag-1 flag-2 flag-3 sh-port sh-fallback mh-port mh-fallback", 0, 0, approximated,
			"`mh-port` after `lb_algo mh`: no `affinity: client`", ofVirtual((*virtual).schedulerFlag), ""},
		{"lb_kind lvs_method", 1, 6, approximated, "`forward`: `NAT` (the default): `nat`, with which servers see the node's " +
			"address; `DR`: `l2dsr`; `TUN`: `ipip`, with `type gue`: `gue`",
			func(x *reader, s *statement) { x.v.method.read(s) }, ""},
		{"protocol", 1, 1, translated, "`protocol`: `TCP`, `UDP` (the default); SCTP is left out", ofVirtual((*virtual).readProtocol), ""},
		{"ip_family", 1, 1, translated, "selects among the addresses of a firewall mark", ofVirtual((*virtual).readFamily), ""},
		{"persistence_timeout", 0, 1, translated, "`affinity: client` and `affinityTimeout`; 6m without a number",
			ofVirtual((*virtual).persistenceTimeout), ""},
		{"persistence_granularity", 1, 1, approximated, "`affinity: client`: clients are addresses, not networks",
			ofVirtual((*virtual).granularity), ""},
		{"weight", 1, 1, translated, "`weight` of real servers without one",
			count(1, maxWeight, func(x *reader) *int { return &x.v.weight }), ""},
		{"quorum", 1, 1, approximated, "`minHealthy`: the fewest backends whose weights reach it", ofVirtual((*virtual).readQuorum), ""},
		{"real_server", 1, 2, translated, "a backend", (*reader).realServer, "real_server"},
		{"sorry_server", 1, 2, approximated, "a backend with `backup: true`, used while no other is, whatever the quorum",
			ofVirtual((*virtual).sorryServer), ""},
		{"sorry_server_lvs_method", 1, 6, approximated, "a service has one method", ofVirtual((*virtual).sorryMethod), ""},
		{"sorry_server_inhibit", 0, 0, translated, "a backup keeps its flows", ofVirtual((*virtual).sorryInhibit), ""},
		{"inhibit_on_failure", 0, 0, reported, noInhibit, nil, ""},
		{"ops", 0, 0, reported, "datagrams from one port of a client are a flow, and go to one backend", nil, ""},
		{"hashed", 0, 0, reported, "it has no effect", nil, ""},
		{"persistence_engine", 1, 1, reported, "clients are identified by their address", nil, ""},
		{"ha_suspend", 0, 0, reported, "backends are always checked", nil, ""},
		{"omega", 0, 0, reported, "no scripts are run", nil, ""},
		{"hysteresis", 1, 1, reported, "routes that are lost repeatedly are damped instead", nil, ""},
		{"quorum_up quorum_down", 0, 9, reported, "no scripts are run: BGP announces a VIP with minHealthy usable backends",
			nil, ""},
	}),
	"real_server": slices.Concat(serverDirectives, probingDirectives(optionalAlpha), []directive{
		{"weight", 1, 1, translated, "`weight`; if any is above 256, all in proportion",
			count(0, maxWeight, func(x *reader) *int { return &x.r.ownWeight }), ""},
		{"lvs_method", 1, 6, approximated, "a service has one method, its first real server's",
			func(x *reader, s *statement) { x.r.method.read(s) }, ""},
		{"uthreshold", 1, 1, translated, "`maxConnections`", func(x *reader, s *statement) { x.r.upperThreshold(s) }, ""},
		{"lthreshold", 1, 1, reported, "a backend gets new connections again below maxConnections", nil, ""},
		{"inhibit_on_failure", 0, 1, reported, noInhibit, (*reader).inhibit, ""},
		{"notify_up notify_down", 0, 9, reported, noScripts, nil, ""},
		{"HTTP_GET SSL_GET", 0, 0, approximated, "`health` of type `http`, `https`", (*reader).readCheck, "HTTP_GET"},
		{"TCP_CHECK PING_CHECK", 0, 0, translated, "`health` of type `tcp`, `icmp`", (*reader).readCheck, "TCP_CHECK"},
		{"DNS_CHECK", 0, 0, translated, "`health` of type `dns`", (*reader).readCheck, "DNS_CHECK"},
		{"UDP_CHECK", 0, 0, approximated, "`health` of type `udp`", (*reader).readCheck, "UDP_CHECK"},
		{"SMTP_CHECK", 0, 0, approximated, "`health` of type `tcp`: the server's greeting is not checked",
			(*reader).readCheck, "SMTP_CHECK"},
		{"MISC_CHECK", 0, 0, reported, "no programs are run: " + noCheck, (*reader).uncheck, anything},
		{"FILE_CHECK", 0, 0, reported, noFiles + ": " + noCheck, (*reader).uncheck, anything},
		{"BFD_CHECK", 0, 0, reported, noBFD + ": " + noCheck, (*reader).uncheck, anything},
	}),
	"TCP_CHECK": checkDirectives(),
	"DNS_CHECK": checkDirectives(
		directive{"name", 1, 1, translated, "`dns.name`", ofCheck((*check).dnsName), ""},
		directive{"type", 1, 1, translated, "`dns.type`; `RRSIG` and `DNSKEY` have no counterpart", ofCheck((*check).dnsType), ""}),
	"UDP_CHECK": checkDirectives(
		directive{"payload", 0, maxLine, translated, "`send`", func(x *reader, s *statement) { s.payload(&x.c.Send) }, ""},
		directive{"require_reply", 0, maxLine, approximated, "`expect`, which may be anywhere in the answer", ofCheck((*check).reply), ""},
		directive{"min_reply_length max_reply_length", 1, 1, reported, "there is no counterpart", nil, ""}),
	"SMTP_CHECK": checkDirectives(
		directive{"helo_name", 0, 1, reported, "the server's greeting is not checked", ignore, ""},
		directive{"host", 0, 0, reported, "the backend's own address is probed", nil, anything}),
	"HTTP_GET": checkDirectives(
		directive{"url", 0, 0, approximated, "the first one with a path is probed", (*reader).readURL, "url"},
		directive{"virtualhost", 0, 1, translated, "`host`", readHost, ""},
		directive{"http_protocol", 0, 1, approximated, "requests are of HTTP/1.1", httpProtocol, ""},
		directive{"enable_sni", 0, 1, approximated, "the host's name is always sent",
			truth(func(x *reader) **bool { return &x.c.sni }), ""},
		directive{"fast_recovery", 0, 1, translated, "it is about several URLs",
			truth(func(*reader) **bool { return new(*bool) }), ""},
		directive{"tls_compliant", 0, 1, reported, "there is no counterpart", nil, ""},
		directive{"nb_get_retry", 1, 1, translated, "`fall`, as `retry`", (*reader).retry, ""}),
	"url": {
		{"path", 1, 1, translated, "`path`", word(func(x *reader) *string { return &x.u.path }), ""},
		{"status_code", 0, maxLine, translated, "`expectedCodes`: the codes of all lines; 200-299 by default",
			func(x *reader, s *statement) { x.u.statusCode(s) }, ""},
		{"virtualhost", 0, 1, translated, "`host`", word(func(x *reader) *string { return &x.u.host }), ""},
		{"regex", 1, maxLine, approximated, "`body`, an expression of RE2",
			func(x *reader, s *statement) { x.u.pattern = s }, ""},
		{"regex_options", 0, maxLine, approximated, "flags of `body`: `caseless`, `multiline` and `dotall`",
			func(x *reader, s *statement) { x.u.options = append(x.u.options, s) }, ""},
		{"regex_no_match", 0, 0, reported, "there is no counterpart: the regular expression is left out",
			func(x *reader, s *statement) { x.u.inverted = s }, ""},
		{"regex_min_offset regex_max_offset", 0, 1, reported, "the first 64 KiB of a response are searched", nil, ""},
		{"digest", 1, 1, reported, "there is no counterpart: health.body matches a response by a regular expression", nil, ""},
		{"regex_stack tls_compliant", 0, 2, reported, "there is no counterpart", nil, ""},
	},
}

// globalDirectives are the directives of global_defs.
var globalDirectives = []directive{
	{"lvs_timeouts", 0, 6, reported, "set idleTimeout for services on XDP, and run ipvsadm --set TCP TCPFIN UDP on the node " +
		"for services on IPVS", nil, ""},
	{"lvs_sync_daemon", 0, 13, reported, "connections aren't synchronized: with XDP and maglev all nodes choose alike, for " +
		"services on IPVS run ipvsadm --start-daemon", nil, ""},
	{"lvs_flush", 0, 0, reported, "IPVS services of other programs stay: delete them with ipvsadm before the agent starts", nil, ""},
	{"lvs_flush_on_stop lvs_flush_onstop", 0, 1, reported,
		"services stay when the agent stops, unless fairlead agent has --remove-on-exit", nil, ""},
	{"nftables_ipvs nftables_ipvs_priority nftables_ipvs_start_fwmark", 0, 1, reported,
		"groups become a service for each address, without firewall marks", nil, ""},
	{"lvs_notify_fifo lvs_notify_fifo_script notify_fifo notify_fifo_script vrrp_notify_fifo vrrp_notify_fifo_script " +
		"startup_script startup_script_timeout shutdown_script shutdown_script_timeout script_user enable_script_security " +
		"fifo_write_vrrp_states_on_reload rs_init_notifies", 0, 9, reported, noScripts, nil, ""},
	{"checker_log_all_failures", 0, 1, reported, "fairlead backends shows the reason of a failure", nil, ""},
	{"router_id smtp_server smtp_helo_name smtp_connect_timeout smtp_alert smtp_alert_vrrp smtp_alert_checker " +
		"notification_email_from no_email_faults no_checker_emails", 0, 2, reported, noMail, nil, ""},
	{"notification_email", 0, 0, reported, noMail, nil, anything},
	{"snmp_socket enable_traps enable_snmp_vrrp enable_snmp_keepalived enable_snmp_rfc enable_snmp_rfcv2 enable_snmp_rfcv3 " +
		"enable_snmp_checker snmp_vs_stats_update_interval snmp_rs_stats_update_interval enable_dbus dbus_service_name " +
		"dbus_no_interface_name", 0, 1, reported, noSNMP, nil, ""},
	{"dynamic_interfaces default_interface disable_local_igmp max_auto_priority min_auto_priority_delay " +
		"nftables nftables_priority nftables_ifindex nftables_counters v3_checksum_as_v2 " +
		"vrrp_cpu_affinity vrrp_check_unicast_src vrrp_down_timer_adverts vrrp_garp_extra_if vrrp_garp_interval " +
		"vrrp_garp_lower_prio_delay vrrp_garp_lower_prio_repeat vrrp_garp_master_delay vrrp_garp_master_refresh " +
		"vrrp_garp_master_refresh_repeat vrrp_garp_master_repeat vrrp_gna_interval vrrp_higher_prio_send_advert vrrp_ipsets " +
		"vrrp_iptables vrrp_lower_prio_no_advert vrrp_mcast_group4 vrrp_mcast_group6 vrrp_min_garp vrrp_netlink_cmd_rcv_bufs " +
		"vrrp_netlink_cmd_rcv_bufs_force vrrp_netlink_monitor_rcv_bufs vrrp_netlink_monitor_rcv_bufs_force vrrp_no_swap " +
		"vrrp_notify_priority_changes vrrp_owner_ignore_adverts vrrp_priority vrrp_process_name vrrp_rlimit_rttime " +
		"vrrp_rlimit_rtime vrrp_rt_priority vrrp_rx_bufs_multiplier vrrp_rx_bufs_policy vrrp_skip_check_adv_addr " +
		"vrrp_startup_delay vrrp_strict vrrp_version vrrp_vmac_garp_intvl log_unknown_vrids vmac_prefix vmac_addr_prefix",
		0, 9, reported, noVRRP, nil, ""},
	{"process_names process_name checker_process_name lvs_process_name bfd_process_name checker_priority checker_no_swap " +
		"checker_rt_priority checker_cpu_affinity checker_rlimit_rttime checker_rlimit_rtime bfd_priority bfd_no_swap " +
		"bfd_rt_priority bfd_cpu_affinity bfd_rlimit_rttime bfd_rlimit_rtime process_monitor_rcv_bufs " +
		"process_monitor_rcv_bufs_force lvs_netlink_cmd_rcv_bufs lvs_netlink_cmd_rcv_bufs_force " +
		"lvs_netlink_monitor_rcv_bufs lvs_netlink_monitor_rcv_bufs_force umask random_seed reload_check_config " +
		"reload_time_file reload_repeat reload_file include_check config_save_dir tmp_config_directory data_use_instance " +
		"use_symlink_paths iproute_usr_dir iproute_etc_dir json_version json_dump_file state_dump_file stats_dump_file",
		0, 9, reported, noProcess, nil, ""},
}

// serverDirectives are common to virtual servers and real servers.
var serverDirectives = []directive{
	{"virtualhost", 0, 1, translated, "`host`; the URL's precedes the check's, the real server's and the virtual server's",
		readHost, ""},
	{"smtp_alert", 0, 1, reported, noMail, nil, ""},
	{"snmp_name", 0, 1, reported, noSNMP, nil, ""},
}

// probingDirectives are the settings of checks that virtual servers and real servers have too.
func probingDirectives(alpha func(*reader, *statement)) []directive {
	return []directive{
		{"alpha", 0, 1, translated, "`health.initially: unhealthy`", alpha, ""},
		{"delay_loop", 1, 1, translated, "`interval`; a minute by default",
			seconds(time.Microsecond, maxTime, func(p *probing) **timer { return &p.interval }), ""},
		{"connect_timeout", 1, 1, translated, "`timeout`, which is at most the interval; 5s by default",
			seconds(time.Microsecond, math.MaxUint32*time.Microsecond, func(p *probing) **timer { return &p.timeout }), ""},
		{"retry", 1, 1, translated, "`fall`, one more: keepalived counts probes after the first failure", (*reader).retry, ""},
		{"delay_before_retry", 1, 1, approximated, "a failed probe is repeated after the interval",
			seconds(0, maxTime, func(p *probing) **timer { return &p.retryDelay }), ""},
		{"warmup", 1, 1, reported, "first probes are spread over the interval", nil, ""},
	}
}

// checkDirectives are the directives of a check: common ones of checks that connect, and its own.
func checkDirectives(own ...directive) []directive {
	return slices.Concat(probingDirectives(optionalAlpha), []directive{
		{"connect_ip", 1, 1, translated, "`monitorAddress`", ofCheck((*check).connectIP), ""},
		{"connect_port", 1, 1, translated, "`health.port`, or `monitorPort` where real servers differ",
			ofCheck((*check).connectPort), ""},
		{"bindto bind_port bind_if", 1, 1, reported, noSource, nil, ""},
		{"fwmark", 1, 1, reported, "probes have no mark of their own", nil, ""},
		{"log_all_failures", 0, 1, reported, "fairlead backends shows the reason of a failure", nil, ""},
	}, own)
}

// readHost reads the name of a host.
var readHost = word(func(x *reader) *string { return &x.probing.host })

// alwaysAlpha reads alpha of a virtual server, whose argument keepalived ignores.
func alwaysAlpha(x *reader, _ *statement) { x.probing.alpha = new(true) }

// optionalAlpha reads alpha of a real server or a check.
var optionalAlpha = truth(func(x *reader) **bool { return &x.probing.alpha })

// ofVirtual returns a function that has the virtual server of a block read a statement.
func ofVirtual(read func(*virtual, *statement)) func(*reader, *statement) {
	return func(x *reader, s *statement) { read(x.v, s) }
}

// ofCheck returns a function that has the check of a block read a statement.
func ofCheck(read func(*check, *statement)) func(*reader, *statement) {
	return func(x *reader, s *statement) { read(x.c, s) }
}

// keywords returns the directives of all blocks by block and keyword.
func keywords() map[string]map[string]*directive {
	all := make(map[string]map[string]*directive, len(blocks))
	for name, rows := range blocks {
		all[name] = map[string]*directive{}
		for i := range rows {
			for word := range strings.FieldsSeq(rows[i].words) {
				all[name][word] = &rows[i]
			}
		}
	}
	return all
}

// reader translates the statements of a block: of the whole file, or of v, r, c or u.
type reader struct {
	*importer
	v *virtual
	r *server
	c *check
	u *url
	// probing has the settings of v, r or c.
	probing *probing
}

// block reads the statements of a block, in their order.
func (x *reader) block(name string, of *statement) {
	for _, s := range of.body {
		switch d := x.keywords[name][s.keyword()]; {
		case d == nil && s.block && name != "":
			x.refuse(s, "unknown keyword in %s: keepalived ends that block at the closing brace of this one", of.keyword())
		case d == nil:
			s.report("%s: unknown keyword: keepalived ignores it", s.keyword())
			x.block(name, s) // keepalived reads its statements as if the braces weren't there
		case len(s.words) <= d.least:
			x.refuse(s, "a parameter is missing: keepalived exits")
		case s.block && d.inside == "":
			x.refuse(s, "it has no block: keepalived ends the surrounding one at its closing brace")
		case !s.block && d.inside != "":
			x.refuse(s, "the opening brace of its block is missing")
		default:
			if d.outcome != reported && len(s.words) > d.most+1 {
				s.report("%s: keepalived ignores %q", s.keyword(), strings.Join(s.words[d.most+1:], " "))
			}
			if d.read != nil {
				d.read(x, s)
			} else {
				d.leaveOut(s)
			}
		}
	}
}

// leaveOut reports a statement that has no counterpart. A block of a name is reported with that.
func (d *directive) leaveOut(s *statement) {
	name := s.keyword()
	if s.block {
		name = strings.Join(s.words[:min(2, len(s.words))], " ")
	}
	s.report("%s: %s", name, d.text)
}

// vrrpInstance reports an instance, and the deprecated place of a directive about IPVS.
func (x *reader) vrrpInstance(s *statement) {
	x.keywords[""][s.keyword()].leaveOut(s)
	for _, inner := range s.body {
		if inner.keyword() == "lvs_sync_daemon_interface" {
			x.keywords["global_defs"]["lvs_sync_daemon"].leaveOut(inner)
		}
	}
}

// ignore is for statements without an effect on the result.
func ignore(*reader, *statement) {}
