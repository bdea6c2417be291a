// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Replies of NAT backends that XDP can't send to (nat_handover.bpf.c). At the device towards these
 * backends, replies are translated and sent to the client. This runs at tc: behind a tunnel device
 * packets are merged (GRO), and generic XDP would split them again. Packets without a session are
 * passed unchanged.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The headers are written for XDP; the context of tc has the fields that they read, too. */
#define xdp_md __sk_buff

#include "core/maps.h"
#include "core/stats.h"
#include "core/types.h"
#include "nat/path.h"
#include "nat/session.h"
#include "nat/state.h"
#include "parse/parse.h"
#include "parse/skb.h"
#include "translate/icmp.h"
#include "translate/skb_rewrite.h"

/* Counts all merged packets and returns the verdict. */
static __always_inline int exit_skb(const struct __sk_buff *skb, enum counter exit, int verdict)
{
	__u64 *count = bpf_map_lookup_elem(&counters, &exit);

	if (count)
		*count += skb->gso_segs ? skb->gso_segs : 1;
	return verdict;
}

/* Records the ports of a first fragment for the later ones. */
static __always_inline void record_skb_fragment(const struct skb_packet *b)
{
	struct fragment_key key = {};
	struct fragment_ports ports = {
		.source_port = b->p.source_port,
		.port = b->p.vip.port,
		.protocol = b->p.vip.protocol,
	};

	fragment_key(&b->p, &b->payload, &key);
	bpf_map_update_elem(&fragments, &key, &ports, BPF_ANY);
}

/* Merged packets are segmented again, so their original size counts. */
static __always_inline int too_big(struct __sk_buff *skb, __u32 ifindex)
{
	__u32 mtu = 0;

	return bpf_check_mtu(skb, ifindex, &mtu, 0, BPF_MTU_CHK_SEGS) != 0;
}

/* Writes the link-layer header. Returns 0, or -1 if there is no room. */
static __always_inline int write_skb_link(struct __sk_buff *skb, const struct path *path)
{
	struct ethhdr eth = { .h_proto = skb->protocol };

	__builtin_memcpy(eth.h_dest, path->destination, sizeof(eth.h_dest));
	__builtin_memcpy(eth.h_source, path->source, sizeof(eth.h_source));
	if (!skb_link && bpf_skb_change_head(skb, sizeof(eth), 0))
		return -1;
	return bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0) ? -1 : 0;
}

/* Sends the packet on the reverse path of the client's packets. Returns the verdict. */
static __always_inline int send_back(struct __sk_buff *skb, const struct path *path)
{
	if (too_big(skb, path->ifindex))
		return exit_skb(skb, COUNTER_DROP_TOO_BIG, TC_ACT_SHOT);
	if (write_skb_link(skb, path))
		return exit_skb(skb, COUNTER_DROP_HEADROOM, TC_ACT_SHOT);
	if (path->vlan && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), path->vlan))
		return exit_skb(skb, COUNTER_DROP_HEADROOM, TC_ACT_SHOT);
	return exit_skb(skb, COUNTER_FORWARD_NAT_REPLY, bpf_redirect(path->ifindex, 0));
}

/*
 * Delivers the packet to a client on this node, for example a pod, as if it had arrived through the
 * interface of the client's packets. The kernel has seen those leave, and conntrack needs both
 * directions. Returns the verdict.
 */
static __always_inline int deliver(struct __sk_buff *skb, const struct nat_session *s)
{
	struct path path = { .ifindex = s->ifindex };

	__builtin_memcpy(path.destination, s->local_mac, sizeof(path.destination));
	__builtin_memcpy(path.source, s->router_mac, sizeof(path.source));
	if (write_skb_link(skb, &path))
		return exit_skb(skb, COUNTER_DROP_HEADROOM, TC_ACT_SHOT);
	return exit_skb(skb, COUNTER_FORWARD_NAT_REPLY, bpf_redirect(path.ifindex, BPF_F_INGRESS));
}

/* Sets the next hop of a route. Returns whether it is a gateway. */
static __always_inline int next_hop(const struct bpf_fib_lookup *fib, const __u8 client[16],
				    struct bpf_redir_neigh *hop)
{
	hop->nh_family = fib->family;
	if (fib->family == FAMILY_IPV4) {
		hop->ipv4_nh = fib->ipv4_dst;
		return fib->ipv4_dst != unmap_ipv4(client);
	}
	__builtin_memcpy(hop->ipv6_nh, fib->ipv6_dst, sizeof(hop->ipv6_nh));
	return !same_address((const __u8 *)hop->ipv6_nh, client);
}

