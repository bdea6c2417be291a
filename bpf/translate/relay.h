/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DSR: only the destination of a client's packet is translated, and only on the node of the
 * backend. That node has a session for the flow. The others have none: they relay packets to that
 * node without translation, and the ring selects it. So nodes without the backend of a connection
 * may fail, and routers may choose another node at any time.
 *
 *   client -> VIP           is relayed to the backend's node, where
 *   client -> VIP           becomes     client -> backend
 *   backend -> client       becomes     VIP -> client
 */
#pragma once

#include <linux/bpf.h>

#include "answer/error.h"
#include "core/config.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "nat/rewrite.h"
#include "nat/session.h"
#include "pick/flow.h"
#include "pick/ring.h"
#include "pick/trace.h"
#include "send/link.h"
#include "translate/begin.h"
#include "translate/lookup.h"

/*
 * The other backend of a packet without a session, although its ring entry has local backend
 * `local`. While the entry is unstable, the connection may have begun on the present or the
 * previous ring's backend; as this node has no session, it is the other one. NULL if there is none
 * on another node.
 */
static __always_inline struct backend *other_backend(const struct view *view, __u64 hash,
						     const struct backend *local)
{
	__u32 entry = ring_entry(view, view->ring_base, view->ring_size, hash);
	struct backend *b;

	if (entry == RING_NONE || !(entry & RING_UNSTABLE) || !view->previous_size)
		return NULL;
	if (view->backend_base + (entry & RING_SLOT) == backend_index(local))
		entry = ring_entry(view, view->previous_base, view->previous_size, hash);
	if (entry == RING_NONE || (entry & RING_SLOT) >= view->slots)
		return NULL;
	b = backend_at(view, entry & RING_SLOT);
	if (!b || !(b->flags & BACKEND_USABLE) || !(b->flags & BACKEND_RELAY))
		return NULL;
	trace_slot(entry & RING_SLOT, 0);
	return b;
}

/* The backend of a DSR service's packet without a session on this node; NULL if there is none. */
static __always_inline struct backend *dsr_backend(struct xdp_md *ctx, const struct packet *p,
						   const struct service *service, __u32 number)
{
	const struct view *view = packet_view(p, service);
	__u64 hash = flow_hash(p, view->flags);
	struct backend *b = pick_backend(ctx, p, service, view, hash, number), *other = NULL;

	if (b && p->phase == PHASE_OPEN && !(b->flags & BACKEND_RELAY))
		other = other_backend(view, hash, b);
	return other ? other : b;
}

/* This node's newest backend, or NULL. It may not be in the ring yet. */
static __always_inline struct backend *newest_local(const struct view *view,
						    const struct service *service)
{
	__u32 slot = *(volatile const __u16 *)&service->local;
	struct backend *b;

	if (!slot || slot > view->slots)
		return NULL;
	b = backend_at(view, slot - 1);
	return b && (b->flags & (BACKEND_USABLE | BACKEND_RELAY)) == BACKEND_USABLE ? b : NULL;
}

/*
 * The local backend of a new flow that a peer relayed here, while this node would relay it back:
 * the two disagree on the ring or on the client's backend, or the peer's health check of a new
 * backend succeeded first. The peer will relay the flow's later packets here too, so the flow
 * begins here, and so do the client's next ones. NULL if there is no local backend.
 */
static __always_inline struct backend *keep_returned_flow(struct xdp_md *ctx,
							  const struct packet *p,
							  const struct service *service,
							  __u32 number)
{
	const struct view *view = packet_view(p, service);
	struct backend *b = search_ring(ctx, p, view, SEARCH_LOCAL);

	if (!b)
		b = newest_local(view, service);
	if (b && feature_clients && view->flags & VIEW_REMEMBER_CLIENTS)
		move_client(p, view, number, b);
	return b;
}

/* Writes the frame for the backend's node. Returns COUNTER_FORWARD_RELAY, or the exit. */
static __always_inline enum counter write_relay(struct xdp_md *ctx, const struct packet *p,
						const struct service *service,
						const struct backend *b, const struct egress *out)
{
	void *ip = write_link(ctx, p, b, out, p->proto, 0);
	enum counter exit;

	if (!ip)
		return COUNTER_DROP_HEADROOM;
	/* The hop limit ends loops between nodes that disagree on the ring. */
	exit = spend_hop(ctx, p, ip, p->phase == PHASE_OPEN ? lookup_hops(service) : HOPS_ANY);
	return exit == CONTINUE ? COUNTER_FORWARD_RELAY : exit;
}

/*
 * Relays a packet of `bytes` to the backend's node. Returns the verdict, or NAT_LOOKUP. Not inlined,
 * as the caller's stack has no room for it.
 */
static __noinline int relay(struct xdp_md *ctx, const struct packet *p,
			    const struct service *service, const struct backend *b, __u32 bytes)
{
	const struct egress *out = egress_of(b);
	enum counter exit;

	if (!out)
		return exit_with(COUNTER_DROP_INTERNAL_ERROR, XDP_DROP);
	if (is_other_host(ctx, p, out))
		return exit_with(COUNTER_PASS_OTHER_HOST, XDP_PASS);
	if (returns_to_sender(ctx, p, b, out)) /* the sender has no session either */
		return p->phase == PHASE_OPEN ? NAT_LOOKUP : exit_default(COUNTER_DROP_LOOP);
	if (p->length > out->mtu)
		return exit_default(answer_mtu(ctx, p, out->mtu));
	exit = write_relay(ctx, p, service, b, out);
	if (!is_forward(exit))
		return exit_default(exit);
	count_backend(counter_index(packet_view(p, service), b), bytes);
	if (p->phase == PHASE_OPENING)
		count_new_flow(counter_index(packet_view(p, service), b));
	return exit_with(exit, transmit(ctx, out->ifindex));
}

/*
 * Handles a packet of `bytes` of a DSR service without a session on this node. Returns the verdict,
 * NAT_UNKNOWN if the backend, which is in the fresh session, is local or missing, or NAT_LOOKUP,
 * which the caller handles, as its stack has room for it.
 */
__noinline int relay_flow(struct xdp_md *ctx, const struct packet *p, const struct service *service,
			  __u32 number, __u32 bytes)
{
	struct nat_session *fresh = fresh_session();
	const struct egress *out;
	struct backend *b;

	if (!feature_dsr || !p || !service || !fresh)
		return exit_with(COUNTER_DROP_INTERNAL_ERROR, XDP_DROP);
	if (is_lookup(ctx, p, service))
		return NAT_LOOKUP;
	b = dsr_backend(ctx, p, service, number);
	out = b ? egress_of(b) : NULL;
	if (out && b->flags & BACKEND_RELAY && p->phase != PHASE_OPEN && !p->quoted &&
	    returns_to_sender(ctx, p, b, out)) {
		b = keep_returned_flow(ctx, p, service, number);
		if (!b)
			return exit_default(COUNTER_DROP_LOOP);
	}
	if (b && b->flags & BACKEND_RELAY) {
		/* A session of an earlier connection would get the packets of this one. */
		if (p->phase == PHASE_OPENING)
			delete_session(p, packet_view(p, service), packet_client_key(p, number),
				       number);
		return relay(ctx, p, service, b, bytes);
	}
	if (p->phase == PHASE_OPEN)
		return NAT_LOOKUP;
	fresh->backend = b ? backend_ref(packet_view(p, service), b) : NAT_NO_BACKEND;
	return NAT_UNKNOWN;
}
