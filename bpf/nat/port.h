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
#include "core/header.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/types.h"
#include "nat/session.h"

/* With 90 % of the ports in use, 64 attempts fail for one session in a thousand. */
#define NAT_ATTEMPTS 64
#define NAT_PENDING_ATTEMPTS 16

/*
 * When the port of a closed connection may be reused: the server accepts a new SYN (RFC 9293,
 * section 3.6.1), and delayed packets of the client should have arrived.
 */
#define NAT_REUSE_TIME (5 * NAT_SECOND)

/* The better choice is the larger one, but for a claimed port. */
enum port_claim {
	PORT_CLAIMED,
	PORT_TAKEN,
	PORT_CLOSING, /* of a session that has ended: available if no other port is */
	PORT_PENDING, /* of a session that isn't confirmed: the same, and taken first */
};

/* Whether a session has expired, so that its port is free. */
__noinline int is_over(const struct nat_session *s, __u32 now)
{
	__u32 number = s ? s->service : 0;
	struct service *service = element(services, number, service_count);

	return !s || !service || !is_live(s, service->nat_idle, now) ||
	       !session_backend(active_view(service), s->backend);
}

/* Whether a session was silent for more than `time`. */
static __always_inline int is_silent(const struct nat_session *s, __u32 now, __u32 time)
{
	return (__s32)(now - s->seen) > (__s32)time;
}

static __always_inline int is_closing(const struct nat_session *s, __u32 now)
{
	return s->state == NAT_CLOSING && is_silent(s, now, NAT_REUSE_TIME);
}

/*
 * Whether the port of a live session may be reused if no other is free. Nothing followed a RST with
 * another sequence number, of a client with data under way, if the connection has ended. UDP is
 * mostly done after an answer.
 */
static __always_inline enum port_claim available(const struct nat_session *s, __u32 now)
{
	if (is_closing(s, now) ||
	    (s->state == NAT_TWO_WAY &&
	     is_silent(s, now, NAT_ONE_WAY_SECONDS * NAT_SECOND + NAT_SYNC)) ||
	    (s->flags & NAT_RESET && is_silent(s, now, NAT_CLOSING_SECONDS * NAT_SECOND)))
		return PORT_CLOSING;
	if (s->flags & NAT_PENDING && s->state != NAT_CLOSING)
		return PORT_PENDING;
	return PORT_TAKEN;
}

/*
 * Replaces the entry of another session with the backend by `s`. Of several processors one succeeds.
 */
static __always_inline int take_over(__u64 key, struct nat_session *other,
				     const struct nat_session *s, __u32 now)
{
	__u32 seen = *(volatile __u32 *)&other->seen;

	if (seen == now + 1 || __sync_val_compare_and_swap(&other->seen, seen, now + 1) != seen)
		return -1;
	drop_client_entry(other);
	delete_entry(key);
	return insert_entry(key, s) ? -1 : 0;
}

/* Whether what arrives at the port may be parsed as a packet of a tunnel, and not as an answer. */
static __always_inline int is_tunnel_port(__u16 port)
{
	return port == bpf_htons(GUE_PORT) || port == bpf_htons(VXLAN_PORT) ||
	       port == bpf_htons(GENEVE_PORT);
}

/*
 * Tries to insert the fresh session, an entry for packets from the server, with its SNAT address
 * and port. A port of another session is reused up to the class `most`, one of a tunnel never.
 * Returns an enum port_claim.
 */
__noinline int claim_port(const struct backend *b, __u32 most)
{
	struct nat_session *s = fresh_session(), *other;
	enum port_claim claim = PORT_CLAIMED;
	const __u8 *server;
	__u64 key;
	__u32 now;

	server = b ? remote_of(b) : NULL;
	if (!s || !server || is_tunnel_port(s->snat_port))
		return PORT_TAKEN;
	key = session_reply_key(s, server);
	other = find_session(key);
	now = nat_time();
	if (other && !is_over(other, now))
		claim = available(other, now);
	if (claim == PORT_TAKEN || claim > most)
		return claim;
	if (tracing)
		return PORT_CLAIMED;
	if (other ? take_over(key, other, s, now) : insert_entry(key, s) != 0)
		return PORT_TAKEN;
	return PORT_CLAIMED;
}

/*
 * Whether a session with the backend keeps the client's address, and its port if that is free. If the
 * backend is the client, it would reject packets from its own address as spoofed.
 */
static __always_inline int keeps_source(const struct nat_session *s, const struct backend *b)
{
	const __u8 *server = remote_of(b);

	return b->flags & BACKEND_KEEP_SOURCE && server && !same_address(s->client, server);
}

/* Sets the SNAT address and port of the fresh session to the nth combination for the backend. */
static __always_inline int choose_port(const struct backend *b, __u32 n)
{
	const struct egress *out = egress_of(b);
	const __u8 *server = remote_of(b);
	struct nat_session *s = fresh_session();
	__u32 addresses, first, key;
	struct address *address;

	if (!s || !out || !server)
		return -1;
	addresses = is_mapped(server) ? nat_ipv4_addresses : nat_ipv6_addresses;
	first = is_mapped(server) ? 0 : NAT_ADDRESSES;
	s->snat_port = bpf_htons(nat_first_port + n % nat_ports);
	if (keeps_source(s, b)) {
		__builtin_memcpy(s->snat, s->client, sizeof(s->snat));
		return 0;
	}
	if (!addresses) {
		__builtin_memcpy(s->snat, out->local, sizeof(s->snat));
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
	const __u8 *server = remote_of(b);
	__u64 key;

	if (!s || !server)
		return -1;
	__builtin_memcpy(s->snat, s->client, sizeof(s->snat));
	s->snat_port = s->client_port;
	if (claim_port(b, PORT_CLOSING) == PORT_CLAIMED)
		return 0;
	key = session_reply_key(s, server);
	same = find_session(key);
	if (!same || !same_session(same, s))
		return -1;
	if (tracing)
		return 0;
	delete_entry(key);
	return insert_entry(key, s) ? -1 : 0;
}

/*
 * Allocates an address and a port for the fresh session and inserts it, as an entry for packets
 * from the server. The search starts at a position given by a hash of the client's key, so that a
 * flow that returns gets the same port again. A small range is searched linearly. In a large one, steps
 * depend on the flow and increase: constant steps could divide the number of ports and visit few of
 * them. In a flood most ports are of sessions that aren't confirmed, and the search ends early.
 * Returns 0, or -1 if no port is available.
 */
__noinline int find_port(const struct backend *b, __u64 hash)
{
	__u32 few = nat_ports <= NAT_ATTEMPTS, place = hash, spare = 0;
	__u32 step = few ? 1 : 1 + (hash >> 32) % nat_ports;
	__u32 claim, best = PORT_TAKEN, pending = 0;

	if (!b)
		return -1;
	for (int i = 0; i < NAT_ATTEMPTS && pending < NAT_PENDING_ATTEMPTS; i++) {
		if (choose_port(b, place))
			return -1;
		claim = claim_port(b, PORT_CLAIMED);
		if (claim == PORT_CLAIMED)
			return 0;
		if (claim > best) {
			best = claim;
			spare = place;
		}
		/* Without a branch, which the verifier would follow for each number. */
		pending += (claim + 1) / (PORT_PENDING + 1);
		place += step;
		step += !few;
	}
	if (best == PORT_TAKEN || choose_port(b, spare))
		return -1;
	return claim_port(b, PORT_PENDING) == PORT_CLAIMED ? 0 : -1;
}
