/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NAT sessions: keys, look-ups, lifetimes, and the synchronisation of their two entries.
 *
 * Both entries have the same content, so that each can restore the other after an eviction. Keys are
 * hashes; a packet is compared with the entry that it finds. Packets
 * of established sessions read one entry, and write at most their acknowledgement number.
 *
 * A session begins in `nat_pending`. It moves to `nat_sessions` when the client has acknowledged
 * the server's answer, or with UDP, when the server has answered.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/backend.h"
#include "core/config.h"
#include "core/hash.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/types.h"
#include "nat/places.h"

/* A second, in units of nat_session.seen. */
#define NAT_SECOND (1000000000ull >> FLOW_TIME_SHIFT)

/* Minimum interval between updates of `seen`. */
#define NAT_TOUCH NAT_SECOND

/*
 * Interval between updates of `seen` in a confirmed session's other entry, unless its idle timeout is
 * shorter than eight of them: reading that entry costs as much as all the rest. A power of two.
 */
#define NAT_SYNC (1u << 13)

/* The next step for a packet that has no verdict yet. No value is a verdict (enum xdp_action). */
enum nat_step {
	NAT_UNKNOWN = 256, /* the packet belongs to no live session of this node */
	NAT_LOOKUP, /* the connection has to be looked up at peers (translate/lookup.h) */
};

/* Whether a result of NAT is a verdict, and not an enum nat_step. */
static __always_inline int is_verdict(int result)
{
	return result < NAT_UNKNOWN;
}

/* A backend reference that refers to none. */
#define NAT_NO_BACKEND 0xffffffff

/* The same clock as flow_time() of pick/flow.h. */
static __always_inline __u32 nat_time(void)
{
	return bpf_ktime_get_coarse_ns() >> FLOW_TIME_SHIFT;
}

/* Idle timeout of a session; `idle` is that of established sessions. */
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
	return idle < 8 * NAT_SYNC ? idle : idle + NAT_SYNC; /* how late the entry's time may be */
}

/* Signed, as the time of another processor may be ahead. `seen` is up to NAT_TOUCH late. */
static __always_inline int is_live(const struct nat_session *s, __u32 idle, __u32 now)
{
	__s32 age = now - *(volatile const __u32 *)&s->seen;

	return age <= (__s32)(session_time(s, idle) + NAT_TOUCH);
}

/* The protocol of the session's packets. */
static __always_inline __u8 session_protocol(const struct nat_session *s)
{
	return s->state < NAT_ONE_WAY ? IPPROTO_TCP : IPPROTO_UDP;
}

/* Whether both sides of a session in that state have sent packets. */
static __always_inline int is_confirmed(__u8 state)
{
	return state == NAT_ESTABLISHED || state == NAT_TWO_WAY;
}

/* How far pending entries are from their first place: a flood costs a look at each of these. */
#define PENDING_WINDOW 8

/*
 * The places of entries (nat/places.h), in `nat_pending` if `pending` is set, else in
 * `nat_sessions`. The functions aren't inlined, as the stack of each is small.
 */
__noinline __u32 find_entry(__u64 key, __u32 pending)
{
	return pending ? find_place(&nat_pending, key, first_place(key, pending_places))
		       : find_place(&nat_sessions, key, first_place(key, session_places));
}

__noinline __u64 choose_entry(__u64 key, __u32 now, __u32 pending)
{
	return pending ? choose_place(&nat_pending, first_place(key, pending_places), now,
				      PENDING_WINDOW)
		       : choose_place(&nat_sessions, first_place(key, session_places), now,
				      PLACE_WINDOW);
}

__noinline int evict_entry(__u32 index, __u32 pending)
{
	return pending ? evict_place(&nat_pending, index, pending_places)
		       : evict_place(&nat_sessions, index, session_places);
}

__noinline __u64 entry_mask(__u64 key, __u32 pending)
{
	return pending ? read_mask(&nat_pending, key, pending_places)
		       : read_mask(&nat_sessions, key, session_places);
}

