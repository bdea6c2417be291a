/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DNAT: the destination of a client's packet is written anew, and on the node that has the backend only.
 * There the flow has a session (nat.h), and nobody else needs one: every other node sends the packet to
 * that node as it came. Which node that is follows from the ring, as it does which server in the modes in
 * which servers answer clients directly. So a node may fail that has none of a connection's backends, and
 * routers may choose another one at any time.
 *
 *   client -> VIP           stays, on its way to the backend's node, and there
 *   client -> VIP           becomes     client -> backend
 *   backend -> client       becomes     VIP -> client
 */
#pragma once

#include <linux/bpf.h>

#include "ask.h"
#include "config.h"
#include "flow.h"
#include "hop.h"
#include "link.h"
#include "maps.h"
#include "nat_begin.h"
#include "nat_session.h"
#include "packet.h"
#include "quic.h"
#include "ring.h"
#include "stats.h"
#include "toobig.h"
#include "trace.h"
#include "types.h"
#include "walk.h"

/*
 * The other backend of a segment that is of no session here, although its ring entry names one of this
 * node's own. While the entry is unstable, the connection may have begun on the present ring's backend or
 * on the previous one's: the session is the proof of one of them. NULL if there is nobody to ask.
 */
static __always_inline struct backend *other_backend(const struct view *view, __u64 hash,
						     const struct backend *own)
{
	__u32 entry = ring_entry(view->ring_base, view->ring_size, hash);
	struct backend *b;

	if (entry == RING_NONE || !(entry & RING_UNSTABLE) || !view->previous_size)
		return NULL;
	if (view->backend_base + (entry & RING_SLOT) == own->index)
		entry = ring_entry(view->previous_base, view->previous_size, hash);
	if (entry == RING_NONE || (entry & RING_SLOT) >= view->slots)
		return NULL;
	b = backend_at(view, entry & RING_SLOT);
	if (!b || !(b->flags & BACKEND_USABLE) || !(b->flags & BACKEND_RELAY))
		return NULL;
	trace_slot(entry & RING_SLOT, 0);
	return b;
}

/* The backend of a DNAT service's packet that is of no session here; NULL if there is none. */
static __always_inline struct backend *dnat_backend(struct xdp_md *ctx, const struct packet *p,
						    const struct service *service, __u32 number)
{
	const struct view *view = active_view(service);
	__u64 hash = flow_hash(p, vip_hash(p), view->flags);
	struct backend *b = NULL, *other = NULL;

	if (feature_quic && view->flags & VIEW_QUIC && has_transport(p))
		b = quic_backend(ctx, p, view, &service->quic, number);
	if (!b && view->ring_size)
		b = flow_backend(p, view, hash, number);
	if (b && p->phase == PHASE_OPEN && !(b->flags & BACKEND_RELAY))
		other = other_backend(view, hash, b);
	return other ? other : b;
}

/*
 * The own backend of a new flow that another node sent here, while this one would send it back there: they
 * disagree on the ring, or on where the client was last. Whoever sent it will send its segments here, too,
 * so it begins here; its client's next ones do as well. NULL if there is none.
 */
static __always_inline struct backend *returned_flow(struct xdp_md *ctx, const struct packet *p,
						     const struct service *service, __u32 number)
{
	const struct view *view = active_view(service);
	struct backend *b = walk_ring(ctx, p, view, WALK_OWN);

	if (b && feature_clients && view->flags & VIEW_REMEMBER_CLIENTS)
		move_client(view, flow_hash(p, vip_hash(p), view->flags), number, b);
	return b;
}

/* Makes the packet the frame that the backend's node gets. Returns COUNTER_FORWARD_RELAY, or the exit. */
static __always_inline enum counter write_relay(struct xdp_md *ctx, const struct packet *p,
						const struct service *service,
						const struct backend *b)
{
	void *ip = write_link(ctx, p, b, p->proto, 0);
	enum counter exit;

	if (!ip)
		return COUNTER_DROP_HEADROOM;
	/* So that nodes that disagree on a ring don't pass a packet to and fro for ever. */
	exit = spend_hop(ctx, p, ip, p->phase == PHASE_OPEN ? asking_hops(service) : HOPS_ANY);
	return exit == COUNTER_COUNT ? COUNTER_FORWARD_RELAY : exit;
}

/*
 * A packet of `bytes` that another node has to translate. Returns the verdict. It has a frame of its own, as
 * looking for the backend has one: the stack has no room for both in their caller's.
 */
static __noinline int relay(struct xdp_md *ctx, const struct packet *p,
			    const struct service *service, const struct backend *b, __u32 bytes)
{
	enum counter exit;

	if (is_for_others(ctx, p, b))
		return leave(COUNTER_PASS_OTHER_HOST, XDP_PASS);
	if (returns_to_sender(ctx, p, b)) /* which doesn't know the connection either */
		return p->phase == PHASE_OPEN ? NAT_ASK : conclude(COUNTER_DROP_LOOP);
	if (p->length > b->mtu)
		return conclude(answer_too_big(ctx, p, b));
	exit = write_relay(ctx, p, service, b);
	if (!is_forward(exit))
		return conclude(exit);
	count_backend(b->stats, bytes);
	if (p->phase == PHASE_OPENING)
		count_new_flow(b->stats);
	return leave(exit, transmit(ctx, b->ifindex));
}

/*
 * A packet of `bytes` for a DNAT service that is of no session here. Returns the verdict, or NAT_UNKNOWN if
 * its backend is one of this node's own, or nobody: the fresh session says which. NAT_ASK leaves asking around
 * to the caller, whose stack has room for it.
 */
__noinline int relay_flow(struct xdp_md *ctx, const struct packet *p, const struct service *service,
			  __u32 number, __u32 bytes)
{
	struct nat_session *fresh = fresh_session();
	struct backend *b;

	if (!feature_dnat || !p || !service || !fresh)
		return leave(COUNTER_DROP_STATE, XDP_DROP);
	if (is_asked(ctx, p, service))
		return NAT_ASK;
	b = dnat_backend(ctx, p, service, number);
	if (b && b->flags & BACKEND_RELAY && p->phase != PHASE_OPEN && !p->quoted &&
	    returns_to_sender(ctx, p, b)) {
		b = returned_flow(ctx, p, service, number);
		if (!b)
			return conclude(COUNTER_DROP_LOOP);
	}
	if (b && b->flags & BACKEND_RELAY) {
		/* What is left of an earlier connection would get the segments of this one. */
		if (p->phase == PHASE_OPENING)
			end_session(p, active_view(service), flow_hash(p, vip_hash(p), 0), number);
		return relay(ctx, p, service, b, bytes);
	}
	if (p->phase == PHASE_OPEN)
		return NAT_ASK;
	fresh->backend = b ? backend_name(active_view(service), b) : NAT_NOBODY;
	return NAT_UNKNOWN;
}
