/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which clients may use a service, and how many new flows the service and each of its clients may
 * begin in a second.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/limit.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "parse/peer.h"

/*
 * Whether the list allows the client: the longest matching prefix decides. Every list has a
 * default, so there is always a match; without one the tables are inconsistent, and access is
 * denied.
 */
static __noinline int source_allowed(const struct packet *p, __u32 list)
{
	struct source_key key = {
		.prefix_length = SOURCE_KEY_BITS,
		.list = list,
	};
	enum access *access;

	__builtin_memcpy(key.address, p->source, sizeof(key.address));
	access = bpf_map_lookup_elem(&sources, &key);
	return access && *access == ACCESS_ALLOWED;
}

/*
 * Counts a flow against the client's limit. An IPv6 client is a /64, as a host may use all
 * addresses of its network. The clients of a service have one family, so 8 bytes identify them.
 */
static __always_inline int limit_source(const struct packet *p, __u32 number, __u64 interval,
					__u64 now)
{
	const __u64 *address = (const __u64 *)p->source;
	struct limit_source key = {
		.network = p->ipv4 ? address[1] : address[0],
		.service = number,
	};
	__u64 *arrival = bpf_map_lookup_elem(&limit_sources, &key);
	__u64 first = now + interval;

	if (arrival)
		return limit_take(arrival, interval, now);
	if (!bpf_map_update_elem(&limit_sources, &key, &first, BPF_NOEXIST))
		return 1;
	/* Another processor inserted the client first, or the table is full. */
	arrival = bpf_map_lookup_elem(&limit_sources, &key);
	return !arrival || limit_take(arrival, interval, now);
}

/* The key of a UDP flow. It isn't a hash, so that senders can't cause collisions. */
static __always_inline struct limit_flow limit_flow_key(const struct packet *p, __u32 number)
{
	struct limit_flow key = {
		.service = number,
		.port = p->source_port,
	};

	__builtin_memcpy(key.client, p->source, sizeof(key.client));
	return key;
}

/*
 * Applies the limits to a packet that may begin a flow. Returns CONTINUE, or the exit. A flow
 * that exceeds the client's limit isn't counted against the service's. A datagram begins a flow if
 * its flow isn't in `limit_flows`.
 */
static __noinline enum counter limit_new_flow(const struct packet *p, struct service *service,
					      __u32 number)
{
	struct limit_flow flow = limit_flow_key(p, number);
	__u64 now = bpf_ktime_get_ns() << LIMIT_TIME_SHIFT;
	__u64 per_source = service->limit.source_interval;
	__u64 per_service = service->limit.interval;
	__u8 known = 1;

	if (p->phase == PHASE_DATAGRAM && bpf_map_lookup_elem(&limit_flows, &flow))
		return CONTINUE;
	if (per_source && !limit_source(p, number, per_source, now))
		return COUNTER_DROP_SOURCE_LIMIT;
	if (per_service && !limit_take(&service->limit.arrival, per_service, now))
		return COUNTER_DROP_SERVICE_LIMIT;
	if (p->phase == PHASE_DATAGRAM)
		bpf_map_update_elem(&limit_flows, &flow, &known, BPF_ANY);
	return CONTINUE;
}

/*
 * Whether limits count the packet. With DSR the first balancer counts a flow, and not the node of
 * the backend once more: one that relayed it is a peer. A traced packet doesn't count either.
 */
static __always_inline int is_limited(struct xdp_md *ctx, const struct packet *p,
				      const struct view *view)
{
	if (tracing || !(view->flags & VIEW_LIMITS) || p->phase == PHASE_OPEN || p->quoted)
		return 0;
	return !feature_dsr || !(view->flags & VIEW_DSR) || !is_from_peer(ctx, FORWARD_DSR);
}

/* Whether the client may use the service's view `active`. Returns CONTINUE, or the exit. */
static __always_inline enum counter admit(struct xdp_md *ctx, const struct packet *p,
					  struct service *service, const struct view *view,
					  __u32 active, __u32 number)
{
	if (feature_sources && view->flags & VIEW_SOURCES &&
	    !source_allowed(p, service->sources[active]))
		return COUNTER_DROP_SOURCE_DENIED;
	if (feature_limits && is_limited(ctx, p, view))
		return limit_new_flow(p, service, number);
	return CONTINUE;
}
