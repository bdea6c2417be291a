/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Port allocation of NAT sessions: a session gets an address and a port of this node that no other
 * session with the same server uses. The session table is the only record of used ports, so they
 * survive the agent and needn't be freed.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/types.h"

/* With 90 % of the ports in use, 64 attempts fail for one session in a thousand. */
#define NAT_ATTEMPTS 64

/*
 * When the port of a closed connection may be reused: the server accepts a new SYN (RFC 9293,
 * section 3.6.1), and delayed packets of the client should have arrived.
 */
#define NAT_REUSE_TIME (5 * NAT_SECOND)

enum port_claim {
	PORT_CLAIMED,
	PORT_TAKEN,
	PORT_CLOSING, /* used by a closing session: available if no other port is */
};

/* Whether a session has expired, so that its port is free. */
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

/* Replaces the entry of another session by `s`. Of several processors one succeeds. */
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
 * Tries to insert the fresh session, an entry for packets from the server, with its SNAT address
 * and port. With `force`, ports of closing sessions are reused. Returns an enum port_claim.
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

/* Sets the SNAT address and port of the fresh session to the nth combination for the backend. */
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
 * Whether a session with the backend keeps the client's address and port. If the backend is the
 * client, it would reject packets from its own address as spoofed.
 */
static __always_inline int keeps_source(const struct nat_session *s, const struct backend *b)
{
	return b->flags & BACKEND_KEEP_SOURCE && !same_address(s->client, b->remote);
}

/*
 * Whether a session has kept the client's address: its replies arrive on the backend's node only.
 */
static __always_inline int kept_source(const struct nat_session *s)
{
	return same_address(s->client, s->snat);
}

/*
 * Inserts the fresh session with the client's address and port, as an entry for packets from the
 * server, unless another session with the server has them. An entry of the same session may exist:
 * another processor has just created it, or the client's entry was evicted. Returns 0 or -1.
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
 * Allocates an address and a port for the fresh session and inserts it, as an entry for packets
 * from the server. The search starts at a position given by the flow's hash, so that a flow that
 * returns gets the same port again. A small range is searched linearly. In a large one, steps
 * depend on the flow and increase: constant steps could divide the number of ports and visit few of
 * them. Returns 0, or -1 if no port is free.
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
