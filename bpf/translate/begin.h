/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets without a live session: new sessions, and refusals.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "answer/refuse.h"
#include "core/config.h"
#include "core/hash.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "nat/port.h"
#include "nat/session.h"
#include "nat/state.h"
#include "pick/client.h"
#include "pick/quic.h"
#include "pick/ring.h"
#include "pick/trace.h"

/* Deletes both entries of the flow's expired session. */
static __always_inline void delete_session(const struct packet *p, const struct view *view,
					   __u64 key, __u32 number)
{
	struct nat_session *s = client_session(p, key, number), *twin;
	const __u8 *server;
	struct backend *b;
	__u64 other;

	if (!s || tracing)
		return;
	b = session_backend(view, s->backend);
	server = b ? remote_of(b) : NULL;
	if (server) {
		other = session_reply_key(s, server);
		twin = find_session(other);
		if (twin && twin->flags & NAT_REPLY && same_session(twin, s))
			delete_entry(other);
	}
	delete_entry(key);
}

static __always_inline __be16 backend_port(const struct backend *b)
{
	struct backend_detail *detail = detail_of(b);

	return detail ? detail->port : 0;
}

/*
 * The backend of the packet's client, or of its ring entry. Unstable entries need no tracking, as
 * sessions store their backend. NULL if there is none.
 */
static __always_inline struct backend *ring_backend(const struct packet *p, const struct view *view,
						    __u32 number)
{
	__u64 hash = flow_hash(p, view->flags);
	struct backend *backend;
	__u32 entry, slot;

	if (!view->ring_size)
		return NULL;
	entry = ring_entry(view, view->ring_base, view->ring_size, hash);
	trace_ring(view, hash, entry);
	if (entry == RING_NONE)
		return NULL;
	slot = entry & RING_SLOT;
	if (feature_clients && view->flags & VIEW_REMEMBER_CLIENTS)
		slot = client_slot(p, view, number, slot);
	if (slot >= view->slots)
		return NULL;
	backend = backend_at(view, slot);
	return backend && backend->flags & BACKEND_USABLE ? backend : NULL;
}

/*
 * Whether the packet retransmits the SYN of an unanswered session, while new flows go to another
 * backend: the session's may be down, so that the client needn't wait for a health check.
 */
static __always_inline int is_reassigned(const struct packet *p, const struct view *view,
					 const struct nat_session *s, const struct backend *b)
{
	struct backend *now;

	if (p->phase != PHASE_OPENING || p->quoted || s->state != NAT_OPENING)
		return 0;
	now = ring_backend(p, view, s->service);
	return now != b;
}

/*
 * The backend of a new session: of the QUIC connection ID, or of the ring. NULL if there is none.
 */
static __always_inline struct backend *new_backend(struct xdp_md *ctx, const struct packet *p,
						   const struct service *service, __u32 number)
{
	const struct view *view = packet_view(p, service);
	struct backend *backend = NULL;

	if (feature_quic && view->flags & VIEW_QUIC && has_transport(p))
		backend = quic_backend(ctx, p, view, &service->quic, number);
	return backend ? backend : ring_backend(p, view, number);
}

/*
 * Handles a client key that is in use. If the entry is of the same flow, another processor has
 * begun the session at the same time: that session is used for this packet too, and the fresh
 * session's entry for the server is deleted. An entry of another flow stays. Returns CONTINUE,
 * or the exit.
 */
static __always_inline enum counter adopt_session(const struct packet *p, const struct backend *b,
						  __u64 key, struct nat_session *s)
{
	struct nat_session *first = client_session(p, key, s->service);
	const __u8 *server = remote_of(b);

	if (server && (!first || !same_session(first, s)))
		delete_entry(session_reply_key(s, server));
	if (!first)
		return COUNTER_DROP_NO_SESSION;
	*s = *first;
	return CONTINUE;
}

/* Inserts both entries of the fresh session. Returns CONTINUE, or the exit. */
static __always_inline enum counter insert_session(const struct packet *p, const struct backend *b,
						   struct nat_session *s)
{
	__u64 key = session_client_key(s);

	s->flags = NAT_REPLY | NAT_PENDING;
	/* A client has one port for connections to several VIPs, which may have the same backend. */
	if ((!keeps_source(s, b) || keep_source(b)) &&
	    find_port(b, hash_end(hash_word(key_seed, key))))
		return COUNTER_DROP_NO_NAT_PORT;
	s->flags = NAT_PENDING;
	if (!tracing && insert_entry(key, s))
		return adopt_session(p, b, key, s);
	return CONTINUE;
}

/* Opens a session of the packet's flow with a backend. Returns CONTINUE, or the exit. */
static __always_inline enum counter open_session(struct xdp_md *ctx, const struct packet *p,
						 const struct view *view, const struct backend *b,
						 struct nat_session *s, __u32 number)
{
	if (read_path(ctx, p, s))
		return COUNTER_DROP_INTERNAL_ERROR;
	s->seen = nat_time();
	s->state = p->phase == PHASE_OPENING ? NAT_OPENING : NAT_ONE_WAY;
	s->acked = 0;
	__builtin_memcpy(s->client, p->source, sizeof(s->client));
	s->client_port = p->source_port;
	s->server_port = backend_port(b);
	s->service = number;
	s->backend = backend_ref(view, b);
	return insert_session(p, b, s);
}

/*
 * Handles a packet without a live session. Returns CONTINUE if it begins one, the fresh
 * session, else the exit. With DSR, the fresh session already has the backend. The caller refuses
 * packets without a backend: the stack of nested calls is limited to 512 bytes.
 */
__noinline enum counter begin_session(struct xdp_md *ctx, const struct packet *p,
				      const struct service *service, __u32 number)
{
	struct nat_session *s = fresh_session();
	const struct view *view;
	struct backend *b;

	if (!feature_nat || !p || !service || !s)
		return COUNTER_DROP_INTERNAL_ERROR;
	view = packet_view(p, service);
	if (p->quoted)
		return COUNTER_DROP_NO_SESSION;
	if (!is_unicast(p->source))
		return COUNTER_DROP_SOURCE_DENIED;
	if (p->phase == PHASE_OPEN)
		return refuse_packet(ctx, p);
	delete_session(p, view, packet_client_key(p, number), number);
	if (feature_dsr && view->flags & VIEW_DSR)
		b = session_backend(view, s->backend);
	else
		b = new_backend(ctx, p, service, number);
	if (!b || !(b->flags & BACKEND_USABLE) || b->flags & BACKEND_RELAY)
		return COUNTER_DROP_NO_BACKEND;
	return open_session(ctx, p, view, b, s, number);
}
