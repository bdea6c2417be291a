// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The kernel's side of NAT from backends that XDP can't send to (nat_handover.bpf.c): at the device
 * through which they are reached, their answers are translated back and sent to the client, the way
 * that nat_route.h says. XDP is no way to do it: behind a
 * tunnel's device packets have been merged, and the generic XDP that would run there takes them apart
 * again. What belongs to no session goes to the kernel as it came.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The headers below were written for XDP; what they read of its context is in tc's too. */
#define xdp_md __sk_buff

#include "maps.h"
#include "nat_icmp.h"
#include "nat_route.h"
#include "nat_session.h"
#include "nat_state.h"
#include "parse.h"
#include "skb.h"
#include "skb_rewrite.h"
#include "stats.h"
#include "types.h"

/* Leaves by an exit; each of the packets that were merged counts. */
static __always_inline int leave_skb(const struct __sk_buff *skb, enum counter exit, int verdict)
{
	__u64 *count = bpf_map_lookup_elem(&counters, &exit);

	if (count)
		*count += skb->gso_segs ? skb->gso_segs : 1;
	return verdict;
}

/* Fragments have ports in the first one only: it leaves a note for the others. */
static __always_inline void note_skb_fragment(const struct skb_packet *b)
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

/* Packets that were merged are taken apart again, to what they were. */
static __always_inline int too_big(struct __sk_buff *skb, __u32 ifindex)
{
	__u32 mtu = 0;

	return bpf_check_mtu(skb, ifindex, &mtu, 0, BPF_MTU_CHK_SEGS) != 0;
}

/* Puts a link layer in front of the packet. Returns 0, or -1 if there is no room. */
static __always_inline int write_skb_link(struct __sk_buff *skb, const struct way *way)
{
	struct ethhdr eth = { .h_proto = skb->protocol };

	__builtin_memcpy(eth.h_dest, way->destination, sizeof(eth.h_dest));
	__builtin_memcpy(eth.h_source, way->source, sizeof(eth.h_source));
	if (!skb_link && bpf_skb_change_head(skb, sizeof(eth), 0))
		return -1;
	return bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0) ? -1 : 0;
}

/* The link layer by which the client's packets come, the other way round. Returns the verdict. */
static __always_inline int send_back(struct __sk_buff *skb, const struct way *way)
{
	if (too_big(skb, way->ifindex))
		return leave_skb(skb, COUNTER_DROP_TOO_BIG, TC_ACT_SHOT);
	if (write_skb_link(skb, way))
		return leave_skb(skb, COUNTER_DROP_HEADROOM, TC_ACT_SHOT);
	if (way->vlan && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), way->vlan))
		return leave_skb(skb, COUNTER_DROP_HEADROOM, TC_ACT_SHOT);
	return leave_skb(skb, COUNTER_FORWARD_NAT_REPLY, bpf_redirect(way->ifindex, 0));
}

/*
 * To a client on this node, which may be a pod too: as if the packet had come by the interface by which the
 * client's do. The kernel has seen those on their way out, and filters connections of which it doesn't see
 * both halves. Returns the verdict.
 */
static __always_inline int deliver(struct __sk_buff *skb, const struct nat_session *s)
{
	struct way way = { .ifindex = s->ifindex };

	__builtin_memcpy(way.destination, s->own, sizeof(way.destination));
	__builtin_memcpy(way.source, s->router, sizeof(way.source));
	if (write_skb_link(skb, &way))
		return leave_skb(skb, COUNTER_DROP_HEADROOM, TC_ACT_SHOT);
	return leave_skb(skb, COUNTER_FORWARD_NAT_REPLY, bpf_redirect(way.ifindex, BPF_F_INGRESS));
}

/* The next hop of a route. Returns whether that is a gateway. */
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

