/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DSR: look-up of connections at peers. Only the node of a connection's backend has a session for
 * it. The ring may point to another node, if the balancers that recorded the flow have failed or
 * restarted. The packet is then forwarded from peer to peer, in the order of their MAC addresses,
 * until one has a session for it; the last peer refuses it. (In Beamer, NSDI 2018, section 4.2,
 * servers forward packets to the previous server; here there may be many.)
 *
 * Only the hop limit of the packet is modified: from the first relay on it counts the remaining
 * peers. It is so small that packets rarely arrive with such a value; if one does, it is looked up
 * at once and still delivered. As it only decreases, look-ups end even if peers disagree on the
 * order.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "answer/error.h"
#include "answer/refuse.h"
#include "answer/reply.h"
#include "core/limit.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "nat/rewrite.h"
#include "nat/session.h"
#include "pick/ring.h"
#include "send/link.h"

/*
 * Limits look-ups, so that peers don't multiply a flood: to 20,000 per second and service, so that
 * a flood to one leaves those of others, and to 100,000 per second and processor. No node stores the
 * result of a look-up, so each packet of a misrouted connection is one, at each node that it visits:
 * after the loss of a balancer 20,000 are the packets of 1,000 connections that send 20 a second, or
 * the acknowledgements of one download at 500 Mbit/s. A lower limit would break them. A flood can
 * cause as many packets per second at most from each node to the next.
 */
#define LOOKUP_SERVICE_INTERVAL_NS 50000ull
#define LOOKUP_INTERVAL_NS 10000ull

/* Whether this node may forward one more look-up for the service of that number. */
static __always_inline int may_look_up(__u32 number)
{
	__u64 now = bpf_ktime_get_coarse_ns() << LIMIT_TIME_SHIFT;
	__u64 *arrival = bpf_map_lookup_elem(&lookups, &number);

	if (tracing)
		return 1;
	return arrival &&
	       limit_take(arrival, LOOKUP_SERVICE_INTERVAL_NS << LIMIT_TIME_SHIFT, now) &&
	       within_limit(RATE_LOOKUP, LOOKUP_INTERVAL_NS);
}

/* Hops that remain at the last peer, for routers between it and a pod. */
#define LOOKUP_SPARE_HOPS 4

/* The hop limit of a packet at the start of a look-up, which may visit all peers and this node. */
static __always_inline __u32 lookup_hops(const struct service *service)
{
	return service->peer_lookup.peers ? LOOKUP_SPARE_HOPS + 1 + service->peer_lookup.peers
					  : HOPS_ANY;
}

/*
 * Whether this packet is a peer look-up. A peer without a backend of the service counts one peer
 * more than this node.
 */
static __always_inline int is_lookup(struct xdp_md *ctx, const struct packet *p,
				     const struct service *service)
{
	return p->phase == PHASE_OPEN && service->peer_lookup.peers &&
	       hops_left(ctx, p) <= lookup_hops(service) + 1;
}

/* The next peer's backend; NULL if there is none, or if the peers are those of another view. */
static __always_inline struct backend *next_peer(const struct packet *p,
						 const struct service *service)
{
	const struct view *view = packet_view(p, service);
	struct backend *b;

	if (service->peer_lookup.next >= view->slots)
		return NULL;
	b = backend_at(view, service->peer_lookup.next);
	return b && b->flags & BACKEND_RELAY ? b : NULL;
}

/* Handles a packet that no reachable peer has a session for. Returns the exit. */
static __always_inline enum counter refuse_unknown(struct xdp_md *ctx, const struct packet *p,
						   const struct service *service)
{
	return service->peer_lookup.pending ? COUNTER_DROP_NO_SESSION : refuse_packet(ctx, p);
}

/*
 * Forwards a packet without a session on this node to the next peer, or refuses it after the last
 * one. Returns the verdict.
 */
static __noinline int forward_lookup(struct xdp_md *ctx, const struct packet *p,
				     const struct service *service, __u32 number)
{
	struct backend *b = next_peer(p, service), *other;
	const struct egress *out = b ? egress_of(b) : NULL;
	enum counter exit;
	void *ip;

	if (out && is_other_host(ctx, p, out))
		return exit_with(COUNTER_PASS_OTHER_HOST, XDP_PASS);
	if (!service->peer_lookup.peers || hops_left(ctx, p) <= LOOKUP_SPARE_HOPS + 1)
		return exit_default(refuse_unknown(ctx, p, service));
	if (!out) /* the peers are those of another view */
		return exit_default(COUNTER_DROP_NO_SESSION);
	/*
	 * If the next peer is the sender, it has no session and may have no other peer configured.
	 */
	if (returns_to_sender(ctx, p, b, out)) {
		other = search_ring(ctx, p, packet_view(p, service), SEARCH_PEER);
		if (other)
			b = other;
		out = egress_of(b);
		if (!out)
			return exit_default(COUNTER_DROP_NO_SESSION);
	}
	if (p->length > out->mtu)
		return exit_default(answer_mtu(ctx, p, out->mtu));
	if (!may_look_up(number))
		return exit_default(COUNTER_DROP_ANSWER_LIMIT);
	ip = write_link(ctx, p, b, out, p->proto, 0);
	if (!ip)
		return exit_default(COUNTER_DROP_HEADROOM);
	exit = spend_hop(ctx, p, ip, lookup_hops(service));
	if (exit != CONTINUE)
		return exit_default(exit);
	return exit_with(COUNTER_FORWARD_LOOKUP, transmit(ctx, out->ifindex));
}
