/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How many new flows a service, and each of its clients, may begin in a second.
 *
 * A limit is kept by the generic cell rate algorithm (ITU-T I.371, annex A, as virtual scheduling):
 * the state is one word, the time at which the next flow would arrive if they came evenly. It may run
 * one second ahead of the clock, which lets a second's worth of flows come at once.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"
#include "stats.h"
#include "types.h"

#define LIMIT_WINDOW (1000000000ull << LIMIT_TIME_SHIFT)

/* An attempt fails only if another processor's has succeeded. */
#define LIMIT_ATTEMPTS 8

/* Takes one flow at the time `now` out of what a limit allows. Returns whether it may begin. */
static __always_inline int limit_take(__u64 *arrival, __u64 interval, __u64 now)
{
	for (int i = 0; i < LIMIT_ATTEMPTS; i++) {
		__u64 seen = *(volatile __u64 *)arrival;
		__u64 ahead = seen - now;

		/* Further than it can be, also if clocks differ a little: it lies behind. */
		if (ahead > 2 * LIMIT_WINDOW)
			ahead = 0;
		if (ahead + interval > LIMIT_WINDOW)
			return 0;
		if (__sync_val_compare_and_swap(arrival, seen, now + ahead + interval) == seen)
			return 1;
	}
	return 0;
}

/*
 * The same for one client. An IPv6 client is a network of 64 bits: whoever has one has all of its
 * addresses. A service has clients of one family only, so 8 bytes tell them apart.
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
	/* Another processor was faster, or there is no room for a client that is new anyway. */
	arrival = bpf_map_lookup_elem(&limit_sources, &key);
	return !arrival || limit_take(arrival, interval, now);
}

/* The flow of a datagram as a key, without anything that its sender could make collide. */
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
 * For a packet that may begin a flow. Returns COUNTER_COUNT if it may pass, else the exit. A client
 * that has used up its own share takes nothing from the service's. UDP doesn't say which datagram is
 * the first: one whose flow isn't remembered.
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
		return COUNTER_COUNT;
	if (per_source && !limit_source(p, number, per_source, now))
		return COUNTER_DROP_SOURCE_LIMIT;
	if (per_service && !limit_take(&service->limit.arrival, per_service, now))
		return COUNTER_DROP_SERVICE_LIMIT;
	if (p->phase == PHASE_DATAGRAM)
		bpf_map_update_elem(&limit_flows, &flow, &known, BPF_ANY);
	return COUNTER_COUNT;
}
