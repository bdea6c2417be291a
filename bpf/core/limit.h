/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rate limits of what packets may cause on this node.
 *
 * Limits of services and clients use the generic cell rate algorithm (ITU-T I.371, annex A, virtual
 * scheduling). The state is one word, the theoretical arrival time of the next flow. It may be up
 * to one second ahead of the clock, which allows bursts of a second's worth of flows.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/maps.h"
#include "core/types.h"

/*
 * A token bucket per processor and kind, so that forged packets can't use this node to flood others,
 * nor fill its tables. Its state is the time up to which tokens are used: a token is an interval
 * (ns), and unused tokens allow one burst.
 */
static __always_inline int within_limit(enum rate kind, __u64 interval)
{
	__u64 *due = bpf_map_lookup_elem(&rates, &kind);
	__u64 now = bpf_ktime_get_coarse_ns();

	if (tracing)
		return 1;
	if (!due || *due > now)
		return 0;
	if (now - *due > RATE_BURST_NS)
		*due = now - RATE_BURST_NS;
	*due += interval;
	return 1;
}

#define LIMIT_WINDOW (1000000000ull << LIMIT_TIME_SHIFT)

/* An attempt fails only if another processor succeeds. */
#define LIMIT_ATTEMPTS 8

/*
 * Counts one flow at time `now` (LIMIT_TIME units) against a limit of all processors together.
 * Returns whether it may begin.
 */
static __always_inline int limit_take(__u64 *arrival, __u64 interval, __u64 now)
{
	for (int i = 0; i < LIMIT_ATTEMPTS; i++) {
		__u64 seen = *(volatile __u64 *)arrival;
		__u64 ahead = seen - now;

		/*
		 * Further than possible, even with slightly different clocks: the time has passed.
		 */
		if (ahead > 2 * LIMIT_WINDOW)
			ahead = 0;
		if (ahead + interval > LIMIT_WINDOW)
			return 0;
		if (__sync_val_compare_and_swap(arrival, seen, now + ahead + interval) == seen)
			return 1;
	}
	return 0;
}
