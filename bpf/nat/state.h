/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State tracking of NAT sessions. TCP is tracked just enough to choose an idle timeout (RFC 5382,
 * section 5). A connection is established only once the client has acknowledged the server's
 * answer, so that a SYN flood creates short-lived sessions only.
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
#include "core/session.h"
#include "core/types.h"
#include "nat/path.h"
#include "nat/rewrite.h"

#define TCP_FLAGS 13 /* their offset */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04

/* The TCP flags of the packet; 0 for other protocols. */
static __always_inline __u8 tcp_flags(struct xdp_md *ctx, const struct packet *p)
{
	__u8 *tcp = packet_at(ctx, p, p->header);

	if (p->vip.protocol != IPPROTO_TCP || !has_transport(p) ||
	    (void *)(tcp + sizeof(struct tcphdr)) > (void *)(long)ctx->data_end)
		return 0;
	return tcp[TCP_FLAGS];
}

static __always_inline __u8 fin_flag(__u8 flags, __u8 fin)
{
	return flags & TCP_FIN ? fin : 0;
}

static __always_inline int is_closed(__u8 session_flags, __u8 flags)
{
	const __u8 both = NAT_FIN_CLIENT | NAT_FIN_SERVER;

	return flags & TCP_RST || (session_flags & both) == both;
}

/* The state after a packet from the client. */
static __always_inline __u8 after_client(const struct nat_session *s, __u8 flags)
{
	if (is_closed(s->flags | fin_flag(flags, NAT_FIN_CLIENT), flags))
		return NAT_CLOSING;
	return s->state == NAT_ANSWERED && !(flags & TCP_SYN) ? NAT_ESTABLISHED : s->state;
}

/* The state after a packet from the server. */
static __always_inline __u8 after_server(const struct nat_session *s, __u8 flags)
{
	if (is_closed(s->flags | fin_flag(flags, NAT_FIN_SERVER), flags))
		return NAT_CLOSING;
	if (s->state == NAT_OPENING)
		return NAT_ANSWERED;
	return s->state == NAT_ONE_WAY ? NAT_TWO_WAY : s->state;
}

/*
 * Updates the session of a client's packet, with backend `b`. Returns 0, or -1 if another session
 * has the port: the server's entry of this session was evicted and the port allocated again.
 */
static __always_inline int follow_client(struct xdp_md *ctx, const struct packet *p,
					 struct nat_session *s, const struct backend *b, __u32 now)
{
	__u8 flags = tcp_flags(ctx, p), state = after_client(s, flags);
	__u8 fin = fin_flag(flags, NAT_FIN_CLIENT) & ~s->flags;
	int rerouted = is_rerouted(ctx, p, s);

	if (tracing || (state == s->state && !fin && !rerouted && now - s->seen <= NAT_TOUCH))
		return 0;
	s->state = state;
	s->flags |= fin;
	s->seen = now;
	if (rerouted)
		read_path(ctx, p, s);
	return sync_session(
		reply_key(b->remote, s->server_port, s->snat, s->snat_port, s->protocol), s);
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
	__u32 pad;
};

/* Finds the session of a packet from a server. Returns 0, or -1 if it belongs to none. */
static __always_inline int find_server_reply(const struct packet *p, struct server_reply *a)
{
	struct nat_session *s = reply_session(p);
	struct service *service;
	struct backend *b;
	__u32 number;

	if (!s)
		return -1;
	number = s->service;
	service = bpf_map_lookup_elem(&services, &number);
	a->vip = bpf_map_lookup_elem(&service_vips, &number);
	if (!service || !a->vip || !is_live(s, service->nat_idle, nat_time()))
		return -1;
	b = session_backend(active_view(service), s->backend);
	if (!b || !same_address(b->remote, p->source))
		return -1;
	a->session = s;
	a->key = packet_reply_key(p);
	a->view_flags = active_view(service)->flags;
	return 0;
}

/*
 * Updates the session of a server's packet with these TCP flags. Returns -1 if the client has a new
 * session: this one's entry is deleted, and the kernel refuses the packet.
 */
static __always_inline int follow_server(const struct server_reply *a, __u8 flags)
{
	struct nat_session *s = a->session;
	__u8 state = after_server(s, flags), fin = fin_flag(flags, NAT_FIN_SERVER) & ~s->flags;
	__u32 now = nat_time();

	if (tracing || (state == s->state && !fin && now - s->seen <= NAT_TOUCH))
		return 0;
	if (a->view_flags & VIEW_PASSIVE && s->state == NAT_OPENING && flags & TCP_RST)
		report_refusal(s);
	s->state = state;
	s->flags |= fin;
	s->seen = now;
	if (!sync_session(session_client_key(s, a->vip), s))
		return 0;
	bpf_map_delete_elem(&nat_sessions, &a->key);
	return -1;
}

/* The translation of a server's packet: from the VIP to the client. */
static __always_inline void to_client(const struct server_reply *a, struct translation *to)
{
	__builtin_memcpy(to->source, a->vip->address, sizeof(to->source));
	__builtin_memcpy(to->destination, a->session->client, sizeof(to->destination));
	to->source_port = a->vip->port;
	to->port = a->session->client_port;
}
