/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which addresses are VIPs', whatever the port: asked by the few packets that have none.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "packet.h"
#include "types.h"

/* The ADDRESS_* flags of the packet's destination, or NULL if it is no VIP's. */
static __always_inline __u32 *vip_address(const struct packet *p)
{
	struct address_key key = {};

	__builtin_memcpy(key.address, p->vip.address, sizeof(key.address));
	key.segment_id = p->vip.segment_id;
	key.segment_type = p->vip.segment_type;
	return bpf_map_lookup_elem(&addresses, &key);
}
