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
 * A one-to-one function whose upper bits depend on all bits: the place of a sum of products. What is
 * in progression, as ports and addresses of neighbours, has sums in progression, most of which meet
 * in a few places for a few secrets in a hundred.
 */
static __always_inline __u32 spread(__u32 sum)
{
	return (sum ^ sum >> 16) * 0x9e3779b1;
}

/* A sum of products of the address's words with secrets. */
static __always_inline __u64 address_sum(const void *address, const volatile __u64 secrets[4])
{
	const __u32 *words = address;

	return words[0] * secrets[0] + words[1] * secrets[1] + words[2] * secrets[2] +
	       words[3] * secrets[3];
}

/*
 * Key of ports and two addresses; NULL is an address of zeros. The upper halves of the two sums are
 * independent, so the keys of any two inputs are equal with a probability of at most 2^-62 over the
 * secrets, whatever the inputs differ in (Dietzfelbinger, as in core/vip.h). A function of its own, as
 * inlined it takes the stack that its callers need.
 */
static __noinline __u64 address_key(__u64 ports, const void *a, const void *b)
{
	__u64 high = ports * key_secrets[0][0] + address_sum(a, &key_secrets[0][1]);
	__u64 low = ports * key_secrets[1][0] + address_sum(a, &key_secrets[1][1]);

	if (b) {
		high += address_sum(b, &key_secrets[0][5]);
		low += address_sum(b, &key_secrets[1][5]);
	}
	return high ^ low >> 32;
}

/*
 * Key of what is recorded of a client's port at the service of that number. It depends on secrets
 * of the node, so that senders can't choose packets whose keys are equal. Half of a mapped
 * address's second word is constant, so all that differs between IPv4 clients fits into a word. Keys
 * are hashed once more, by the kernel or in first_place(): they need no final avalanche.
 */
static __always_inline __u64 record_key(__u32 number, const __u8 client[16], __be16 port)
{
	__u64 flow = (__u64)number << 16 | port;

	if (is_mapped(client))
		return key_seed ^ ((const __u64 *)client)[1] ^ flow;
	return address_key(flow, client, NULL);
}
