/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What belongs to a backend. Its index isn't stored: it is the distance from the first backend.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/maps.h"
#include "core/types.h"

/* The backend's index in `backends`, `remotes` and `backend_details`. */
static __always_inline __u32 backend_index(const struct backend *b)
{
	__u32 key = 0;
	const struct backend *first = element(backends, key, backend_count);

	return first ? b - first : 0;
}

/*
 * The index of the backend's counters. They lie as the slots of the service do, so memory is asked
 * for them and for the backend at once.
 */
static __always_inline __u32 counter_index(const struct view *view, const struct backend *b)
{
	return view->stats_base + backend_index(b) - view->backend_base;
}

/* How packets leave towards the backend; NULL is a defect. */
static __always_inline const struct egress *egress_of(const struct backend *b)
{
	__u32 key = b->egress;

	return element(egress, key, egress_count);
}

/* Remote tunnel endpoint; with NAT the backend's address. NULL is a defect. */
static __always_inline const __u8 *remote_of(const struct backend *b)
{
	__u32 key = backend_index(b);
	struct address *remote = element(remotes, key, backend_count);

	return remote ? remote->bytes : NULL;
}

static __always_inline struct backend_detail *detail_of(const struct backend *b)
{
	__u32 key = backend_index(b);

	return element(backend_details, key, backend_count);
}
