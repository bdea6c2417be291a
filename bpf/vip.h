/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a VIP to the number of its service: open addressing with linear probing, in an array that user
 * space writes. The table is so sparse that the first place nearly always decides.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"
#include "types.h"

static __always_inline int same_vip(const struct vip_key *a, const struct vip_key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/* The number of the packet's service, or VIP_NEVER if its VIP is none. */
static __always_inline __u32 service_number(const struct packet *p, __u64 hash)
{
	__u32 home = (hash >> 32) & vip_mask;

	for (__u32 i = 0; i < VIP_PROBES; i++) {
		__u32 key = (home + i) & vip_mask;
		struct vip_place *place = bpf_map_lookup_elem(&vips, &key);
		__u32 number;

		if (!place)
			return VIP_NEVER;
		number = *(volatile __u32 *)&place->number;
		if (number == VIP_NEVER)
			return VIP_NEVER;
		if (number != VIP_LEFT && same_vip(&place->key, &p->vip))
			return number;
	}
	return VIP_NEVER;
}
