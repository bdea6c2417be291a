/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The hashes of a packet: that of its VIP, which finds the service, and, going on from there, that of
 * its flow, which picks the backend. Words are taken in wire order as they lie in memory; IPv4 leaves
 * out the constant words of mapped addresses.
 */
#pragma once

#include "config.h"
#include "packet.h"
#include "types.h"

/* One round: every bit of the word reaches the upper half of the hash. */
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

/* Hash of the VIP. It has no seed: its owner chooses VIPs, not whoever sends packets. */
static __always_inline __u64 vip_hash(const struct packet *p)
{
	const __u64 *words = (const __u64 *)&p->vip;
	__u64 hash = p->ipv4 ? 0 : hash_word(0, words[0]);

	return hash_word(hash_word(hash, words[1]), words[2]);
}

/*
 * Hash of the five-tuple and the segment; with affinity to the client, of all but the client's port.
 * `hash` is the VIP's. The seed keeps senders from choosing their backends. In the second half of a
 * mapped address the bits of the port are zero.
 */
static __always_inline __u64 flow_hash(const struct packet *p, __u64 hash, __u32 flags)
{
	const __u64 *source = (const __u64 *)p->source;
	__u64 port = flags & VIEW_AFFINITY_CLIENT ? 0 : p->source_port;

	hash ^= hash_seed;
	if (p->ipv4)
		return hash_end(hash_word(hash, source[1] | port));
	return hash_end(hash_word(hash_word(hash, source[0]), source[1]) ^ port);
}