__noinline int show_entry(__u64 key, __u32 index, __u64 near, __u32 pending)
{
	return pending ? show_place(&nat_pending, key, index, near, pending_places)
		       : show_place(&nat_sessions, key, index, near, session_places);
}

/*
 * Inserts an entry into its table. Returns 0, or -1 if there is one with that key, or no place: UDP
 * takes none of an established connection.
 */
__noinline int insert_entry(__u64 key, const struct nat_session *s)
{
	struct session_place *p;
	__u64 near, choice;
	__u32 pending, index;

	if (!s || key <= PLACE_BUSY)
		return -1;
	pending = s->flags & NAT_PENDING;
	near = entry_mask(key, pending);
	if (find_entry(key, pending) != PLACE_NONE)
		return -1;
	choice = choose_entry(key, s->seen, pending);
	index = choice;
	if (choice & PLACE_EVICT && !(choice & PLACE_OTHERS) && s->state >= NAT_ONE_WAY)
		return -1;
	if (choice & PLACE_EVICT && !evict_entry(index, pending))
		return -1;
	p = pending ? bpf_map_lookup_elem(&nat_pending, &index)
		    : bpf_map_lookup_elem(&nat_sessions, &index);
	if (!p)
		return -1;
	p->session = *s;
	__sync_lock_test_and_set(&p->key, key); /* after the entry, before the mask */
	if (show_entry(key, index, near, pending))
		return 0;
	near = entry_mask(key, pending);
	if (find_entry(key, pending) == PLACE_NONE && show_entry(key, index, near, pending))
		return 0;
	free_place((struct place *)p, key);
	return -1;
}

__noinline int delete_from(__u64 key, __u32 pending)
{
	if (pending)
		delete_place(&nat_pending, key, pending_places);
	else
		delete_place(&nat_sessions, key, session_places);
	return 0;
}

static __always_inline void delete_entry(__u64 key)
{
	delete_from(key, 0);
	delete_from(key, 1);
}

/* The entry with that key in the table, of which so many places are selected, or NULL. */
static __always_inline struct nat_session *session_in(void *table, __u64 key, __u32 places,
						      __u32 pending)
{
	__u32 index = first_place(key, places);
	struct session_place *p = bpf_map_lookup_elem(table, &index);

	if (p && *(volatile __u64 *)&p->key == key)
		return &p->session;
	if (!p || (p->near & PLACE_MASK) <= 1)
		return NULL;
	index = find_entry(key, pending);
	p = bpf_map_lookup_elem(table, &index);
	if (!p)
		return NULL;
	barrier_var(p); /* or the compiler adds to the pointer before the comparison */
	return &p->session;
}

static __always_inline struct nat_session *settled_session(__u64 key)
{
	return session_in(&nat_sessions, key, session_places, 0);
}

static __always_inline struct nat_session *pending_session(__u64 key)
{
	return session_in(&nat_pending, key, pending_places, 1);
}

/* Whether a packet updates the session's other entry, too, though nothing else has changed. */
static __always_inline int is_due(const struct nat_session *s, __u32 idle, __u32 now)
{
	__u32 seen = *(volatile const __u32 *)&s->seen;

	if ((__s32)(now - seen) <= (__s32)NAT_TOUCH)
		return 0;
	/* Not at the same time for all sessions. */
	now += s->snat_port;
	seen += s->snat_port;
	return !is_confirmed(s->state) || idle < 8 * NAT_SYNC || (now ^ seen) >= NAT_SYNC;
}

/* Updates the time of the entry. */
static __always_inline void touch_session(struct nat_session *s, __u32 now)
{
	if ((__s32)(now - s->seen) > (__s32)NAT_TOUCH)
		s->seen = now;
}

/*
 * The entry with that key, or NULL. Entries move from `nat_pending` only, so one that moves between
 * the two look-ups is found.
 */
static __always_inline struct nat_session *find_session(__u64 key)
{
	struct nat_session *s = pending_session(key);

	return s ? s : settled_session(key);
}

/* The entry of a packet with that key, or NULL. Most but SYNs belong to a session that has moved. */
static __always_inline struct nat_session *packet_session(const struct packet *p, __u64 key)
{
	struct nat_session *s = NULL;

	if (p->phase != PHASE_OPENING)
		s = settled_session(key);
	return s ? s : find_session(key);
}

