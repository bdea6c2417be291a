/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flow tracking, limited to what is necessary (docs/design/tracking.md; "Just Enough Tracking",
 * CoNEXT 2021; Beamer, NSDI 2018). A flow is recorded only while its ring entry is unstable: the
 * record, or the previous ring, gives the backend on which the flow began. All other flows are on
 * the backend of their ring entry.
 *
 * A record begins in `flows_pending`. It moves to `flows` with the flow's second packet, if the
 * flow began after the change: nothing else knows its backend. When there are too many new flows,
 * they aren't recorded; their connections begin on the previous ring's backend, where their later
 * packets go without a record.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/hash.h"
#include "core/limit.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "pick/client.h"
#include "pick/quic.h"
#include "pick/ring.h"
#include "pick/trace.h"

/*
 * Minimum interval between updates of `seen`, in units of flow.seen: several processors may share
 * the cache line.
 */
#define FLOW_TOUCH 64

static __always_inline __u32 flow_time(void)
{
	return bpf_ktime_get_coarse_ns() >> FLOW_TIME_SHIFT;
}

/* How far behind its SYN a client's segment may be to belong to the same connection. */
#define FLOW_OPENING_WINDOW 65536

/* Whether the packet follows the SYN that came for an open flow. */
static __always_inline int follows_syn(const struct packet *p, const struct flow *flow)
{
	return flow->open == FLOW_REOPENED && p->phase != PHASE_OPENING &&
	       bpf_ntohl(p->seq) - bpf_ntohl(flow->opening_seq) < FLOW_OPENING_WINDOW;
}

/* The backend of a packet's record, or NULL if it isn't usable. */
static __always_inline struct backend *recorded_backend(const struct packet *p,
							const struct view *view,
							const struct flow *flow, __u32 number)
{
	if (flow->service != number)
		return NULL;
	if (follows_syn(p, flow))
		return usable_backend(view, flow->opening);
	return usable_backend(view, *(volatile const __u32 *)&flow->backend);
}

/*
 * The slot of a flow without a record. An open connection without one is older than the change of
 * its ring entry, or began without a record on purpose (`recordable` is 0), so it is on the
 * previous ring's backend.
 */
static __always_inline __u32 unrecorded_slot(const struct packet *p, const struct view *view,
					     __u64 hash, __u32 entry, int recordable)
{
	struct backend *backend;
	__u32 previous;

	if ((p->phase == PHASE_OPEN || (p->phase == PHASE_OPENING && !recordable)) &&
	    entry & RING_UNSTABLE && view->previous_size) {
		previous = ring_entry(view->previous_base, view->previous_size, hash);
		previous &= RING_SLOT;
		backend = previous < view->slots ? backend_at(view, previous) : NULL;
		if (backend && backend->flags & BACKEND_USABLE)
			return previous;
	}
	return entry & RING_SLOT;
}

/*
 * Notes the backend of a SYN for an open flow: it may be forged, or begin a new connection from the
 * same port. The client's next segment decides.
 */
static __always_inline void reopen_flow(const struct packet *p, struct flow *flow, __u32 backend)
{
	if (tracing)
		return;
	flow->opening = backend;
	flow->opening_seq = p->seq;
	flow->open = FLOW_REOPENED;
	flow->seen = flow_time();
}

/* Updates a record for a packet that isn't a SYN. */
static __always_inline void touch_flow(const struct packet *p, struct flow *flow)
{
	__u32 now = flow_time();

	if (tracing)
		return;
	if (follows_syn(p, flow)) {
		flow->backend = flow->opening;
		flow->closing = 0;
		flow->open = FLOW_OPEN;
	} else if (flow->open == FLOW_OPENING) {
		flow->open = FLOW_OPEN;
	}
	if (p->closing && !flow->closing)
		flow->closing = 1;
	if (now - flow->seen > FLOW_TOUCH)
		flow->seen = now;
}

/* Moves a record to `flows`. */
static __always_inline void confirm_flow(__u64 key, const struct flow *flow)
{
	struct flow copy = *flow;

	if (!bpf_map_update_elem(&flows, &key, &copy, BPF_ANY))
		bpf_map_delete_elem(&flows_pending, &key);
}

/* The state of a flow without a record. */
static __always_inline enum flow_open first_state(const struct packet *p, const struct view *view)
{
	if (p->phase != PHASE_OPEN)
		return FLOW_OPENING;
	return view->flags & VIEW_TRACK_ALL ? FLOW_OPEN : FLOW_OLDER;
}

