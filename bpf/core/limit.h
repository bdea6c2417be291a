/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rate limits of what packets may cause on this node.
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