/* The same for a client's datagram, of which many follow each other without an answer. */
static __always_inline struct nat_session *datagram_session(const struct packet *p, __u64 key)
{
	struct nat_session *s;
	__u32 zero = 0, *one_way = bpf_map_lookup_elem(&nat_one_way, &zero);

	if (!one_way)
		return NULL;
	s = *one_way ? find_session(key) : packet_session(p, key);
	if (s)
		*one_way = s->flags & NAT_PENDING;
	return s;
}

/*
 * Key of the session's entry for packets from the server. The segment isn't part of it: SNAT
 * address and port are unique, whatever path the server's packets take.
 */
static __always_inline __u64 reply_key(const __u8 server[16], __be16 server_port,
				       const __u8 snat[16], __be16 snat_port, __u8 protocol)
{
	const __u64 *from = (const __u64 *)server, *to = (const __u64 *)snat;
	__u64 ports = (__u64)protocol << 32 | (__u32)server_port << 16 | snat_port;

	if (from[0] | to[0])
		return address_key(ports, server, snat);
	/* The addresses of two mapped ones are one word. */
	return hash_word(hash_word(~key_seed, ports), from[1] ^ to[1] >> 32);
}

/* Key of the session of a packet from a server. */
static __always_inline __u64 packet_reply_key(const struct packet *p)
{
	return reply_key(p->source, p->source_port, p->vip.address, p->vip.port, p->vip.protocol);
}

/* Key of the entry of a session for packets of the server with that address. */
static __always_inline __u64 session_reply_key(const struct nat_session *s, const __u8 server[16])
{
	return reply_key(server, s->server_port, s->snat, s->snat_port, session_protocol(s));
}

/* Key of the session of a client's packet to the service of that number. */
static __always_inline __u64 packet_client_key(const struct packet *p, __u32 number)
{
	return record_key(number, p->source, p->source_port);
}

/* Key of the session's entry for packets from the client. */
static __always_inline __u64 session_client_key(const struct nat_session *s)
{
	return record_key(s->service, s->client, s->client_port);
}

/* Whether two entries belong to the same session. */
static __always_inline int same_session(const struct nat_session *a, const struct nat_session *b)
{
	return a->service == b->service && a->backend == b->backend &&
	       a->client_port == b->client_port && a->snat_port == b->snat_port &&
	       same_address(a->client, b->client) && same_address(a->snat, b->snat);
}

/* The backend of a session, usable or not. NULL if it has been removed. */
static __always_inline struct backend *session_backend(const struct view *view, __u32 ref)
{
	__u32 key = view->backend_base + (ref & 0xffff);
	struct backend *backend;

	if ((ref & 0xffff) >= view->slots)
		return NULL;
	backend = element(backends, key, backend_count);
	return backend && backend->generation == ref >> 16 ? backend : NULL;
}

/* Reference to a backend: slot, and generation << 16. */
static __always_inline __u32 backend_ref(const struct view *view, const struct backend *b)
{
	return (backend_index(b) - view->backend_base) | (__u32)b->generation << 16;
}

/* Scratch space for a new entry. */
static __always_inline struct nat_session *fresh_session(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&nat_fresh, &key);
}

/* The service's view in use. */
static __always_inline const struct view *active_view(const struct service *service)
{
	return &service->view[*(volatile const __u16 *)&service->active & 1];
}

/* The service's view that was in use when the packet came. */
static __always_inline const struct view *packet_view(const struct packet *p,
						      const struct service *service)
{
	return &service->view[p->view & 1];
}

/* The session of a packet from a server, or NULL. */
static __always_inline struct nat_session *reply_session(const struct packet *p)
{
	struct nat_session *s = packet_session(p, packet_reply_key(p));

	if (!s || !(s->flags & NAT_REPLY) || s->snat_port != p->vip.port ||
	    s->server_port != p->source_port || session_protocol(s) != p->vip.protocol ||
	    !same_address(s->snat, p->vip.address))
		return NULL;
	return s;
}

