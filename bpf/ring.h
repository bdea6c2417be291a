/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a flow to a backend: the hash of the flow picks an entry of the service's Maglev ring
 * (Maglev, NSDI 2016, section 3.4).
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "types.h"

/* What a lookup that can't fail returns if the tables don't hold what the view says. */
#define RING_NONE 0xffffffff

/* The hash's upper half as a fraction of a ring of `size` entries: no division. */
static __always_inline __u32 ring_place(__u32 size, __u64 hash)
{
	return (hash >> 32) * size >> 32;
}

/* The entry of a hash in a ring of `size` entries that begins at chunk `base`. */
static __always_inline __u32 ring_entry(__u32 base, __u32 size, __u64 hash)
{
	__u32 place = ring_place(size, hash);
	__u32 chunk_key = base + place / RING_CHUNK;
	struct ring_chunk *chunk = bpf_map_lookup_elem(&rings, &chunk_key);

	return chunk ? chunk->entry[place % RING_CHUNK] : RING_NONE;
}

static __always_inline struct backend *backend_at(const struct view *view, __u32 slot)
{
	__u32 key = view->backend_base + slot;

	return bpf_map_lookup_elem(&backends, &key);
}

/* The backend of that slot and generation (<< 16), or NULL if it is gone or can't be used. */
static __always_inline struct backend *named_backend(const struct view *view, __u32 name)
{
	struct backend *backend;

	if ((name & 0xffff) >= view->slots)
		return NULL;
	backend = backend_at(view, name & 0xffff);
	if (!backend || !(backend->flags & BACKEND_USABLE) || backend->generation != name >> 16)
		return NULL;
	return backend;
}
