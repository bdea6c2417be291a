/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The slow path of parsing: packets whose ports don't follow a plain IP header. These are
 * fragments, packets with IPv6 extension headers, ICMP, and packets that aren't for a VIP.
 *
 * Functions of this path are global, so that the verifier checks each of them once instead of once
 * per call path. Their pointers are never NULL, which the verifier requires to be checked.
 */
#pragma once

#include <linux/bpf.h>

#include "core/exit.h"
#include "core/limit.h"
#include "core/packet.h"
#include "parse/fragment.h"
#include "parse/ip.h"

/*
 * Addresses have been parsed. Returns COUNTER_COUNT if the packet may be for a VIP, else the exit.
 */
__noinline enum counter parse_slow(struct xdp_md *ctx, struct packet *p)
{
	struct payload payload = {};
	enum counter exit;

	if (!p)
		return COUNTER_PASS_MALFORMED;
	exit = find_payload(ctx, p, &payload);
	if (exit != COUNTER_COUNT)
		return exit;
	if (payload.fragment == FRAGMENT_LATER)
		return find_fragment(p, &payload);
	exit = parse_payload(ctx, &payload, p);
	if (exit == COUNTER_COUNT && p->fragment)
		record_fragment(p, &payload);
	/* Servers get no more errors than hosts send (RFC 4443, section 2.4 (f)). */
	if (exit == COUNTER_COUNT && p->quoted && has_service(p) &&
	    !within_limit(RATE_QUOTED, QUOTED_INTERVAL_NS))
		return COUNTER_DROP_ANSWER_LIMIT;
	return exit;
}