/* Records the flow. Returns whether it had no record. */
static __always_inline int record_flow(const struct packet *p, const struct view *view, __u64 hash,
				       __u32 number, __u32 backend, struct flow *known,
				       struct flow_stats *stats)
{
	struct flow flow = {
		.service = number,
		.backend = backend,
		.seen = flow_time(),
		.place = hash >> 32,
		.port = p->source_port,
		.closing = !!p->closing,
		.open = first_state(p, view),
	};
	__u64 key = record_key(number, p->source, p->source_port);

	if (tracing)
		return 0;
	if (known && known->service == number) {
		known->backend = backend;
		known->closing = flow.closing;
		known->open = flow.open;
		known->seen = flow.seen;
		return 0;
	}
	__builtin_memcpy(flow.client, p->source, sizeof(flow.client));
	if (bpf_map_update_elem(&flows_pending, &key, &flow, BPF_ANY))
		return 0;
	if (stats)
		stats->inserts += 1;
	return 1;
}

/*
 * Whether a newly recorded packet begins a flow that isn't counted elsewhere, as NAT sessions are.
 */
static __always_inline int begins_flow(const struct packet *p, const struct view *view,
				       const struct backend *b)
{
	return p->phase == PHASE_DATAGRAM &&
	       (!(view->flags & VIEW_DSR) || b->flags & BACKEND_RELAY);
}

/* The backend of a flow on an unstable ring entry, or of a service that records all flows. */
static __noinline struct backend *tracked_backend(const struct packet *p, const struct view *view,
						  __u64 hash, __u32 number, __u32 entry)
{
	struct flow_stats *stats = bpf_map_lookup_elem(&flow_stats, &number);
	__u64 key = record_key(number, p->source, p->source_port);
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	struct backend *backend = NULL;
	int pending = !flow, recordable;
	__u32 slot, ref;

	if (pending)
		flow = bpf_map_lookup_elem(&flows_pending, &key);
	trace_flow(flow);
	if (p->phase != PHASE_OPENING) {
		if (flow)
			backend = recorded_backend(p, view, flow, number);
		if (backend) {
			trace_slot(backend->index - view->backend_base, TRACE_HIT);
			touch_flow(p, flow);
			if (pending && flow->open == FLOW_OPEN && !tracing)
				confirm_flow(key, flow);
			if (stats)
				stats->hits += 1;
			return backend;
		}
		if (stats)
			stats->misses += 1;
	}
	recordable = flow || within_limit(RATE_RECORD, record_interval);
	slot = unrecorded_slot(p, view, hash, entry, recordable);
	if (feature_clients && view->flags & VIEW_REMEMBER_CLIENTS)
		slot = client_slot(p, view, number, slot);
	trace_slot(slot, 0);
	if (slot < view->slots)
		backend = backend_at(view, slot);
	/* No packets follow a reset, so it needs no record. */
	if (!backend || p->quoted || p->closing & CLOSING_RST)
		return backend;
	if (!recordable) {
		if (stats)
			stats->unrecorded += 1;
		return backend;
	}
	ref = slot | (__u32)backend->generation << 16;
	if (p->phase == PHASE_OPENING && flow && flow->open &&
	    recorded_backend(p, view, flow, number))
		reopen_flow(p, flow, ref);
	else if (record_flow(p, view, hash, number, ref, flow, stats) &&
		 begins_flow(p, view, backend))
		count_new_flow(backend->stats);
	return backend;
}

/* The backend of a flow, or NULL if there is none. */
static __always_inline struct backend *flow_backend(const struct packet *p, const struct view *view,
						    __u64 hash, __u32 number)
{
	__u32 entry = ring_entry(view->ring_base, view->ring_size, hash);

	trace_ring(view, hash, entry);
	if (entry == RING_NONE)
		return NULL;
	if (entry & RING_UNSTABLE || view->flags & VIEW_TRACK_ALL)
		return tracked_backend(p, view, hash, number, entry);
	return backend_at(view, entry);
}

/*
 * The backend that the packet's QUIC connection id names, else that of its flow. NULL if there is
 * none.
 */
static __always_inline struct backend *pick_backend(struct xdp_md *ctx, const struct packet *p,
						    const struct service *service,
						    const struct view *view, __u64 hash,
						    __u32 number)
{
	struct backend *b = NULL;

	if (feature_quic && view->flags & VIEW_QUIC && has_transport(p))
		b = quic_backend(ctx, p, view, &service->quic, number);
	if (!b && view->ring_size)
		b = flow_backend(p, view, hash, number);
	return b;
}