/* Sends the packet through an interface, to the next hop if there is one. Returns the verdict. */
static __always_inline int send_out(struct __sk_buff *skb, const struct path *path,
				    struct bpf_redir_neigh *hop, __u32 ifindex)
{
	if (too_big(skb, ifindex))
		return exit_skb(skb, COUNTER_DROP_TOO_BIG, TC_ACT_SHOT);
	if (!skb_link && write_skb_link(skb, path)) /* the helper removes one */
		return exit_skb(skb, COUNTER_DROP_HEADROOM, TC_ACT_SHOT);
	return exit_skb(skb, COUNTER_FORWARD_NAT_REPLY,
			hop->nh_family ? bpf_redirect_neigh(ifindex, hop, sizeof(*hop), 0)
				       : bpf_redirect_neigh(ifindex, NULL, 0, 0));
}

/*
 * Sends the packet by this node's routes. If they don't apply, the reverse path is used. Returns
 * the verdict.
 */
static __always_inline int send_by_route(struct __sk_buff *skb, const struct server_reply *a,
					 const struct path *path)
{
	struct bpf_redir_neigh hop = {};
	struct bpf_fib_lookup fib = {};

	switch (find_client_route(skb, a->vip, a->session->client, a->session->client_port,
				  skb->ifindex, &fib)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		if (!next_hop(&fib, a->session->client, &hop) && fib.ifindex != path->ifindex)
			return deliver(skb, a->session);
		return send_out(skb, path, &hop, fib.ifindex);
	case BPF_FIB_LKUP_RET_NOT_FWDED: /* the client is this node itself */
		return deliver(skb, a->session);
	}
	return path->vlan ? send_back(skb, path) : send_out(skb, path, &hop, path->ifindex);
}

/* Sends a translated packet to its client. Returns the verdict. */
static __always_inline int send_to_client(struct __sk_buff *skb, const struct server_reply *a)
{
	struct path path = {};

	/* At the egress, a VLAN device above has set the tag of the node's own route. */
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return exit_skb(skb, COUNTER_DROP_INTERNAL_ERROR, TC_ACT_SHOT);
	reverse_path(a->session, &path);
	return a->view_flags & VIEW_DSR ? send_by_route(skb, a, &path) : send_back(skb, &path);
}

/* Translates an ICMP error about a session's packet. Returns the verdict. */
__noinline int reply_error(struct __sk_buff *skb)
{
	struct translation to = {};
	struct server_reply a = {};
	struct packet p = {};
	enum counter exit;

	if (skb_link != ETH_HLEN || bpf_skb_pull_data(skb, skb->len))
		return TC_ACT_UNSPEC;
	if (parse(skb, &p) != CONTINUE || !p.quoted || find_server_reply(&p, &a))
		return TC_ACT_UNSPEC;
	to_client(&a, &to);
	exit = translate_error(skb, &p, &to);
	if (exit != CONTINUE)
		return exit_skb(skb, exit, TC_ACT_SHOT);
	return send_to_client(skb, &a);
}

/* Finds the ports of the packet or of its first fragment. Returns 0, or -1. */
static __always_inline int find_ports(struct __sk_buff *skb, struct skb_packet *b)
{
	if (b->p.fragment == FRAGMENT_LATER)
		return find_fragment(&b->p, &b->payload) == CONTINUE ? 0 : -1;
	return parse_skb_ports(skb, b);
}

/* Translates TCP, UDP and fragments of them. Returns the verdict. */
__noinline int reply_packet(struct __sk_buff *skb)
{
	struct translation to = {};
	struct skb_packet b = {};
	struct server_reply a = {};

	if (parse_skb(skb, &b) || find_ports(skb, &b) || find_server_reply(&b.p, &a))
		return TC_ACT_UNSPEC;
	if (b.p.fragment == FRAGMENT_FIRST)
		record_skb_fragment(&b);
	if (b.hops <= 1)
		return exit_skb(skb, COUNTER_DROP_TTL, TC_ACT_SHOT);
	if (follow_reply(&a, &b.segment))
		return TC_ACT_UNSPEC;
	to_client(&a, &to);
	if (rewrite_skb(skb, &b, &to))
		return exit_skb(skb, COUNTER_DROP_INTERNAL_ERROR, TC_ACT_SHOT);
	return send_to_client(skb, &a);
}

/*
 * Attached to the ingress of the devices towards backends and, if packets for backends are left to
 * the node's network stack, to the egress of interfaces with XDP.
 */
SEC("tc")
int nat_reply(struct __sk_buff *skb)
{
	switch (skb_protocol(skb)) {
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return reply_error(skb);
	case IPPROTO_NONE:
		return TC_ACT_UNSPEC;
	}
	return reply_packet(skb);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
