/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DNAT, segments that go astray: those of a connection that the node which the rings name doesn't know.
 * Only the node that has the connection's backend knows it, and rings may mislead: those who have
 * records of the flow may be gone, or have come back with none. So the segment is asked around: from the
 * node to which it was relayed it visits the service's other nodes one after the other, in the order of
 * their MAC addresses, until one has a session for it. If none has, the last one refuses it. (Beamer, NSDI
 * 2018, section 4.2, lets servers pass packets on to the previous server; here there may be many.)
 *
 * Nothing is written into the packet but its hop limit: it says how many nodes are left to be asked, from
 * the first relay on. It is so small that hardly any packet comes in with it; one that does is asked around
 * at once, and arrives all the same. It only falls, so the way ends, also among nodes that disagree.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "hop.h"
#include "link.h"
#include "maps.h"
#include "nat_session.h"
#include "packet.h"
#include "reply.h"
#include "reset.h"
#include "ring.h"
#include "stats.h"
#include "toobig.h"
#include "types.h"
#include "walk.h"

/*
 * How many segments a processor passes on, so that a flood of them doesn't become one that is as many times
 * larger as there are nodes: 100,000 a second, far more than come from connections that a balancer's loss
 * has moved.
 */
#define ASK_INTERVAL_NS 10000ull

/* Hops that are left when the last node gets the segment: it may still have routers on the way to a pod. */
#define ASK_SPARE_HOPS 4

/* The hop limit of a segment about which the service's nodes have yet to be asked, all of them and this
 * one: the way may begin at any. */
static __always_inline __u32 asking_hops(const struct service *service)
{
	return service->round.nodes ? ASK_SPARE_HOPS + 1 + service->round.nodes : HOPS_ANY;
}

/*
 * Whether a segment was sent here to be known. A node that has no backend of the service itself counts
 * one node more than this one does.
 */
static __always_inline int is_asked(struct xdp_md *ctx, const struct packet *p,
				    const struct service *service)
{
	return p->phase == PHASE_OPEN && service->round.nodes &&
	       hops_left(ctx, p) <= asking_hops(service) + 1;
}

/* The next node's backend; NULL if there is nobody to ask, or the round is already another view's. */
static __always_inline struct backend *next_node(const struct service *service)
{
	const struct view *view = active_view(service);
	struct backend *b;

	if (service->round.next >= view->slots)
		return NULL;
	b = backend_at(view, service->round.next);
	return b && b->flags & BACKEND_RELAY ? b : NULL;
}

/* A segment that no node that can be asked knows. Returns the exit. */
static __always_inline enum counter refuse_unknown(struct xdp_md *ctx, const struct packet *p,
						   const struct service *service)
{
	return service->round.pending ? COUNTER_DROP_NO_SESSION : refuse_segment(ctx, p);
}

/*
 * Sends a segment that is of no session here to the next node, or refuses it if all have been asked.
 * Returns the verdict.
 */
static __noinline int ask_around(struct xdp_md *ctx, const struct packet *p,
				 const struct service *service)
{
	struct backend *b = next_node(service), *other;
	enum counter exit;
	void *ip;

	if (b && is_for_others(ctx, p, b))
		return leave(COUNTER_PASS_OTHER_HOST, XDP_PASS);
	if (!service->round.nodes || hops_left(ctx, p) <= ASK_SPARE_HOPS + 1)
		return conclude(refuse_unknown(ctx, p, service));
	if (!b)
		return conclude(COUNTER_DROP_NO_SESSION); /* the next one finds both alike */
	/* That one may know of fewer nodes than this one does, or of none but this: it comes next, has been
	 * asked, and would ask nobody else. */
	if (returns_to_sender(ctx, p, b)) {
		other = walk_ring(ctx, p, active_view(service), WALK_OTHER);
		if (other)
			b = other;
	}
	if (p->length > b->mtu)
		return conclude(answer_too_big(ctx, p, b));
	if (!within_limit(ANSWER_ASK, ASK_INTERVAL_NS))
		return conclude(COUNTER_DROP_ANSWER_LIMITED);
	ip = write_link(ctx, p, b, p->proto, 0);
	if (!ip)
		return conclude(COUNTER_DROP_HEADROOM);
	exit = spend_hop(ctx, p, ip, asking_hops(service));
	if (exit != COUNTER_COUNT)
		return conclude(exit);
	return leave(COUNTER_FORWARD_ASK, transmit(ctx, b->ifindex));
}
