/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IP fragments. Only the first one has ports: they are remembered for the later ones, which then go
 * the way of every other packet of the flow. A later fragment that comes before its first one, or after
 * that has been forgotten, can't be attributed.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "config.h"
#include "maps.h"
#include "nat_session.h"
#include "packet.h"
#include "stats.h"
#include "types.h"
#include "vip_address.h"

/* What stands behind the IP headers of a packet. */
struct payload {
	__u32 header; /* bytes of the IP packet in front of it */
	__u32 id; /* of a fragment */
	__u8 protocol;
	__u8 fragment; /* enum fragment_part */
};

static __always_inline void fragment_key(const struct packet *p, const struct payload *payload,
					 struct fragment_key *key)
{
	__builtin_memcpy(key->source, p->source, sizeof(key->source));
	__builtin_memcpy(key->destination, p->vip.address, sizeof(key->destination));
	key->id = payload->id;
	key->segment_id = p->vip.segment_id;
	key->segment_type = p->vip.segment_type;
	/* IPv6: the first fragment's payload may begin with another extension header. */
	key->protocol = p->ipv4 ? payload->protocol : 0;
}

/* Whether fragments from and to these ports concern a service: a VIP's, or of a NAT session. */
static __always_inline int is_served(const struct packet *p)
{
	return vip_address(p) || (feature_nat && reply_session(p));
}

/* The first fragment, which has been parsed: it leaves a note, if it is of a service. */
__noinline int note_fragment(const struct packet *p, const struct payload *payload)
{
	struct fragment_key key = {};
	struct fragment_ports ports = {};

	if (tracing || !p || !payload || !is_served(p))
		return 0;
	ports.source_port = p->source_port;
	ports.port = p->vip.port;
	ports.protocol = p->vip.protocol;
	fragment_key(p, payload, &key);
	return bpf_map_update_elem(&fragments, &key, &ports, BPF_ANY);
}

/* A later fragment. Returns COUNTER_COUNT if the first one is known, else the exit. */
__noinline enum counter recall_fragment(struct packet *p, const struct payload *payload)
{
	struct fragment_key key = {};
	struct fragment_ports *ports;

	if (!p || !payload)
		return COUNTER_PASS_FRAGMENT;
	fragment_key(p, payload, &key);
	ports = bpf_map_lookup_elem(&fragments, &key);
	if (!ports)
		return vip_address(p) ? COUNTER_DROP_FRAGMENT : COUNTER_PASS_FRAGMENT;
	p->vip.protocol = ports->protocol;
	p->vip.port = ports->port;
	p->source_port = ports->source_port;
	p->phase = ports->protocol == IPPROTO_TCP ? PHASE_OPEN : PHASE_DATAGRAM;
	p->header = payload->header;
	return COUNTER_COUNT;
}
