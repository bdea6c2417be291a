/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flow tracking, limited to what is necessary (docs/design/tracking.md; "Just Enough Tracking",
 * CoNEXT 2021; Beamer, NSDI 2018). A flow is recorded only while its ring entry is unstable: the
 * record, or the previous ring, gives the backend on which the flow began. All other flows are on
 * the backend of their ring entry.
 *
 * A record begins in `flows_pending`. If the flow began after the change, nothing else knows its
 * backend, and the record moves to `flows` with the second datagram, or with a segment that follows
 * the SYN. When there are too many new flows, they aren't recorded; their connections begin on the
 * previous ring's backend, where their later packets go without a record.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/address.h"
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

/*
 * Least time between a processor's moves of records to `flows`, which takes all processors together
 * a minute to fill: SYNs with forged addresses may be followed by forged segments.
 */
#define CONFIRM_INTERVAL (20 * record_interval)

/* How far a segment may be ahead of the client's last one, as others of it may have been lost. */
#define FLOW_WINDOW 65536

/* Whether the record is the flow's: keys of two flows may be equal, and LRU elements are reused. */
static __always_inline int is_recorded(const struct packet *p, const struct flow *flow,
				       __u32 number)
{
	return flow->service == number && flow->port == p->source_port &&
	       same_address(flow->client, p->source);
}

/* The sequence number after the segment (RFC 9293, section 3.4). */
static __always_inline __u32 segment_end(const struct packet *p)
{
	__u32 payload = p->length - p->header - p->tcp_words * 4;

	return bpf_ntohl(p->seq) + payload + !!(p->flags & (TCP_SYN | TCP_FIN));
}

/* Whether the packet follows the flow's latest SYN. */
static __always_inline int follows_syn(const struct packet *p, const struct flow *flow)
{
	return (p->flags & (TCP_SYN | TCP_RST | TCP_ACK)) == TCP_ACK &&
	       bpf_ntohl(p->seq) - flow->opening_seq - 1 < FLOW_WINDOW;
}

/* The backend of the flow's record, or NULL if it isn't usable. */
static __always_inline struct backend *
recorded_backend(const struct packet *p, const struct view *view, const struct flow *flow)
{
	if (flow->open == FLOW_REOPENED && follows_syn(p, flow))
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
		previous = ring_entry(view, view->previous_base, view->previous_size, hash);
		previous &= RING_SLOT;
		backend = previous < view->slots ? backend_at(view, previous) : NULL;
		if (backend && backend->flags & BACKEND_USABLE)
			return previous;
	}
	return entry & RING_SLOT;
}

/*
 * Notes the backend of a SYN for an open flow whose own backend takes no new flows: it may be
 * forged, or begin a new connection from the same port. The client's next segment decides.
 */
static __always_inline void reopen_flow(const struct packet *p, struct flow *flow, __u32 backend)
{
	if (tracing)
		return;
	flow->opening = backend;
	flow->opening_seq = bpf_ntohl(p->seq);
	flow->open = FLOW_REOPENED;
	flow->seen = flow_time();
}

/*
 * Follows the client's sequence numbers. FIN and RST count only with the right one, as others may
 * be forged (RFC 5961, section 3), or one more: of the packets before, the first that was recorded
 * may have been a keep-alive probe (RFC 9293, section 3.8.4). If other numbers follow, the flow is a
 * later connection. Another processor may have a packet of the flow: only what this one changes is
 * written.
 */
static __always_inline void follow_segment(const struct packet *p, struct flow *flow)
{
	__u32 seq = bpf_ntohl(p->seq), end = segment_end(p);

	if (p->flags & (TCP_RST | TCP_FIN)) {
		if (seq - flow->next <= 1 || (!(p->flags & TCP_RST) && end - 1 - flow->next <= 1))
			flow->closing = 1;
	} else if (flow->closing && seq - flow->next + FLOW_WINDOW > 2 * FLOW_WINDOW) {
		flow->next = end;
		flow->closing = 0;
	} else if (end - flow->next - 1 < FLOW_WINDOW) {
		flow->next = end;
	}
}

