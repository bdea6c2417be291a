/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hash tables in arrays, for records that packets read and make. In a kernel's hash table a packet
 * waits for memory several times: for the bucket, and for each element of its list up to its own.
 * Here a record lies at the place that its key selects or, if others have that, up to PLACE_WINDOW
 * - 1 places further ("Hopscotch Hashing", DISC 2008). A mask at the first place says which of them
 * have keys that select it, so a packet mostly reads one element, in a full table two neighbours.
 *
 * A writer owns a place when it has changed its key from PLACE_FREE, or from the key of a record, to
 * PLACE_BUSY. A record becomes visible when its bit is set in the mask of its first place, by an
 * exchange that fails if anything was inserted since the key was looked for, so a key occurs once.
 * Nothing is locked, and the agent deletes records too. A record that is read may be deleted and its
 * place be another record's by then: readers compare it with their packet. If a window is full, which
 * is rare until two thirds of the table are, the record in it that is silent longest is evicted, and
 * established connections after all others: a server answers a datagram from a forged address, too. A
 * table that floods fill has a smaller window.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/hash.h"
#include "core/types.h"

#define PLACE_NONE 0xffffffff
#define PLACE_EVICT (1ull << 32)
#define PLACE_OTHERS (1ull << 33) /* with PLACE_EVICT: the record isn't an established connection */

/*
 * The mask of place.near, and what is added to it at each insertion: if it is the same as before,
 * nothing was inserted (but for a multiple of 65,536 records).
 */
#define PLACE_MASK ((1ull << PLACE_WINDOW) - 1)
#define PLACE_VERSION (1ull << PLACE_WINDOW)

/* How far the time of another processor may be ahead, in units of place.seen. */
#define PLACE_SKEW 1024

static __always_inline struct place *place_at(void *table, __u32 index)
{
	return bpf_map_lookup_elem(table, &index);
}

/* The first place of a key in a table of `places`. Senders know neither keys nor secrets. */
static __always_inline __u32 first_place(__u64 key, __u32 places)
{
	__u64 hash = (__u32)key * place_secret_low + (key >> 32) * place_secret_high;

	return (__u64)spread(hash >> 32) * places >> 32;
}

/* Returns the place of the key's record, whose first place is `first`, or PLACE_NONE. */
static __always_inline __u32 find_place(void *table, __u64 key, __u32 first)
{
	struct place *p = place_at(table, first);
	__u64 near = p ? *(volatile __u64 *)&p->near & PLACE_MASK : 0;

	for (__u32 i = 0; i < PLACE_WINDOW && near; i++, near >>= 1) {
		p = place_at(table, first + i);
		if (near & 1 && p && *(volatile __u64 *)&p->key == key)
			return first + i;
	}
	return PLACE_NONE;
}

/* Whether the caller owns the place now, which had that key. */
static __always_inline int own_place(struct place *p, __u64 key)
{
	return __sync_val_compare_and_swap(&p->key, key, PLACE_BUSY) == key;
}

/* Clears the bit of an owned place whose record had that key. */
static __always_inline void leave_window(void *table, __u64 key, __u32 index, __u32 places)
{
	__u32 first = first_place(key, places);
	struct place *p = place_at(table, first);

	if (p)
		__sync_fetch_and_and(&p->near, ~(1ull << ((index - first) & 63)));
}

/* The larger, the sooner a record is evicted. `age` is less than 1 << 31. */
static __always_inline __u32 eviction_rank(const struct place *p, __u32 age)
{
	return age | (__u32)(p->state != NAT_ESTABLISHED) << 31;
}

/*
 * Owns a free place of the window. Returns its index or, if there is none, PLACE_EVICT, the index of
 * the record to evict, and PLACE_OTHERS unless all records are of established connections.
 */
static __always_inline __u64 choose_place(void *table, __u32 first, __u32 now, __u32 window)
{
	__u64 oldest = PLACE_NONE, candidate, key;
	struct place *p;
	__u32 index;

	for (__u32 i = 0; i < window; i++) {
		index = first + i;
		p = bpf_map_lookup_elem(table, &index);
		if (!p)
			break;
		key = *(volatile __u64 *)&p->key;
		if (key == PLACE_FREE && own_place(p, PLACE_FREE))
			return index;
		/* One number, so that the verifier needn't follow each choice. */
		candidate = (__u64)eviction_rank(p, now - p->seen + PLACE_SKEW) << 32 | index;
		if (key > PLACE_BUSY && candidate > oldest)
			oldest = candidate;
	}
	return PLACE_EVICT | (oldest >> 63 ? PLACE_OTHERS : 0) | (__u32)oldest;
}

/* Deletes the record at a place, which the caller then owns. Returns whether it does. */
static __always_inline int evict_place(void *table, __u32 index, __u32 places)
{
	struct place *p = place_at(table, index);
	__u64 key = p ? *(volatile __u64 *)&p->key : PLACE_BUSY;

	if (!p || key <= PLACE_BUSY || !own_place(p, key))
		return 0;
	leave_window(table, key, index, places);
	return 1;
}

/* place.near of the key's first place, before all that is read or written next. */
static __always_inline __u64 read_mask(void *table, __u64 key, __u32 places)
{
	struct place *home = place_at(table, first_place(key, places));

	return home ? __sync_fetch_and_or(&home->near, 0) : 0;
}

/*
 * Makes the record at an owned place one that can be found, if the mask of the key's first place is
 * still `near`. Returns whether it is.
 */
static __always_inline int show_place(void *table, __u64 key, __u32 index, __u64 near, __u32 places)
{
	__u32 first = first_place(key, places);
	__u64 next = (near | 1ull << ((index - first) & 63)) + PLACE_VERSION;
	struct place *home = place_at(table, first);

	return home && __sync_val_compare_and_swap(&home->near, near, next) == near;
}

/* Frees the place of a record that couldn't be found. */
static __always_inline void free_place(struct place *p, __u64 key)
{
	if (own_place(p, key))
		__sync_lock_test_and_set(&p->key, PLACE_FREE);
}

/* Deletes the key's record, if there is one. */
static __always_inline void delete_place(void *table, __u64 key, __u32 places)
{
	__u32 first = first_place(key, places), index = first;
	struct place *home = bpf_map_lookup_elem(table, &index), *p;
	__u64 near = home ? *(volatile __u64 *)&home->near & PLACE_MASK : 0;

	for (__u32 i = 0; i < PLACE_WINDOW && near; i++, near >>= 1) {
		index = first + i;
		p = bpf_map_lookup_elem(table, &index);
		if (!(near & 1) || !p || *(volatile __u64 *)&p->key != key || !own_place(p, key))
			continue;
		__sync_fetch_and_and(&home->near, ~(1ull << i));
		__sync_lock_test_and_set(&p->key, PLACE_FREE);
		return;
	}
}
