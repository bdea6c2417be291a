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
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/config.h"
#include "core/exit.h"
#include "core/limit.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/types.h"
#include "core/vip.h"
#include "parse/fragment.h"
#include "parse/ip.h"

/*
 * Whether the list denies the sender of an ICMP error, whose `source` is the quoted client. It may
 * be any router on the path to the client, so a list of allowed clients doesn't matter.
 */
static __always_inline int sender_denied(struct xdp_md *ctx, const struct packet *p, __u32 list)
{
	struct source_key key = { .prefix_length = SOURCE_KEY_BITS, .list = list };
	void *end = (void *)(long)ctx->data_end;
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	enum access *access;

	ip = packet_at(ctx, p, 0);
	ip6 = (void *)ip;
	if (p->ipv4 && (void *)(ip + 1) <= end)
		map_ipv4(key.address, ip->saddr);
	else if (!p->ipv4 && (void *)(ip6 + 1) <= end)
		__builtin_memcpy(key.address, &ip6->saddr, sizeof(key.address));
	access = bpf_map_lookup_elem(&sources, &key);
	return !access || *access == ACCESS_DENIED;
}

/*
 * Whether an ICMP error may be forwarded to a server. Returns CONTINUE, also if it is for none,
 * or the exit. Denied senders don't use up what other senders may send.
 */
__noinline enum counter admit_error(struct xdp_md *ctx, const struct packet *p)
{
	struct service *service;
	struct view *view;
	__u32 number, active;

	if (!p || !has_service(p))
		return CONTINUE;
	number = service_number(p);
	service = element(services, number, service_count);
	if (feature_sources && number != VIP_UNUSED && service) {
		active = *(volatile __u16 *)&service->active & 1;
		view = &service->view[active];
		if (view->flags & VIEW_SOURCES && sender_denied(ctx, p, service->sources[active]))
			return COUNTER_DROP_SOURCE_DENIED;
	}
	/* Servers get no more errors than hosts send (RFC 4443, section 2.4 (f)). */
	return within_limit(RATE_QUOTED, QUOTED_INTERVAL_NS) ? CONTINUE : COUNTER_DROP_ANSWER_LIMIT;
}

/*
 * Addresses have been parsed. Returns CONTINUE if the packet may be for a VIP, else the exit.
 */
__noinline enum counter parse_slow(struct xdp_md *ctx, struct packet *p)
{
	struct payload payload = {};
	enum counter exit;

	if (!p)
		return COUNTER_PASS_MALFORMED;
	exit = find_payload(ctx, p, &payload);
	if (exit != CONTINUE)
		return exit;
	if (payload.fragment == FRAGMENT_LATER)
		return find_fragment(p, &payload);
	exit = parse_payload(ctx, &payload, p);
	if (exit == CONTINUE && p->fragment && has_service(p))
		record_fragment(p, &payload);
	return exit == CONTINUE && p->quoted ? admit_error(ctx, p) : exit;
}
