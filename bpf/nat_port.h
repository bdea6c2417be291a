/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * New NAT sessions: each gets an address and a port of this node that no other session has with the
 * same server. The table of sessions is the only record of what is taken, so nothing is lost with the
 * agent, and nothing has to be given back.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "config.h"
#include "maps.h"
#include "nat_session.h"
#include "packet.h"
#include "types.h"

/* With nine of ten ports taken, one in a thousand sessions finds none in so many attempts. */
#define NAT_ATTEMPTS 64

/* A closed connection's server has forgotten it, or knows how to be opened anew (RFC 9293, section
 * 3.6.1); the client's last segments should have come. */
#define NAT_REUSE_TIME (5 * NAT_SECOND)

enum port_claim {
	PORT_CLAIMED,
	PORT_TAKEN,
	PORT_CLOSING, /* by a session that is closing: it may be had if nothing is free */
};

/* Whether a session that has a port needs it no more. */
static __always_inline int is_over(const struct nat_session *s, __u32 now)
{
	__u32 number = s->service;
	struct service *service = bpf_map_lookup_elem(&services, &number);

	return !service || !is_live(s, service->nat_idle, now) ||
	       !session_backend(active_view(service), s->backend);
}

static __always_inline int is_closing(const struct nat_session *s, __u32 now)
{
	return s->state == NAT_CLOSING && (__s32)(now - s->seen) > (__s32)NAT_REUSE_TIME;
}

/* Puts the entry `s` in the place of another session's. Of several processors one succeeds. */
static __always_inline int take_over(__u64 key, struct nat_session *other,
				     const struct nat_session *s, __u32 now)
{
	__u32 seen = *(volatile __u32 *)&other->seen;

	if (__sync_val_compare_and_swap(&other->seen, seen, now + 1) != seen)
		return -1;
	drop_client_entry(other);
	bpf_map_delete_elem(&nat_sessions, &key);
	return bpf_map_update_elem(&nat_sessions, &key, s, BPF_NOEXIST) ? -1 : 0;
}

/*
 * Tries to enter the fresh session, which is an entry for packets of the server, with its SNAT address
 * and port. `force` takes ports of closing sessions too. Returns an enum port_claim.
 */
__noinline int claim_port(const struct backend *b, __u32 force)
{
	struct nat_session *s = fresh_session(), *other;
	__u32 now = nat_time();
	__u64 key;

	if (!s || !b)
		return PORT_TAKEN;
	key = reply_key(b->remote, s->server_port, s->snat, s->snat_port, s->protocol);
	if (!tracing && !bpf_map_update_elem(&nat_sessions, &key, s, BPF_NOEXIST))
		return PORT_CLAIMED;
	other = bpf_map_lookup_elem(&nat_sessions, &key);
	if (!other)
		return tracing ? PORT_CLAIMED : PORT_TAKEN;
	if (is_over(other, now) || (force && is_closing(other, now)))
		return tracing || !take_over(key, other, s, now) ? PORT_CLAIMED : PORT_TAKEN;
	return is_closing(other, now) ? PORT_CLOSING : PORT_TAKEN;
}

/* Gives the fresh session the nth of all addresses and ports that it may have with the backend. */
static __always_inline int choose_port(const struct backend *b, __u32 n)
{
	__u32 addresses = is_mapped(b->remote) ? nat_ipv4_addresses : nat_ipv6_addresses;
	__u32 first = is_mapped(b->remote) ? 0 : NAT_ADDRESSES, key;
	struct nat_session *s = fresh_session();
	struct address *address;

	if (!s)
		return -1;
	s->snat_port = bpf_htons(nat_first_port + n % nat_ports);
	if (!addresses) {
		__builtin_memcpy(s->snat, b->local, sizeof(s->snat));
		return 0;
	}
	key = first + n / nat_ports % addresses;
	address = bpf_map_lookup_elem(&nat_addresses, &key);
	if (!address)
		return -1;
	__builtin_memcpy(s->snat, address->bytes, sizeof(s->snat));
	return 0;
}

/*
 * Whether a session with the backend has the client's own address and port. A server that is its own
 * client would take packets from its own address for forged ones.
 */
static __always_inline int keeps_source(const struct nat_session *s, const struct backend *b)
{
	return b->flags & BACKEND_OWN && !same_address(s->client, b->remote);
}

/* Whether a session has the client's own address: then answers come to the backend's node only. */
static __always_inline int kept_source(const struct nat_session *s)
{
	return same_address(s->client, s->snat);
}

/*
 * Leaves the fresh session the client's own address and port, and enters it for packets of the server,
 * unless the server knows another session by them. It isn't another one if another processor has just
 * begun it, or only its client's entry was evicted. Returns 0 or -1.
 */
static __always_inline int keep_source(const struct backend *b)
{
	struct nat_session *s = fresh_session(), *same;
	__u64 key;

	if (!s)
		return -1;
	__builtin_memcpy(s->snat, s->client, sizeof(s->snat));
	s->snat_port = s->client_port;
	if (claim_port(b, 1) == PORT_CLAIMED)
		return 0;
	key = reply_key(b->remote, s->server_port, s->snat, s->snat_port, s->protocol);
	same = bpf_map_lookup_elem(&nat_sessions, &key);
	if (!same || !same_session(same, s))
		return -1;
	if (!tracing)
		bpf_map_update_elem(&nat_sessions, &key, s, BPF_ANY);
	return 0;
}

/*
 * Gives the fresh session an address and a port, and enters it for packets of the server. The search
 * begins at a place that the flow's hash says, so that a flow that comes again has the port that it had.
 * Few ports are all tried, one after the other. Among many the search goes on in steps that differ from
 * flow to flow, and grow: equal ones might divide the number of ports, and come back to few of them.
 * Returns 0, or -1 if none is free.
 */
__noinline int find_port(const struct backend *b, __u64 hash)
{
	__u32 few = nat_ports <= NAT_ATTEMPTS, place = hash, spare = 0;
	__u32 step = few ? 1 : 1 + (hash >> 32) % nat_ports;
	int claim, closing = 0;

	if (!b)
		return -1;
	for (int i = 0; i < NAT_ATTEMPTS; i++) {
		if (choose_port(b, place))
			return -1;
		claim = claim_port(b, 0);
		if (claim == PORT_CLAIMED)
			return 0;
		if (claim == PORT_CLOSING && !closing) {
			closing = 1;
			spare = place;
		}
		place += step;
		step += !few;
	}
	if (!closing || choose_port(b, spare))
		return -1;
	return claim_port(b, 1) == PORT_CLAIMED ? 0 : -1;
}
