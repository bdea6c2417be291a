/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets of no session that is alive: those that begin one, and those that can't.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "client.h"
#include "config.h"
#include "hash.h"
#include "maps.h"
#include "nat_port.h"
#include "nat_session.h"
#include "nat_state.h"
#include "packet.h"
#include "quic.h"
#include "reset.h"
#include "ring.h"
#include "stats.h"
#include "trace.h"
#include "types.h"
#include "unavailable.h"

/* Deletes what is left of the session that the packet's flow had until now. */
static __always_inline void end_session(const struct packet *p, const struct view *view, __u64 key,
					__u32 number)
{
	struct nat_session *s = client_session(p, key, number), *twin;
	struct backend *b;
	__u64 other;

	if (!s || tracing)
		return;
	b = session_backend(view, s->backend);
	if (b) {
		other = reply_key(b->remote, s->server_port, s->snat, s->snat_port, s->protocol);
		twin = bpf_map_lookup_elem(&nat_sessions, &other);
		if (twin && twin->flags & NAT_REPLY && same_session(twin, s))
			bpf_map_delete_elem(&nat_sessions, &other);
	}
	bpf_map_delete_elem(&nat_sessions, &key);
}

static __always_inline __be16 backend_port(const struct backend *b)
{
	__u32 index = b->index;
	struct backend_detail *detail = bpf_map_lookup_elem(&backend_details, &index);

	return detail ? detail->port : 0;
}

/*
 * The backend that the packet's client has been with, or the ring has for its flow. Whether an entry is
 * stable is of no interest, as every session remembers its backend. NULL if there is none.
 */
static __always_inline struct backend *ring_backend(const struct packet *p, const struct view *view,
						    __u32 number)
{
	__u64 hash = flow_hash(p, vip_hash(p), view->flags);
	struct backend *backend;
	__u32 entry, slot;

	if (!view->ring_size)
		return NULL;
	entry = ring_entry(view->ring_base, view->ring_size, hash);
	trace_ring(view, hash, entry);
	if (entry == RING_NONE)
		return NULL;
	slot = entry & RING_SLOT;
	if (feature_clients && view->flags & VIEW_REMEMBER_CLIENTS)
		slot = client_slot(p, view, hash, number, slot);
	if (slot >= view->slots)
		return NULL;
	backend = backend_at(view, slot);
	return backend && backend->flags & BACKEND_USABLE ? backend : NULL;
}

/*
 * Whether the packet repeats the first one of a session that nobody has answered, and new ones go elsewhere
 * than to its backend by now: that one may be dead. So the client needn't wait until somebody says so.
 */
static __always_inline int begins_elsewhere(const struct packet *p, const struct view *view,
					    const struct nat_session *s, const struct backend *b)
{
	struct backend *now;

	if (p->phase != PHASE_OPENING || p->quoted || s->state != NAT_OPENING)
		return 0;
	now = ring_backend(p, view, s->service);
	return !now || now->index != b->index;
}

/* The backend of a new session: what the packet says itself, or the ring. NULL if there is none. */
static __always_inline struct backend *new_backend(struct xdp_md *ctx, const struct packet *p,
						   const struct service *service, __u32 number)
{
	const struct view *view = active_view(service);
	struct backend *backend = NULL;

	if (feature_quic && view->flags & VIEW_QUIC && has_transport(p))
		backend = quic_backend(ctx, p, view, &service->quic, number);
	return backend ? backend : ring_backend(p, view, number);
}

/*
 * The key of the fresh session, of a packet with backend `b`, is taken. If by the same flow, then another
 * processor has begun its session meanwhile, and may have sent its packet: that one is the flow's, also for
 * this packet, and what was entered for the server's is given back.
 */
static __always_inline void join_session(const struct packet *p, const struct backend *b, __u64 key,
					 struct nat_session *s)
{
	__u64 own = reply_key(b->remote, s->server_port, s->snat, s->snat_port, s->protocol);
	struct nat_session *first = client_session(p, key, s->service);

	if (!first) {
		bpf_map_update_elem(&nat_sessions, &key, s, BPF_ANY);
		return;
	}
	if (!same_session(first, s))
		bpf_map_delete_elem(&nat_sessions, &own);
	*s = *first;
}

/* Enters the fresh session, of a client's packet with a backend. Returns COUNTER_COUNT, or the exit. */
static __always_inline enum counter enter_session(const struct packet *p, const struct backend *b,
						  struct nat_session *s)
{
	__u64 key = flow_hash(p, vip_hash(p), 0);

	s->flags = NAT_REPLY;
	if (keeps_source(s, b) ? keep_source(b) : find_port(b, key))
		return COUNTER_DROP_NAT_PORTS;
	s->flags = 0;
	if (!tracing && bpf_map_update_elem(&nat_sessions, &key, s, BPF_NOEXIST))
		join_session(p, b, key, s);
	return COUNTER_COUNT;
}

/* Begins a session of the packet's flow with a backend. Returns COUNTER_COUNT, or the exit. */
static __always_inline enum counter open_session(struct xdp_md *ctx, const struct packet *p,
						 const struct view *view, const struct backend *b,
						 struct nat_session *s, __u32 number)
{
	if (read_path(ctx, p, s))
		return COUNTER_DROP_STATE;
	s->seen = nat_time();
	s->state = p->phase == PHASE_OPENING ? NAT_OPENING : NAT_ONE_WAY;
	s->protocol = p->vip.protocol;
	__builtin_memcpy(s->client, p->source, sizeof(s->client));
	s->client_port = p->source_port;
	s->server_port = backend_port(b);
	s->service = number;
	s->backend = backend_name(view, b);
	return enter_session(p, b, s);
}

/*
 * A packet of no session, or of one that is over. Returns COUNTER_COUNT if it begins one, which is the
 * fresh session then, else the exit. With DNAT, that session says already who the backend is.
 */
__noinline enum counter begin_session(struct xdp_md *ctx, const struct packet *p,
				      const struct service *service, __u32 number)
{
	struct nat_session *s = fresh_session();
	const struct view *view;
	struct backend *b;

	if (!feature_nat || !p || !service || !s)
		return COUNTER_DROP_STATE;
	view = active_view(service);
	if (p->quoted)
		return COUNTER_DROP_NO_SESSION;
	end_session(p, view, flow_hash(p, vip_hash(p), 0), number);
	if (p->phase == PHASE_OPEN)
		return refuse_segment(ctx, p);
	if (feature_dnat && view->flags & VIEW_DNAT)
		b = session_backend(view, s->backend);
	else
		b = new_backend(ctx, p, service, number);
	if (!b || !(b->flags & BACKEND_USABLE) || b->flags & BACKEND_RELAY)
		return refuse_flow(ctx, p, view->flags);
	return open_session(ctx, p, view, b, s, number);
}