/* By a route that was found, or else out of the interface of the way back. Returns the verdict. */
static __always_inline int send_out(struct __sk_buff *skb, const struct way *way,
				    struct bpf_redir_neigh *hop, __u32 ifindex)
{
	if (too_big(skb, ifindex))
		return leave_skb(skb, COUNTER_DROP_TOO_BIG, TC_ACT_SHOT);
	if (!skb_link && write_skb_link(skb, way)) /* the helper takes one away */
		return leave_skb(skb, COUNTER_DROP_HEADROOM, TC_ACT_SHOT);
	return leave_skb(skb, COUNTER_FORWARD_NAT_REPLY,
			 hop->nh_family ? bpf_redirect_neigh(ifindex, hop, sizeof(*hop), 0)
					: bpf_redirect_neigh(ifindex, NULL, 0, 0));
}

/* The way that this node's routes say. A node that doesn't forward isn't asked. Returns the verdict. */
static __always_inline int send_by_route(struct __sk_buff *skb, const struct answered *a,
					 const struct way *way)
{
	struct bpf_redir_neigh hop = {};
	struct bpf_fib_lookup fib = {};

	switch (find_route(skb, a->vip, a->session->client, a->session->client_port, skb->ifindex,
			   &fib)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		if (!next_hop(&fib, a->session->client, &hop) && fib.ifindex != way->ifindex)
			return deliver(skb, a->session);
		return send_out(skb, way, &hop, fib.ifindex);
	case BPF_FIB_LKUP_RET_NOT_FWDED: /* the client is this node itself */
		return deliver(skb, a->session);
	}
	return way->vlan ? send_back(skb, way) : send_out(skb, way, &hop, way->ifindex);
}

/* Returns the verdict. */
static __always_inline int send_to_client(struct __sk_buff *skb, const struct answered *a)
{
	struct way way = {};

	way_back(a->session, &way);
	return a->view_flags & VIEW_DNAT ? send_by_route(skb, a, &way) : send_back(skb, &way);
}

/* An ICMP error about a packet of a session. They are short, and whole. Returns the verdict. */
__noinline int reply_error(struct __sk_buff *skb)
{
	struct translation to = {};
	struct answered a = {};
	struct packet p = {};
	enum counter exit;

	if (skb_link != ETH_HLEN || bpf_skb_pull_data(skb, skb->len))
		return TC_ACT_UNSPEC;
	if (parse(skb, &p) != COUNTER_COUNT || !p.quoted || find_answered(&p, &a))
		return TC_ACT_UNSPEC;
	to_client(&a, &to);
	exit = translate_error(skb, &p, &to);
	if (exit != COUNTER_COUNT)
		return leave_skb(skb, exit, TC_ACT_SHOT);
	return send_to_client(skb, &a);
}

/* Ports of the packet, or of its first fragment. Returns 0, or -1 if it has none. */
static __always_inline int find_ports(struct __sk_buff *skb, struct skb_packet *b)
{
	if (b->p.fragment == FRAGMENT_LATER)
		return recall_fragment(&b->p, &b->payload) == COUNTER_COUNT ? 0 : -1;
	return parse_skb_ports(skb, b);
}

/* TCP and UDP, and fragments of them. Returns the verdict. */
__noinline int reply_packet(struct __sk_buff *skb)
{
	struct translation to = {};
	struct skb_packet b = {};
	struct answered a = {};

	if (parse_skb(skb, &b) || find_ports(skb, &b) || find_answered(&b.p, &a))
		return TC_ACT_UNSPEC;
	if (b.p.fragment == FRAGMENT_FIRST)
		note_skb_fragment(&b);
	if (b.hops <= 1)
		return leave_skb(skb, COUNTER_DROP_TTL, TC_ACT_SHOT);
	if (follow_server(&a, b.tcp_flags))
		return TC_ACT_UNSPEC;
	to_client(&a, &to);
	if (rewrite_skb(skb, &b, &to))
		return leave_skb(skb, COUNTER_DROP_STATE, TC_ACT_SHOT);
	return send_to_client(skb, &a);
}

/* At the devices behind which backends are, for packets that come in. */
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
