/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records the decisions for `fairlead trace`. The agent loads the program a second time with
 * `tracing` set and runs it on a described packet: that instance reads the live tables without
 * writing to them, and records its decisions here. In the attached instance the constant is 0, and
 * the verifier removes this code.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/types.h"
#include "pick/ring.h"

/* Steps of a packet, and the fields that they fill. */
enum trace_step {
	TRACE_PACKET = 1 << 0, /* parsed: vip, source, phase, length */
	TRACE_SERVICE = 1 << 1, /* service found: service, view */
	TRACE_RING = 1 << 2, /* ring entry found: place, ring_slot, slot */
	TRACE_UNSTABLE = 1 << 3, /* the ring entry is unstable */
	TRACE_PREVIOUS = 1 << 4, /* there is a previous ring: previous_slot */
	TRACE_TRACKED = 1 << 5, /* flow record looked up */
	TRACE_RECORD = 1 << 6, /* flow record found: flow */
	TRACE_HIT = 1 << 7, /* the flow record determined the backend */
	TRACE_SERVER = 1 << 8, /* the QUIC connection ID determined the backend: slot */
	TRACE_CLIENT = 1 << 9, /* the client's record determined the backend: slot */
};

struct trace {
	struct vip_key vip;
	__u8 source[16];
	__be16 source_port;
	__u16 phase; /* enum phase */
	__u32 steps; /* TRACE_* */
	__u32 length; /* of the IP packet, header included */
	__u32 service; /* number */
	__u32 place; /* of the ring entry */
	__u32 ring_slot; /* of the ring entry */
	__u32 previous_slot; /* of the previous ring's entry */
	__u32 slot; /* of the picked backend */
	struct view view;
	struct flow flow;
};
_Static_assert(sizeof(struct trace) == 148, "trace has no implicit padding");

/* Never read: they keep the enumerations in the BTF, as those in config.h. */
const enum trace_step *const btf_trace_step = 0;
const enum phase *const btf_phase = 0;

/* One element, as the agent traces one packet at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace);
} traces SEC(".maps");

/* The trace, or NULL in the attached instance. */
static __always_inline struct trace *trace_current(void)
{
	__u32 key = 0;

	return tracing ? bpf_map_lookup_elem(&traces, &key) : NULL;
}

/* The packet is parsed. */
static __always_inline void trace_packet(const struct packet *p)
{
	struct trace *t = trace_current();

	if (!t)
		return;
	t->vip = p->vip;
	__builtin_memcpy(t->source, p->source, sizeof(t->source));
	t->source_port = p->source_port;
	t->phase = p->phase;
	t->length = p->length;
	t->steps |= TRACE_PACKET;
}

/* The packet's service is found. */
static __always_inline void trace_service(const struct packet *p, const struct view *view,
					  __u32 number)
{
	struct trace *t;

	trace_packet(p);
	t = trace_current();
	if (!t)
		return;
	t->service = number;
	t->view = *view;
	t->steps |= TRACE_SERVICE;
}

/* The packet's ring entry is found. */
static __always_inline void trace_ring(const struct view *view, __u64 hash, __u32 entry)
{
	struct trace *t = trace_current();

	if (!t || entry == RING_NONE)
		return;
	t->place = ring_place(view->ring_size, hash);
	t->ring_slot = entry & RING_SLOT;
	t->slot = t->ring_slot;
	t->steps |= TRACE_RING;
	if (entry & RING_UNSTABLE)
		t->steps |= TRACE_UNSTABLE;
	if (!view->previous_size)
		return;
	entry = ring_entry(view, view->previous_base, view->previous_size, hash);
	if (entry == RING_NONE)
		return;
	t->previous_slot = entry & RING_SLOT;
	t->steps |= TRACE_PREVIOUS;
}

/* The flow was looked up; `flow` is NULL if it has no record. */
static __always_inline void trace_flow(const struct flow *flow)
{
	struct trace *t = trace_current();

	if (!t)
		return;
	t->steps |= TRACE_TRACKED;
	if (!flow)
		return;
	t->flow = *flow;
	t->steps |= TRACE_RECORD;
}

/* Another slot than the ring's; `step` is TRACE_HIT, TRACE_SERVER, TRACE_CLIENT or 0. */
static __always_inline void trace_slot(__u32 slot, __u32 step)
{
	struct trace *t = trace_current();

	if (!t)
		return;
	t->slot = slot;
	t->steps |= step;
}

/* The packet belongs to a NAT session, which is shown like a flow record. */
static __always_inline void trace_session(const struct nat_session *s)
{
	struct trace *t = trace_current();

	if (!t)
		return;
	t->slot = s->backend & 0xffff;
	t->flow.service = s->service;
	t->flow.backend = s->backend;
	t->flow.seen = s->seen;
	t->flow.port = s->client_port;
	__builtin_memcpy(t->flow.client, s->client, sizeof(t->flow.client));
	t->steps |= TRACE_TRACKED | TRACE_RECORD | TRACE_HIT;
}
