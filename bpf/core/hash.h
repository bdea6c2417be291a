/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hashes of a packet: the flow's hash picks the backend, keys find what is recorded of the flow.
 * Words are in wire order. The constant words of mapped IPv4 addresses are left out.
 */
#pragma once

#include "core/address.h"
#include "core/config.h"
#include "core/packet.h"
#include "core/types.h"

/* One round. Every bit of the word affects the upper half of the hash. */
static __always_inline __u64 hash_word(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 32);
}

/* Final avalanche (the constants of splitmix64's second round). */
static __always_inline __u64 hash_end(__u64 hash)
{
	hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
	return hash ^ (hash >> 31);
}

/*
 * Hash of the five-tuple and the segment, without the client's port if the service has client
 * affinity. The seed keeps senders from choosing their backends. The upper bits of a mapped
 * address's second half are zero, so the port can be merged into it.
 */
static __always_inline __u64 flow_hash(const struct packet *p, __u32 flags)
{
	const __u64 *vip = (const __u64 *)&p->vip, *source = (const __u64 *)p->source;
	__u64 port = flags & VIEW_AFFINITY_CLIENT ? 0 : p->source_port;
	__u64 hash = p->ipv4 ? 0 : hash_word(0, vip[0]);

	hash = hash_word(hash_word(hash, vip[1]), vip[2]) ^ hash_seed;
	if (p->ipv4)
		return hash_end(hash_word(hash, source[1] | port));
	return hash_end(hash_word(hash_word(hash, source[0]), source[1]) ^ port);
}

/*
 * Key of what is recorded of a client's port at the service of that number. It depends on the
 * node's secret, so that senders can't choose packets whose keys are equal. Half of a mapped
 * address's second word is constant, so all that differs between IPv4 clients fits into a word. The
 * kernel hashes keys itself: they need no final avalanche.
 */
static __always_inline __u64 record_key(__u32 number, const __u8 client[16], __be16 port)
{
	__u64 flow = (__u64)number << 16 | port;
	const __u64 *words = (const __u64 *)client;

	if (is_mapped(client))
		return key_seed ^ words[1] ^ flow;
	return hash_word(hash_word(key_seed, words[0]), words[1]) ^ flow;
}
