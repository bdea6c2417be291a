/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NAT sessions: how they are found, how long they live, and how their two entries are kept alike.
 *
 * Both entries have the same content, so that each can make the other anew when the table, which
 * evicts what was least recently used, has dropped one. A key is a hash: whether an entry is the right
 * one is compared with the packet. Steady packets look at one entry and write nothing.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "address.h"
#include "config.h"
#include "hash.h"
#include "maps.h"
#include "packet.h"
#include "types.h"

/* A second, in units of nat_session.seen. */
#define NAT_SECOND (1000000000ull >> FLOW_TIME_SHIFT)

/* `seen` is written again when it is older than this, and the other entry with it. */
#define NAT_TOUCH NAT_SECOND

/* No verdict: of no session that goes on here. */
#define NAT_UNKNOWN (-1)

/* No verdict either: a segment that is of no session here, to be asked around (ask.h). */
#define NAT_ASK (-2)

/* The name of no backend. */
#define NAT_NOBODY 0xffffffff

/* The same clock as flow_time() of flow.h. */
static __always_inline __u32 nat_time(void)
{
	return bpf_ktime_get_coarse_ns() >> FLOW_TIME_SHIFT;
}

/* How long a session may be silent whose service gives `idle` to established ones. */
static __always_inline __u32 session_time(const struct nat_session *s, __u32 idle)
{
	switch (s->state) {
	case NAT_OPENING:
	case NAT_ANSWERED:
		return NAT_OPENING_SECONDS * NAT_SECOND;
	case NAT_CLOSING:
		return NAT_CLOSING_SECONDS * NAT_SECOND;
	case NAT_ONE_WAY:
		return idle < NAT_ONE_WAY_SECONDS * NAT_SECOND ? idle
							       : NAT_ONE_WAY_SECONDS * NAT_SECOND;
	}
	return idle;
}

/* Signed, as another processor's time may be ahead of ours. `seen` may be late by NAT_TOUCH. */
static __always_inline int is_live(const struct nat_session *s, __u32 idle, __u32 now)
{
	__s32 age = now - *(volatile const __u32 *)&s->seen;

	return age <= (__s32)(session_time(s, idle) + NAT_TOUCH);
}

/*
 * Key of a session's entry for packets of the server. It has no segment: whichever way the server's
 * packets come, the SNAT address and port are the session's alone.
 */
static __always_inline __u64 reply_key(const __u8 server[16], __be16 server_port,
				       const __u8 snat[16], __be16 snat_port, __u8 protocol)
{
	const __u64 *from = (const __u64 *)server, *to = (const __u64 *)snat;
	__u64 ports = (__u64)protocol << 32 | (__u32)server_port << 16 | snat_port;
	__u64 hash = hash_word(~hash_seed, ports);

	/* The first halves of mapped addresses are all alike. */
	if (from[0] | to[0])
		hash = hash_word(hash_word(hash, from[0]), to[0]);
	return hash_end(hash_word(hash_word(hash, from[1]), to[1]));
}

/* Key of the packet's session, if it comes from a server. */
static __always_inline __u64 packet_reply_key(const struct packet *p)
{
	return reply_key(p->source, p->source_port, p->vip.address, p->vip.port, p->vip.protocol);
}

/* Key of a session's entry for packets of the client, whose service is at `vip`: its flow hash. */
static __always_inline __u64 session_client_key(const struct nat_session *s,
						const struct vip_key *vip)
{
	struct packet p = {
		.vip = *vip,
		.source_port = s->client_port,
		.ipv4 = is_mapped(s->client),
	};

	__builtin_memcpy(p.source, s->client, sizeof(p.source));
	return flow_hash(&p, vip_hash(&p), 0);
}

/* Whether two entries are of one session. */
static __always_inline int same_session(const struct nat_session *a, const struct nat_session *b)
{
	return a->service == b->service && a->backend == b->backend &&
	       a->client_port == b->client_port && a->snat_port == b->snat_port &&
	       same_address(a->client, b->client) && same_address(a->snat, b->snat);
}

/* The backend that a session names, also if it can't be used now; NULL if it is gone. */
static __always_inline struct backend *session_backend(const struct view *view, __u32 name)
{
	__u32 key = view->backend_base + (name & 0xffff);
	struct backend *backend;

	if ((name & 0xffff) >= view->slots)
		return NULL;
	backend = bpf_map_lookup_elem(&backends, &key);
	return backend && backend->generation == name >> 16 ? backend : NULL;
}