/* Updates a record whose backend gets the packet. */
static __always_inline void touch_flow(const struct packet *p, struct flow *flow)
{
	__u32 now = flow_time();

	if (tracing)
		return;
	if (flow->open == FLOW_REOPENED && follows_syn(p, flow)) {
		flow->backend = flow->opening;
		flow->next = bpf_ntohl(p->seq);
		flow->closing = 0;
		flow->open = FLOW_OPEN;
	} else if (flow->open == FLOW_OPENING &&
		   (p->phase == PHASE_DATAGRAM || follows_syn(p, flow))) {
		flow->open = FLOW_OPEN;
	} else if (flow->open == FLOW_REOPENED && p->phase == PHASE_OPENING) {
		flow->open = FLOW_OPEN;
	}
	if (p->phase == PHASE_OPEN && has_transport(p))
		follow_segment(p, flow);
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

/* Records the flow. Returns whether it had no record. */
static __always_inline int record_flow(const struct packet *p, __u64 hash, __u32 number,
				       __u32 backend, struct flow *known, struct flow_stats *stats)
{
	struct flow flow = {
		.service = number,
		.backend = backend,
		.seen = flow_time(),
		.place = hash >> 32,
		.port = p->source_port,
		.closing = !!(p->flags & TCP_FIN),
		.open = p->phase == PHASE_OPEN ? FLOW_OLDER : FLOW_OPENING,
		.opening_seq = bpf_ntohl(p->seq),
		.next = segment_end(p),
	};
	__u64 key = record_key(number, p->source, p->source_port);

	if (tracing)
		return 0;
	if (known) {
		known->backend = backend;
		known->closing = flow.closing;
		known->open = flow.open;
		known->opening_seq = flow.opening_seq;
		known->next = flow.next;
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

/*
 * Whether the record's backend gets the packet. A SYN for an open flow may be forged: it goes there
 * while the backend takes new flows, and the server decides (RFC 5961, section 4).
 */
static __always_inline int stays(const struct packet *p, const struct flow *flow,
				 const struct backend *backend)
{
	if (p->phase != PHASE_OPENING)
		return 1;
	return flow->open && !flow->closing && backend->flags & BACKEND_NEW_FLOWS;
}

/* The backend of a flow on an unstable ring entry, or of a service that records all flows. */
static __noinline struct backend *tracked_backend(const struct packet *p, const struct view *view,
						  __u64 hash, __u32 number, __u32 entry)
{
	struct flow_stats *stats = bpf_map_lookup_elem(&flow_stats, &number);
	__u64 key = record_key(number, p->source, p->source_port);
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	struct backend *backend = NULL;
	int pending = !flow, taken = 0, reopened, recordable;
	__u32 slot, ref;

	if (pending)
		flow = bpf_map_lookup_elem(&flows_pending, &key);
	if (!flow) { /* another processor may have moved it between the two look-ups */
		flow = bpf_map_lookup_elem(&flows, &key);
		pending = !flow;
	}
	if (flow && !is_recorded(p, flow, number)) {
		flow = NULL;
		taken = 1;
	}
	trace_flow(flow);
	if (flow)
		backend = recorded_backend(p, view, flow);
	if (backend && stays(p, flow, backend)) {
		trace_slot(backend_index(backend) - view->backend_base, TRACE_HIT);
		touch_flow(p, flow);
		if (pending && flow->open == FLOW_OPEN && !tracing &&
		    within_limit(RATE_CONFIRM, CONFIRM_INTERVAL))
			confirm_flow(key, flow);
		if (stats)
			stats->hits += 1;
		return backend;
	}
	if (stats && p->phase != PHASE_OPENING)
		stats->misses += 1;
	recordable = flow || (!taken && within_limit(RATE_RECORD, record_interval));
	slot = unrecorded_slot(p, view, hash, entry, recordable);
	if (feature_clients && view->flags & VIEW_REMEMBER_CLIENTS)
		slot = client_slot(p, view, number, slot);
	trace_slot(slot, 0);
	reopened = backend && p->phase == PHASE_OPENING && flow->open && !flow->closing;
	backend = slot < view->slots ? backend_at(view, slot) : NULL;
	/* No packets follow a reset, so it needs no record. */
	if (!backend || p->quoted || p->flags & TCP_RST)
		return backend;
	if (!recordable) {
		if (stats)
			stats->unrecorded += 1;
		return backend;
	}
	ref = slot | (__u32)backend->generation << 16;
	if (reopened)
		reopen_flow(p, flow, ref);
	else if (record_flow(p, hash, number, ref, flow, stats) && begins_flow(p, view, backend))
		count_new_flow(counter_index(view, backend));
	return backend;
}

/* The backend of a flow, or NULL if there is none. */
static __always_inline struct backend *flow_backend(const struct packet *p, const struct view *view,
						    __u64 hash, __u32 number)
{
	__u32 entry = ring_entry(view, view->ring_base, view->ring_size, hash);

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
