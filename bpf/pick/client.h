/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Clients of services with VIEW_REMEMBER_CLIENTS. New flows of a client go to the backend of its
 * earlier ones, even if the ring has changed, until the client's idle timeout expires or the
 * backend takes no new flows. A new client gets the ring's backend. Only packets that begin a flow,
 * and those of unrecorded flows, need a look-up.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/config.h"
#include "core/hash.h"
#include "core/limit.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/types.h"
#include "pick/ring.h"
#include "pick/trace.h"

/*
 * Minimum interval between updates of `seen`, about 67 ms: several processors may share the cache
 * line.
 */
#define CLIENT_TOUCH (1ull << 26)

static __always_inline __u64 client_key(const struct packet *p, __u32 number)
{
	return record_key(number, p->source, 0);
}

/* The packet's client, or NULL. Keys of two clients may be equal, and LRU elements are reused. */
static __always_inline struct client *find_client(const struct packet *p, __u64 key, __u32 number)
{
	struct client *client = bpf_map_lookup_elem(&clients, &key);

	return client && client->service == number && same_address(client->address, p->source)
		       ? client
		       : NULL;
}

/* Whether the client's idle timeout hasn't expired. The time of another processor may be ahead. */
static __always_inline int is_remembered(const struct client *client, __u32 number, __u64 now)
{
	__u64 *idle = bpf_map_lookup_elem(&client_idle, &number);

	return idle && (__s64)(now - *(volatile const __u64 *)&client->seen) <= (__s64)*idle;
}

/* Records the backend of a client's new flow. */
static __always_inline void remember_client(const struct packet *p, __u64 key, __u32 number,
					    struct client *known, const struct view *view,
					    __u32 slot, __u64 now)
{
	struct backend *b = slot < view->slots ? backend_at(view, slot) : NULL;
	struct client client = { .service = number, .seen = now };

	if (tracing || !b || !(b->flags & BACKEND_USABLE))
		return;
	client.backend = slot | (__u32)b->generation << 16;
	if (known) {
		known->backend = client.backend;
		known->seen = now;
	} else if (within_limit(RATE_CLIENT, client_interval)) {
		__builtin_memcpy(client.address, p->source, sizeof(client.address));
		bpf_map_update_elem(&clients, &key, &client, BPF_NOEXIST);
	}
}

/* Records that a client has begun a flow with another backend than its own. */
static __always_inline void move_client(const struct packet *p, const struct view *view,
					__u32 number, const struct backend *b)
{
	__u64 key = client_key(p, number);
	struct client *client = find_client(p, key, number);

	if (client && !tracing)
		client->backend = (backend_index(b) - view->backend_base) | (__u32)b->generation
										    << 16;
}

/*
 * The slot for a packet without a recorded flow, whose ring entry has `slot`. A packet that doesn't
 * begin a flow goes to the client's last backend, even if that has expired: there is no better
 * information.
 */
static __always_inline __u32 client_slot(const struct packet *p, const struct view *view,
					 __u32 number, __u32 slot)
{
	__u64 key = client_key(p, number);
	struct client *client = find_client(p, key, number);
	struct backend *b = NULL;
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 ref = 0;

	if (client) {
		ref = *(volatile const __u32 *)&client->backend;
		b = usable_backend(view, ref);
	}
	if (p->phase == PHASE_OPEN || p->quoted) {
		if (!b)
			return slot;
	} else if (!b || !(b->flags & BACKEND_NEW_FLOWS) || !is_remembered(client, number, now)) {
		remember_client(p, key, number, client, view, slot, now);
		return slot;
	} else if (!tracing && now - client->seen > CLIENT_TOUCH) {
		client->seen = now;
	}
	trace_slot(ref & 0xffff, TRACE_CLIENT);
	return ref & 0xffff;
}