/* The name that a session has for a backend. */
static __always_inline __u32 backend_name(const struct view *view, const struct backend *b)
{
	return (b->index - view->backend_base) | (__u32)b->generation << 16;
}

/* Where an entry is put together before it is entered. */
static __always_inline struct nat_session *fresh_session(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&nat_fresh, &key);
}

/* The view of a service that is in use. */
static __always_inline const struct view *active_view(const struct service *service)
{
	return &service->view[*(volatile const __u32 *)&service->active & 1];
}

/* The session of a packet that may come from a server, or NULL. */
static __always_inline struct nat_session *reply_session(const struct packet *p)
{
	__u64 key = packet_reply_key(p);
	struct nat_session *s = bpf_map_lookup_elem(&nat_sessions, &key);

	if (!s || !(s->flags & NAT_REPLY) || s->snat_port != p->vip.port ||
	    s->server_port != p->source_port || s->protocol != p->vip.protocol ||
	    !same_address(s->snat, p->vip.address))
		return NULL;
	return s;
}

/* The session of a client's packet to the service of that number, or NULL. */
static __always_inline struct nat_session *client_session(const struct packet *p, __u64 key,
							  __u32 number)
{
	struct nat_session *s = bpf_map_lookup_elem(&nat_sessions, &key);

	if (!s || s->flags & NAT_REPLY || s->service != number ||
	    s->client_port != p->source_port || !same_address(s->client, p->source))
		return NULL;
	return s;
}

/* Whether the client's packets come another way than they did. */
static __always_inline int path_differs(const struct nat_session *a, const struct nat_session *b)
{
	const __u16 *x = (const __u16 *)a->router, *y = (const __u16 *)b->router;

	return x[0] != y[0] || x[1] != y[1] || x[2] != y[2] || x[3] != y[3] || x[4] != y[4] ||
	       x[5] != y[5] || a->vlan != b->vlan || a->ifindex != b->ifindex;
}

static __always_inline void copy_path(struct nat_session *to, const struct nat_session *from)
{
	__builtin_memcpy(to->router, from->router, sizeof(to->router));
	__builtin_memcpy(to->own, from->own, sizeof(to->own));
	to->vlan = from->vlan;
	to->ifindex = from->ifindex;
}

/*
 * Makes the entry at `key` like `s`, which is the other one of its session: what only grows is taken
 * over, the path if it is the client's packets that know it. An entry that is missing is made. Returns
 * 0, or -1 if another session is in its place.
 */
__noinline int mirror_session(__u64 key, const struct nat_session *s)
{
	struct nat_session *twin, *fresh = fresh_session();

	if (!s || !fresh)
		return -1;
	twin = bpf_map_lookup_elem(&nat_sessions, &key);
	if (!twin) {
		*fresh = *s;
		fresh->flags ^= NAT_REPLY;
		bpf_map_update_elem(&nat_sessions, &key, fresh, BPF_NOEXIST);
		return 0;
	}
	if (!((twin->flags ^ s->flags) & NAT_REPLY) || !same_session(twin, s))
		return -1;
	twin->seen = s->seen;
	if (twin->state < s->state)
		twin->state = s->state;
	twin->flags |= s->flags & (NAT_FIN_CLIENT | NAT_FIN_SERVER);
	if (!(s->flags & NAT_REPLY) && path_differs(twin, s))
		copy_path(twin, s);
	return 0;
}

/* Deletes the client's entry of a session that has lost its port. Others at its key stay. */
__noinline int drop_client_entry(const struct nat_session *s)
{
	struct nat_session *entry;
	struct vip_key *vip;
	__u32 number;
	__u64 key;

	if (!s)
		return -1;
	number = s->service;
	vip = bpf_map_lookup_elem(&service_vips, &number);
	if (!vip)
		return -1;
	key = session_client_key(s, vip);
	entry = bpf_map_lookup_elem(&nat_sessions, &key);
	if (!entry || entry->flags & NAT_REPLY || !same_session(entry, s))
		return -1;
	return bpf_map_delete_elem(&nat_sessions, &key);
}
