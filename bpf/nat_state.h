/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What packets make of their sessions. TCP is followed just far enough to know how long a silent
 * session is kept (RFC 5382, section 5): a connection isn't established before the client has gone on
 * after the server's answer, so that a flood of SYNs leaves short-lived sessions only.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "config.h"
#include "maps.h"
#include "nat_rewrite.h"
#include "nat_session.h"
#include "packet.h"
#include "types.h"

#define TCP_FLAGS 13 /* their offset */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04

/* The flags of a TCP segment; 0 of anything else. */
static __always_inline __u8 tcp_flags(struct xdp_md *ctx, const struct packet *p)
{
	__u8 *tcp = packet_at(ctx, p, p->header);

	if (p->vip.protocol != IPPROTO_TCP || !has_transport(p) ||
	    (void *)(tcp + sizeof(struct tcphdr)) > (void *)(long)ctx->data_end)
		return 0;
	return tcp[TCP_FLAGS];
}

static __always_inline __u8 fins(__u8 flags, __u8 fin)
{
	return flags & TCP_FIN ? fin : 0;
}

static __always_inline int is_closed(__u8 session_flags, __u8 flags)
{
	const __u8 both = NAT_FIN_CLIENT | NAT_FIN_SERVER;

	return flags & TCP_RST || (session_flags & both) == both;
}

/* The state that follows from a client's packet. */
static __always_inline __u8 after_client(const struct nat_session *s, __u8 flags)
{
	if (is_closed(s->flags | fins(flags, NAT_FIN_CLIENT), flags))
		return NAT_CLOSING;
	return s->state == NAT_ANSWERED && !(flags & TCP_SYN) ? NAT_ESTABLISHED : s->state;
}

/* The same for a server's. */
static __always_inline __u8 after_server(const struct nat_session *s, __u8 flags)
{
	if (is_closed(s->flags | fins(flags, NAT_FIN_SERVER), flags))
		return NAT_CLOSING;
	if (s->state == NAT_OPENING)
		return NAT_ANSWERED;
	return s->state == NAT_ONE_WAY ? NAT_TWO_WAY : s->state;
}

/* The way by which a client's packet came, so that answers take it back. */
static __always_inline int read_path(struct xdp_md *ctx, const struct packet *p,
				     struct nat_session *s)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return -1;
	__builtin_memcpy(s->router, eth->h_source, ETH_ALEN);
	__builtin_memcpy(s->own, eth->h_dest, ETH_ALEN);
	s->vlan = bpf_ntohs(p->tci) & VLAN_ID_MASK;
	s->ifindex = ctx->ingress_ifindex;
	return 0;
}

/* Whether a client's packet came another way than those before. */
static __always_inline int is_rerouted(struct xdp_md *ctx, const struct packet *p,
				       const struct nat_session *s)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	const __u16 *x = (const __u16 *)s->router, *y;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	y = (const __u16 *)eth->h_source;
	return x[0] != y[0] || x[1] != y[1] || x[2] != y[2] ||
	       s->vlan != (bpf_ntohs(p->tci) & VLAN_ID_MASK) || s->ifindex != ctx->ingress_ifindex;
}

/*
 * A client's packet of a session with backend `b`. Returns 0, or -1 if the session's port is another's
 * by now: its entry for the server was evicted, and the port handed out again.
 */
static __always_inline int follow_client(struct xdp_md *ctx, const struct packet *p,
					 struct nat_session *s, const struct backend *b, __u32 now)
{
	__u8 flags = tcp_flags(ctx, p), state = after_client(s, flags);
	__u8 fin = fins(flags, NAT_FIN_CLIENT) & ~s->flags;
	int rerouted = is_rerouted(ctx, p, s);

	if (tracing || (state == s->state && !fin && !rerouted && now - s->seen <= NAT_TOUCH))
		return 0;
	s->state = state;
	s->flags |= fin;
	s->seen = now;
	if (rerouted)
		read_path(ctx, p, s);
	return mirror_session(
		reply_key(b->remote, s->server_port, s->snat, s->snat_port, s->protocol), s);
}

/* A refused connection, for the agent. If nobody reads, notes are lost. */
static __always_inline void note_refusal(const struct nat_session *s)
{
	struct nat_refusal refusal = { .service = s->service, .backend = s->backend };

	bpf_ringbuf_output(&nat_refusals, &refusal, sizeof(refusal), 0);
}

/* A server's packet: its session, and what is known of the service. */
struct answered {
	struct nat_session *session;
	const struct vip_key *vip;
	__u64 key; /* of the session's entry */
	__u32 view_flags; /* VIEW_* */
	__u32 pad;
};

/* Finds the session of a packet that may come from a server. Returns 0, or -1 if it belongs to none. */
static __always_inline int find_answered(const struct packet *p, struct answered *a)
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
 * follow_client for a server's packet with these TCP flags. If the client has another session by now, this
 * one is over: its entry goes, and the server hears from the kernel that nobody is there.
 */
static __always_inline int follow_server(const struct answered *a, __u8 flags)
{
	struct nat_session *s = a->session;
	__u8 state = after_server(s, flags), fin = fins(flags, NAT_FIN_SERVER) & ~s->flags;
	__u32 now = nat_time();

	if (tracing || (state == s->state && !fin && now - s->seen <= NAT_TOUCH))
		return 0;
	if (a->view_flags & VIEW_PASSIVE && s->state == NAT_OPENING && flags & TCP_RST)
		note_refusal(s);
	s->state = state;
	s->flags |= fin;
	s->seen = now;
	if (!mirror_session(session_client_key(s, a->vip), s))
		return 0;
	bpf_map_delete_elem(&nat_sessions, &a->key);
	return -1;
}

/* What a server's packet becomes: from the VIP to the client. */
static __always_inline void to_client(const struct answered *a, struct translation *to)
{
	__builtin_memcpy(to->source, a->vip->address, sizeof(to->source));
	__builtin_memcpy(to->destination, a->session->client, sizeof(to->destination));
	to->source_port = a->vip->port;
	to->port = a->session->client_port;
}
