/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IP fragments. Only the first fragment contains ports. They are recorded for the later fragments,
 * which are then handled like other packets of the flow. A later fragment that arrives before the
 * first one, or after its record was evicted, can't be assigned to a flow. It may belong to a packet
 * for this node itself, if this has the VIP's address.
 *
 * Records have no rate limit: under a flood of first fragments it would lose those of others, while
 * an eviction takes records of packets whose later fragments have mostly passed.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/hash.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "core/vip.h"
#include "nat/session.h"
#include "parse/ip.h"

static __always_inline void fragment_key(const struct packet *p, const struct payload *payload,
					 struct fragment_key *key)
{
	__builtin_memcpy(key->source, p->source, sizeof(key->source));
	__builtin_memcpy(key->destination, p->vip.address, sizeof(key->destination));
	key->id = payload->id;
	key->segment_id = p->vip.segment_id;
	key->segment_type = p->vip.segment_type;
	/* With IPv6, only the first fragment's payload may begin with another extension header. */
	key->protocol = p->ipv4 ? payload->protocol : 0;
}

/* Whether the packet is for a service, an echo request to a VIP, or belongs to a NAT session. */
__noinline int has_service(const struct packet *p)
{
	if (!p)
		return 0;
	if (!has_ports(p->vip.protocol))
		return vip_address(p) != NULL;
	return service_number(p) != VIP_UNUSED || (feature_nat && reply_session(p));
}

/* For how long a first fragment's ports are kept from others with the same identification. */
#define FRAGMENT_TIME (NAT_SECOND / 32)

/* Whether later fragments might be of another packet (RFC 4963), so that they are of none. */
static __always_inline int is_ambiguous(const struct fragment_key *key,
					const struct fragment_ports *ports)
{
	const struct fragment_ports *known = bpf_map_lookup_elem(&fragments, key);

	return known && (__s32)(ports->seen - known->seen) < (__s32)FRAGMENT_TIME &&
	       (known->source_port != ports->source_port || known->port != ports->port ||
		known->protocol != ports->protocol);
}

/* Records the ports of a parsed first fragment. The caller checks that it concerns a service. */
__noinline int record_fragment(const struct packet *p, const struct payload *payload)
{
	struct fragment_key key = {};
	struct fragment_ports ports = {};

	if (tracing || !p || !payload)
		return 0;
	ports.source_port = p->source_port;
	ports.port = p->vip.port;
	ports.protocol = p->vip.protocol;
	ports.seen = nat_time();
	fragment_key(p, payload, &key);
	if (is_ambiguous(&key, &ports))
		ports.protocol = 0;
	return bpf_map_update_elem(&fragments, &key, &ports, BPF_ANY);
}

/*
 * Gives a later fragment the recorded ports. Returns CONTINUE, or the exit if there are none.
 */
__noinline enum counter find_fragment(struct packet *p, const struct payload *payload)
{
	struct fragment_key key = {};
	struct fragment_ports *ports;

	if (!p || !payload)
		return COUNTER_PASS_FRAGMENT;
	fragment_key(p, payload, &key);
	ports = bpf_map_lookup_elem(&fragments, &key);
	if (!ports || !ports->protocol)
		return COUNTER_PASS_FRAGMENT;
	p->vip.protocol = ports->protocol;
	p->vip.port = ports->port;
	p->source_port = ports->source_port;
	p->phase = ports->protocol == IPPROTO_TCP ? PHASE_OPEN : PHASE_DATAGRAM;
	p->header = payload->header;
	return CONTINUE;
}
