/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * VIP look-ups: the service of an address, port, protocol and segment, and the flags of an address.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/hash.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/types.h"

/*
 * The VIP table uses open addressing in an array that user space writes. It is so sparse that the
 * first place nearly always decides.
 */
static __always_inline int same_vip(const struct vip_key *a, const struct vip_key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/*
 * The first place of a VIP: the upper bits of a sum of products with secrets, so that no choice of
 * VIPs keeps another one out (Dietzfelbinger, "Universal hashing and k-wise independence via
 * integer arithmetic without primes", STACS 1996). Words have half the length of the products: the
 * upper bits of longer ones would depend on a few bits of a secret only. The constant words of
 * mapped addresses are left out.
 */
static __always_inline __u32 vip_home(const struct vip_key *vip, int ipv4)
{
	const __u32 *words = (const __u32 *)vip;
	__u64 sum =
		words[3] * vip_secrets[3] + words[4] * vip_secrets[4] + words[5] * vip_secrets[5];

	if (!ipv4)
		sum += words[0] * vip_secrets[0] + words[1] * vip_secrets[1] +
		       words[2] * vip_secrets[2];
	return spread(sum >> 32) >> vip_shift;
}

/* Returns the number of the packet's service, or VIP_UNUSED if there is none. */
static __always_inline __u32 service_number(const struct packet *p)
{
	__u32 home = vip_home(&p->vip, p->ipv4);

	for (__u32 i = 0; i < VIP_PLACES; i++) {
		__u32 key = (home + i) & vip_mask;
		struct vip_place *place = element(vips, key, vip_mask + 1);
		__u32 number;

		if (!place)
			return VIP_UNUSED;
		number = *(volatile __u32 *)&place->number;
		if (number == VIP_UNUSED)
			return VIP_UNUSED;
		if (number != VIP_DELETED && same_vip(&place->key, &p->vip))
			return number;
	}
	return VIP_UNUSED;
}

/* Returns the ADDRESS_* flags of the packet's destination, or NULL if no VIP has that address. */
static __always_inline __u32 *vip_address(const struct packet *p)
{
	struct address_key key = {};

	__builtin_memcpy(key.address, p->vip.address, sizeof(key.address));
	key.segment_id = p->vip.segment_id;
	key.segment_type = p->vip.segment_type;
	return bpf_map_lookup_elem(&addresses, &key);
}
