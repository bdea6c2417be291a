/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Clients of services with VIEW_REMEMBER_CLIENTS: a client's new flows go to the backend that its
 * earlier ones went to, also when the ring says another one by now, until it has begun none for as long
 * as the service says or the backend gets no new flows. A client that isn't known goes where the ring
 * says, and stays there. Only packets that begin a flow look here, and those whose flow isn't recorded.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "config.h"
#include "maps.h"
#include "packet.h"
#include "ring.h"
#include "trace.h"
#include "types.h"

/* `seen` is written again when it is older than this, as that of flows is: a client's flows may begin
 * on several processors. About 67 ms. */
#define CLIENT_TOUCH (1ull << 26)

/* Whether a client that was seen then is still remembered. Another processor's time may be ahead. */
static __always_inline int is_remembered(const struct client *client, __u32 number, __u64 now)
{
	__u64 *idle = bpf_map_lookup_elem(&client_idle, &number);

	return idle && (__s64)(now - *(volatile const __u64 *)&client->seen) <= (__s64)*idle;
}

/* Takes note of the backend to which a new flow of the client goes. */
static __always_inline void remember_client(__u64 key, __u32 number, struct client *known,
					    const struct view *view, __u32 slot, __u64 now)
{
	struct backend *b = slot < view->slots ? backend_at(view, slot) : NULL;
	struct client client = { .service = number, .seen = now };

	if (tracing || !b || !(b->flags & BACKEND_USABLE))
		return;
	client.backend = slot | (__u32)b->generation << 16;
	if (known) {
		known->backend = client.backend;
		known->seen = now;
	} else {
		bpf_map_update_elem(&clients, &key, &client, BPF_ANY);
	}
}

/* The backend with which a client has begun a flow although another one was due. */
static __always_inline void move_client(const struct view *view, __u64 key, __u32 number,
					const struct backend *b)
{
	struct client *client = bpf_map_lookup_elem(&clients, &key);

	if (client && client->service == number && !tracing)
		client->backend = (b->index - view->backend_base) | (__u32)b->generation << 16;
}

/*
 * The slot of a packet of no recorded flow, whose ring says `slot`; `hash` is that which picks the ring's
 * entry, and so the client's. One that doesn't begin a flow is where its client was last, whether or not
 * that is still remembered: nothing tells more about it.
 */
static __always_inline __u32 client_slot(const struct packet *p, const struct view *view,
					 __u64 hash, __u32 number, __u32 slot)
{
	struct client *client = bpf_map_lookup_elem(&clients, &hash);
	struct backend *b = NULL;
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 name = 0;

	/* An element may be used again for another key while it is read. */
	if (client && client->service != number)
		client = NULL;
	if (client) {
		name = *(volatile const __u32 *)&client->backend;
		b = named_backend(view, name);
	}
	if (p->phase == PHASE_OPEN || p->quoted) {
		if (!b)
			return slot;
	} else if (!b || !(b->flags & BACKEND_NEW_FLOWS) || !is_remembered(client, number, now)) {
		remember_client(hash, number, client, view, slot, now);
		return slot;
	} else if (!tracing && now - client->seen > CLIENT_TOUCH) {
		client->seen = now;
	}
	trace_slot(name & 0xffff, TRACE_CLIENT);
	return name & 0xffff;
}
