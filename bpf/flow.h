/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Just enough tracking (DESIGN.md section 5.2; the idea is that of "Just Enough Tracking", CoNEXT
 * 2021, and Beamer, NSDI 2018). A flow needs a record only while its ring entry is unstable: then the
 * record, or the previous ring, says where the flow began. All others are where the ring says.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "client.h"
#include "config.h"
#include "hash.h"
#include "maps.h"
#include "parse.h"
#include "ring.h"
#include "stats.h"
#include "trace.h"
#include "types.h"

/* `seen` is written again only when it is older than this, so that a flow's packets, which may be on
 * several processors, don't fight for the line. */
#define FLOW_TOUCH 64

/* The key of a flow's record: its five-tuple's hash, also where the client alone picks the entry. */
static __always_inline __u64 flow_key(const struct packet *p, const struct view *view, __u64 hash)
{
	return view->flags & VIEW_AFFINITY_CLIENT ? flow_hash(p, vip_hash(p), 0) : hash;
}

static __always_inline __u32 flow_time(void)
{
	return bpf_ktime_get_coarse_ns() >> FLOW_TIME_SHIFT;
}

/* The backend of a record, or NULL if the flow has to go elsewhere. */
static __always_inline struct backend *recorded_backend(const struct view *view,
							const struct flow *flow, __u32 number)
{
	if (flow->service != number)
		return NULL;
	return named_backend(view, *(volatile const __u32 *)&flow->backend);
}

/*
 * Where a flow without a record belongs. A connection that is open already is older than the change
 * of its entry, or it would have been recorded when it began: it is where it was before.
 */
static __always_inline __u32 unrecorded_slot(const struct packet *p, const struct view *view,
					     __u64 hash, __u32 entry)
{
	struct backend *backend;
	__u32 previous;

	if (p->phase == PHASE_OPEN && entry & RING_UNSTABLE && view->previous_size) {
		previous = ring_entry(view->previous_base, view->previous_size, hash);
		previous &= RING_SLOT;
		backend = previous < view->slots ? backend_at(view, previous) : NULL;
		if (backend && backend->flags & BACKEND_USABLE)
			return previous;
	}
	return entry & RING_SLOT;
}

/* Notes when a recorded flow's last packet came, and whether its client has closed it. */
static __always_inline void touch_flow(const struct packet *p, struct flow *flow)
{
	__u32 now = flow_time();

	if (tracing)
		return;
	if (p->closing && !flow->closing)
		flow->closing = 1;
	if (now - flow->seen > FLOW_TOUCH)
		flow->seen = now;
}

/* Returns whether the flow had no record. */
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
	};
	__u64 key = flow_key(p, view, hash);

	if (tracing)
		return 0;
	if (known && known->service == number) {
		known->backend = backend;
		known->closing = flow.closing;
		known->seen = flow.seen;
		return 0;
	}
	__builtin_memcpy(flow.client, p->source, sizeof(flow.client));
	if (bpf_map_update_elem(&flows, &key, &flow, BPF_ANY))
		return 0;
	if (stats)
		stats->inserts += 1;
	return 1;
}

/* Whether a recorded packet is the first one of a flow that nobody else counts: NAT sessions do it. */
static __always_inline int begins_flow(const struct packet *p, const struct view *view,
				       const struct backend *b)
{
	return p->phase == PHASE_DATAGRAM &&
	       (!(view->flags & VIEW_DNAT) || b->flags & BACKEND_RELAY);
}

/* The backend of a flow whose place has to be looked up, or recorded. */
static __noinline struct backend *tracked_backend(const struct packet *p, const struct view *view,
						  __u64 hash, __u32 number, __u32 entry)
{
	struct flow_stats *stats = bpf_map_lookup_elem(&flow_stats, &number);
	__u64 key = flow_key(p, view, hash);
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	struct backend *backend = NULL;
	__u32 slot;

	trace_flow(flow);
	if (p->phase != PHASE_OPENING) {
		if (flow)
			backend = recorded_backend(view, flow, number);
		if (backend) {
			trace_slot(flow->backend & 0xffff, TRACE_HIT);
			touch_flow(p, flow);
			if (stats)
				stats->hits += 1;
			return backend;
		}
		if (stats)
			stats->misses += 1;
	}
	slot = unrecorded_slot(p, view, hash, entry);
	if (feature_clients && view->flags & VIEW_REMEMBER_CLIENTS)
		slot = client_slot(p, view, hash, number, slot);
	trace_slot(slot, 0);
	if (slot < view->slots)
		backend = backend_at(view, slot);
	/* Nothing follows a reset that would need a record. */
	if (backend && !p->quoted && !(p->closing & CLOSING_RST) &&
	    record_flow(p, view, hash, number, slot | (__u32)backend->generation << 16, flow,
			stats) &&
	    begins_flow(p, view, backend))
		count_new_flow(backend->stats);
	return backend;
}

/* The backend of a flow, or NULL if no backend is usable for it. */
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
