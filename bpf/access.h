/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which clients may use a service: the longest prefix of its list that holds the client's address
 * decides. Services without a list don't look here.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"
#include "types.h"

/*
 * Every list has a verdict for its family as a whole, so something is always found. If not, the
 * tables contradict each other, and a restriction that can't be read must not let anybody in.
 */
static __noinline int source_allowed(const struct packet *p, __u32 list)
{
	struct source_key key = {
		.prefix_length = SOURCE_KEY_BITS,
		.list = list,
	};
	enum access *access;

	__builtin_memcpy(key.address, p->source, sizeof(key.address));
	access = bpf_map_lookup_elem(&sources, &key);
	return access && *access == ACCESS_ALLOWED;
}
