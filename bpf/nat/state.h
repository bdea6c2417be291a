/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State tracking of NAT sessions. TCP is tracked just enough to choose an idle timeout (RFC 5382,
 * section 5), and to ignore forged segments. A connection is established once the client has
 * acknowledged the server's answer with the right number. A RST counts if its sequence number is
 * what the other side has acknowledged (RFC 5961, section 3.2); with another one, the session goes
 * on until its port is needed.
 *
 * Flags aren't changed atomically: of the FINs of both sides, if they come at the same moment on two
 * processors, one may be lost. If it is in neither entry, the session stays until its idle timeout.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/types.h"
#include "nat/path.h"
#include "nat/rewrite.h"
#include "nat/session.h"

static __always_inline void read_segment(struct xdp_md *ctx, const struct packet *p,
					 struct segment *t)
{
	struct tcphdr *tcp = packet_at(ctx, p, p->header);

	if (p->vip.protocol != IPPROTO_TCP || !has_transport(p) ||
	    (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return;
	t->seq = tcp->seq;
	t->ack = tcp->ack_seq;
	t->flags = ((__u8 *)tcp)[TCP_FLAGS];
}

/*
 * A server answers the SYNs of a connection that it knows once in half a second (tcp_invalid_ratelimit
 * of Linux; RFC 5961, section 7). It should answer one that comes so long after its last packet or
 * an earlier SYN. `seen` is up to NAT_TOUCH before the last packet, and exact for a SYN.
 */
#define NAT_ANSWER_TIME (NAT_SECOND * 3 / 4)

/*
 * Whether the server of a connection doesn't answer a SYN that it should answer before the client's
 * next one. No living one is silent, be it for a connection that it knows or not. The next one is a
 * retransmission: clients wait a second for an answer, and then two (RFC 6298, sections 2 and 5.5).
 */
__noinline int is_unanswered(const struct nat_session *s, const struct backend *b)
{
	const __u8 *server = b ? remote_of(b) : NULL;
	struct nat_session *entry;
	__u32 now = nat_time();
	__s32 silent, late;
	__u8 flag;

	if (!s || !server)
		return 0;
	entry = find_session(session_reply_key(s, server));
	if (!entry || !(entry->flags & NAT_REPLY) || !same_session(entry, s))
		return 0;
	silent = now - entry->seen;
	if (entry->flags & NAT_ASKED)
		return silent > (__s32)NAT_ANSWER_TIME;
	late = entry->flags & NAT_SYN ? 0 : NAT_TOUCH;
	flag = silent > late + (__s32)NAT_ANSWER_TIME ? NAT_ASKED : NAT_SYN;
	if (!tracing && !(entry->flags & flag)) {
		entry->flags |= flag;
		entry->seen = now;
	}
	return 0;
}

/* The flags of an entry after a segment; `fin` is the sender's NAT_FIN_*. */
static __always_inline __u8 flags_after(const struct nat_session *s, const struct segment *t,
					__u8 fin)
{
	return (s->flags & ~(NAT_RESET | NAT_SYN | NAT_ASKED)) | (t->flags & TCP_FIN ? fin : 0);
}

static __always_inline int is_finished(__u8 flags)
{
	const __u8 both = NAT_FIN_CLIENT | NAT_FIN_SERVER;

	return (flags & both) == both;
}

/* Whether the side that the entry at `key` is for has acknowledged all that precedes a RST. */
static __always_inline int is_acked(__u64 key, const struct segment *t)
{
	struct nat_session *twin = find_session(key);

	return twin && twin->acked && twin->acked == t->seq;
}

/* How far beyond the server's SYN the first acknowledgement may be: TCP Fast Open (RFC 7413). */
#define NAT_FIRST_WINDOW 65536

/* Whether a client's segment acknowledges the server's SYN. */
static __always_inline int acks_syn(const struct nat_session *s, const struct segment *t)
{
	if ((t->flags & (TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK || !s->acked)
		return 0;
	return bpf_ntohl(t->ack) - bpf_ntohl(s->acked) < NAT_FIRST_WINDOW;
}

/* Sets what the client has to acknowledge, in its entry at `key`, which isn't established. */
static __always_inline void expect_ack(__u64 key, const struct segment *t)
{
	struct nat_session *s = find_session(key);

	if (s && s->flags & NAT_PENDING && !(s->flags & NAT_REPLY))
		s->acked = bpf_htonl(bpf_ntohl(t->seq) + 1);
}

/* Stores the acknowledgement number of an entry's segment. Few packets change it twice. */
static __always_inline void store_ack(struct nat_session *s, const struct segment *t)
{
	if (t->flags & TCP_ACK && s->acked != t->ack)
		s->acked = t->ack;
}

/* The state after a packet from the client, and the entry's flags. */
static __always_inline __u8 after_client(const struct nat_session *s, const struct segment *t,
					 const __u8 server[16], __u8 *flags)
{
	*flags = flags_after(s, t, NAT_FIN_CLIENT);
	if (t->flags & TCP_RST) {
		if (is_acked(session_reply_key(s, server), t))
			return NAT_CLOSING;
		*flags |= NAT_RESET;
	}
	if (is_finished(*flags))
		return NAT_CLOSING;
	return s->state == NAT_ANSWERED && acks_syn(s, t) ? NAT_ESTABLISHED : s->state;
}

/* The state after a packet from the server, and the entry's flags. */
static __always_inline __u8 after_server(const struct nat_session *s, const struct segment *t,
					 __u8 *flags)
{
	*flags = flags_after(s, t, NAT_FIN_SERVER);
	if (t->flags & TCP_RST) {
		if (s->state == NAT_OPENING || is_acked(session_client_key(s), t))
			return NAT_CLOSING;
		*flags |= NAT_RESET;
	}
	if (is_finished(*flags))
		return NAT_CLOSING;
	if (s->state == NAT_OPENING)
		return NAT_ANSWERED;
	return s->state == NAT_ONE_WAY ? NAT_TWO_WAY : s->state;
}

/*
 * What follow_client and follow_server return: SESSION_LOST, if the session's other key is another
 * session's, or what update_entries has to do. The stack has no room for that in these functions.
 */
enum followed {
	SESSION_LOST = -1,
	SESSION_CONFIRMED = 1 << 0, /* move both entries to `nat_sessions` */
	SESSION_HALF = 1 << 1, /* insert the fresh session, the other entry, which was evicted */
};

/* Whether a session that has that state now moves to `nat_sessions`. */
static __always_inline int moves(const struct nat_session *s, __u8 state)
{
	return s->flags & NAT_PENDING && is_confirmed(state);
}

/* Updates the session's other entry at `other`. Returns an enum followed. */
static __always_inline int sync_entries(const struct nat_session *s, __u64 other, int move)
{
	int synced = sync_session(other, s);

	if (synced < 0)
		return SESSION_LOST;
	return (move ? SESSION_CONFIRMED : 0) | (synced ? SESSION_HALF : 0);
}

/* Does what follow_client or follow_server has returned for the session with these keys. */
static __always_inline void update_entries(int followed, __u64 key, __u64 other)
{
	const struct nat_session *fresh = fresh_session();

	if (followed == SESSION_LOST) {
		delete_entry(key);
		return;
	}
	if (followed & SESSION_HALF && fresh)
		insert_entry(other, fresh);
	if (followed & SESSION_CONFIRMED) {
		confirm_entry(other);
		confirm_entry(key);
	}
}

/*
 * Whether a client's packet changes nothing of its session but what is stored here, in its own entry:
 * so it is with nearly all packets. `idle` is the idle timeout of established sessions.
 */
static __always_inline int is_steady(struct xdp_md *ctx, const struct packet *p,
				     struct nat_session *s, __u32 idle, __u32 now)
{
	int repeated = p->phase == PHASE_OPENING && s->state == NAT_OPENING;
	struct segment t = {};

	read_segment(ctx, p, &t);
	if (!repeated &&
	    ((!is_confirmed(s->state) && s->state != NAT_ONE_WAY) || t.flags & TCP_SYN))
		return 0;
	if (s->flags & NAT_RESET || t.flags & (TCP_FIN | TCP_RST) || is_due(s, idle, now) ||
	    is_rerouted(ctx, p, s))
		return 0;
	if (!tracing) {
		store_ack(s, &t);
		touch_session(s, now);
	}
	return 1;
}

/*
 * Updates the session of a client's packet, with backend `b`. If it is lost, the server's entry was
 * evicted and the port allocated again.
 */
__noinline int follow_client(struct xdp_md *ctx, const struct packet *p, struct nat_session *s,
			     const struct backend *b, __u32 idle)
{
	__u32 now = nat_time();
	struct segment t = {};
	const __u8 *server = b ? remote_of(b) : NULL;
	int rerouted, move;
	__u8 state, flags;

	if (!p || !s || !server)
		return SESSION_LOST;
	read_segment(ctx, p, &t);
	rerouted = is_rerouted(ctx, p, s);
	state = after_client(s, &t, server, &flags);
	if (tracing)
		return 0;
	if (state >= NAT_ESTABLISHED)
		store_ack(s, &t);
	move = moves(s, state);
	if (state == s->state && flags == s->flags && !rerouted && !move && !is_due(s, idle, now)) {
		touch_session(s, now);
		return 0;
	}
	s->state = state;
	s->flags = flags;
	s->seen = now;
	if (rerouted)
		read_path(ctx, p, s);
	return sync_entries(s, session_reply_key(s, server), move);
}

/* Reports a refused connection to the agent. */
static __always_inline void report_refusal(const struct nat_session *s)
{
	struct nat_refusal refusal = { .service = s->service, .backend = s->backend };

	bpf_ringbuf_output(&nat_refusals, &refusal, sizeof(refusal), 0);
}

/* The session and service of a server's packet. */
struct server_reply {
	struct nat_session *session;
	const struct vip_key *vip;
	__u64 key; /* of the session's entry */
	__u32 view_flags; /* VIEW_* */
	__u32 idle; /* idle timeout of established sessions */
};

/* Finds the session of a packet from a server. Returns 0, or -1 if it belongs to none. */
static __always_inline int find_server_reply(const struct packet *p, struct server_reply *a)
{
	struct nat_session *s = reply_session(p);
	struct service_detail *detail;
	const struct view *view;
	struct service *service;
	const __u8 *server;
	struct backend *b;
	__u32 number;

	if (!s)
		return -1;
	number = s->service;
	service = element(services, number, service_count);
	detail = element(service_details, number, service_count);
	if (!service || !detail || !is_live(s, service->nat_idle, nat_time()))
		return -1;
	view = active_view(service);
	b = session_backend(view, s->backend);
	server = b ? remote_of(b) : NULL;
	if (!server || !same_address(server, p->source))
		return -1;
	a->session = s;
	a->vip = &detail->vip;
	a->key = packet_reply_key(p);
	a->view_flags = view->flags;
	a->idle = service->nat_idle;
	return 0;
}

/*
 * Updates the session of a server's packet, with a service that has these VIEW_* flags. If it is
 * lost, the client has a new session: the caller deletes this one's entry, and the kernel refuses
 * the packet.
 */
__noinline int follow_server(struct nat_session *s, const struct segment *t, __u32 view_flags,
			     __u32 idle)
{
	__u32 now = nat_time();
	__u8 state, flags;
	int move;

	if (!s || !t)
		return SESSION_LOST;
	state = after_server(s, t, &flags);
	if (tracing)
		return 0;
	store_ack(s, t);
	if (t->flags & TCP_SYN)
		expect_ack(session_client_key(s), t);
	move = moves(s, state);
	if (state == s->state && flags == s->flags && !move && !is_due(s, idle, now)) {
		touch_session(s, now);
		return 0;
	}
	if (view_flags & VIEW_PASSIVE && s->state == NAT_OPENING && t->flags & TCP_RST)
		report_refusal(s);
	s->state = state;
	s->flags = flags;
	s->seen = now;
	return sync_entries(s, session_client_key(s), move);
}

/* Updates the session of a server's packet. Returns 0, or -1 if it is lost. */
static __always_inline int follow_reply(struct server_reply *a, const struct segment *t)
{
	int followed = follow_server(a->session, t, a->view_flags, a->idle);

	if (followed) {
		update_entries(followed, a->key, session_client_key(a->session));
		a->session = find_session(a->key);
	}
	return followed == SESSION_LOST || !a->session ? -1 : 0;
}

/* The translation of a server's packet: from the VIP to the client. */
static __always_inline void to_client(const struct server_reply *a, struct translation *to)
{
	__builtin_memcpy(to->source, a->vip->address, sizeof(to->source));
	__builtin_memcpy(to->destination, a->session->client, sizeof(to->destination));
	to->source_port = a->vip->port;
	to->port = a->session->client_port;
}