/* The session of a client's packet to the service of that number, or NULL. */
static __always_inline struct nat_session *client_session(const struct packet *p, __u64 key,
							  __u32 number)
{
	struct nat_session *s =
		p->phase == PHASE_DATAGRAM ? datagram_session(p, key) : packet_session(p, key);

	if (!s || s->flags & NAT_REPLY || s->service != number ||
	    s->client_port != p->source_port || !same_address(s->client, p->source))
		return NULL;
	return s;
}

/* Whether the client's packets take different paths in the two entries. */
static __always_inline int path_differs(const struct nat_session *a, const struct nat_session *b)
{
	const __u16 *x = (const __u16 *)a->router_mac, *y = (const __u16 *)b->router_mac;

	return x[0] != y[0] || x[1] != y[1] || x[2] != y[2] || x[3] != y[3] || x[4] != y[4] ||
	       x[5] != y[5] || a->vlan != b->vlan || a->ifindex != b->ifindex;
}

static __always_inline void copy_path(struct nat_session *to, const struct nat_session *from)
{
	__builtin_memcpy(to->router_mac, from->router_mac, sizeof(to->router_mac));
	__builtin_memcpy(to->local_mac, from->local_mac, sizeof(to->local_mac));
	to->vlan = from->vlan;
	to->ifindex = from->ifindex;
}

/* What both entries have of flags: each sees the packets of one direction. */
#define NAT_SHARED (NAT_FIN_CLIENT | NAT_FIN_SERVER)

/*
 * Updates the entry at `key` from `s`, the session's other entry. States and FINs only increase; the
 * path comes from the client's entry. Returns 0, -1 if another session has that key, or 1 if the
 * entry is missing: the fresh session is what it was.
 */
__noinline int sync_session(__u64 key, const struct nat_session *s)
{
	struct nat_session *twin, *fresh = fresh_session();
	int same = 0;

	if (!s || !fresh)
		return -1;
	/* One that differs may be new here, or another session's by now: it is read again. */
	for (int i = 0; i < 2 && !same; i++) {
		if (i)
			entry_mask(key, 0);
		twin = s->flags & NAT_PENDING ? NULL : settled_session(key);
		if (!twin)
			twin = find_session(key);
		if (!twin) {
			*fresh = *s;
			fresh->flags ^= NAT_REPLY;
			fresh->acked = 0;
			return 1;
		}
		same = (twin->flags ^ s->flags) & NAT_REPLY && same_session(twin, s);
	}
	if (!same)
		return -1;
	twin->seen = s->seen;
	if (twin->state < s->state)
		twin->state = s->state;
	twin->flags = (twin->flags & ~NAT_RESET) | (s->flags & (NAT_SHARED | NAT_RESET));
	if (!(s->flags & NAT_REPLY) && path_differs(twin, s))
		copy_path(twin, s);
	return 0;
}

/* Moves the entry with that key to `nat_sessions`. If there is no place, the next packet tries again. */
__noinline int confirm_entry(__u64 key)
{
	struct nat_session *s = pending_session(key), *fresh = fresh_session();

	if (!s || !fresh)
		return 0;
	*fresh = *s;
	if (pending_session(key) != s) /* it was evicted, and the copy may be another session's */
		return 0;
	fresh->flags &= ~NAT_PENDING;
	if (insert_entry(key, fresh) && find_entry(key, 0) == PLACE_NONE)
		return 0;
	return delete_from(key, 1);
}

/*
 * Deletes the client's entry of a session whose port the fresh session takes. The entry `s` may have
 * been evicted and be another session's by now, with another port.
 */
__noinline int drop_client_entry(const struct nat_session *s)
{
	struct nat_session *entry, *fresh = fresh_session();
	__u64 key;

	if (!s || !fresh || s->snat_port != fresh->snat_port ||
	    s->server_port != fresh->server_port || !same_address(s->snat, fresh->snat))
		return -1;
	key = session_client_key(s);
	entry = find_session(key);
	if (!entry || entry->flags & NAT_REPLY || !same_session(entry, s))
		return -1;
	delete_entry(key);
	return 0;
}
