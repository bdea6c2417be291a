/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NAT: addresses and ports of packets are translated in both directions. The server sees a
 * connection from this node and replies to it, so it needs no configuration and may be anywhere the
 * node has a route to. In return, each flow needs a session.
 *
 *   client -> VIP           becomes     SNAT address -> backend
 *   backend -> SNAT address becomes     VIP -> client
 */
#pragma once

#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>

#include "answer/error.h"
#include "answer/refuse.h"
#include "core/config.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "nat/path.h"
#include "nat/rewrite.h"
#include "nat/session.h"
#include "nat/state.h"
#include "parse/overlay.h"
#include "pick/trace.h"
#include "send/link.h"
#include "translate/begin.h"
#include "translate/icmp.h"
#include "translate/lookup.h"
#include "translate/relay.h"

/*
 * Whether a forged SYN has begun the session: the client's segment doesn't acknowledge the server's
 * SYN. With DSR it may be of a connection that another node knows.
 */
static __always_inline int is_forged(struct xdp_md *ctx, const struct packet *p,
				     const struct nat_session *s)
{
	struct segment t = {};

	if (p->phase != PHASE_OPEN || p->quoted || s->state > NAT_ANSWERED)
		return 0;
	read_segment(ctx, p, &t);
	return t.flags & TCP_ACK && !(t.flags & TCP_RST) && !acks_syn(s, &t);
}

/*
 * The backend of the client's live session. NULL if there is none, or if the packet begins a new
 * one.
 */
static __always_inline struct backend *client_backend(struct xdp_md *ctx, const struct packet *p,
						      const struct service *service,
						      struct nat_session **session)
{
	struct nat_session *s = *session;
	__u32 now = nat_time();
	const __u8 *server;
	struct backend *b;
	int followed;
	__u64 key;

	if (!s || !is_live(s, service->nat_idle, now))
		return NULL;
	if (p->phase == PHASE_OPENING && s->state == NAT_CLOSING)
		return NULL;
	/* With DSR the client may have opened a new connection through another node. */
	if (feature_dsr && packet_view(p, service)->flags & VIEW_DSR && is_closing(s, now))
		return NULL;
	b = session_backend(packet_view(p, service), s->backend);
	if (!b || !(b->flags & BACKEND_USABLE))
		return NULL;
	/* A backend on another node keeps only sessions with SNAT, whose replies arrive here. */
	if (b->flags & BACKEND_RELAY && kept_source(s))
		return NULL;
	if (is_reassigned(p, packet_view(p, service), s, b))
		return NULL;
	if (p->phase == PHASE_OPENING && !p->quoted && s->state != NAT_OPENING &&
	    is_unanswered(s, b))
		return NULL;
	if (feature_dsr && packet_view(p, service)->flags & VIEW_DSR && is_forged(ctx, p, s))
		return NULL;
	if (!p->quoted && !is_steady(ctx, p, s, service->nat_idle, now)) {
		followed = follow_client(ctx, p, s, b, service->nat_idle);
		server = remote_of(b);
		if (followed && server) {
			key = packet_client_key(p, s->service);
			update_entries(followed, key, session_reply_key(s, server));
			s = find_session(key);
		}
		if (followed == SESSION_LOST || !s)
			return NULL;
	}
	trace_session(s);
	*session = s;
	return b;
}

/*
 * Adds the metadata with which a tc program forwards the packet to a backend that XDP can't send
 * to. Returns the exit.
 */
static __always_inline enum counter hand_over(struct xdp_md *ctx, const struct egress *out)
{
	struct nat_handover *handover;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*handover)))
		return COUNTER_DROP_HEADROOM;
	handover = (void *)(long)ctx->data_meta;
	if ((void *)(handover + 1) > (void *)(long)ctx->data)
		return COUNTER_DROP_HEADROOM;
	handover->magic = NAT_HANDOVER_MAGIC;
	handover->ifindex = out->ifindex;
	return COUNTER_FORWARD_NAT_HANDOVER;
}

/* Translates the packet for the backend. Returns the exit. */
static __always_inline enum counter write_to_server(struct xdp_md *ctx, const struct packet *p,
						    const struct nat_session *s,
						    const struct backend *b,
						    const struct egress *out)
{
	enum counter exit = CONTINUE;
	const __u8 *server = remote_of(b);
	void *ip;

	if (!server)
		return COUNTER_DROP_INTERNAL_ERROR;

	if (p->quoted) {
		struct translation to = { .source_port = s->snat_port, .port = s->server_port };

		__builtin_memcpy(to.source, s->snat, sizeof(to.source));
		__builtin_memcpy(to.destination, server, sizeof(to.destination));
		exit = translate_error(ctx, p, &to);
		if (exit != CONTINUE)
			return exit;
	}
	if (b->flags & BACKEND_HANDOVER)
		ip = write_frame(ctx, p, s->local_mac, s->router_mac, 0, p->proto, 0);
	else
		ip = write_link(ctx, p, b, out, p->proto, 0);
	if (!ip)
		return COUNTER_DROP_HEADROOM;
	if (!p->quoted)
		exit = translate(ctx, p, ip, s->snat, server, s->snat_port, s->server_port);
	if (exit != CONTINUE)
		return exit;
	return b->flags & BACKEND_HANDOVER ? hand_over(ctx, out) : COUNTER_FORWARD_NAT;
}

/*
 * Forwards a packet of `bytes` by its session with the service of that number; 0: by the fresh
 * session. Returns the verdict, or NAT_UNKNOWN if there is no live session.
 */
__noinline int continue_session(struct xdp_md *ctx, const struct packet *p,
				const struct service *service, __u32 number, __u32 bytes)
{
	const struct egress *out;
	struct nat_session *s;
	struct backend *b;
	enum counter exit;

	if (!feature_nat || !p || !service)
		return exit_with(COUNTER_DROP_INTERNAL_ERROR, XDP_DROP);
	if (number) {
		s = client_session(p, packet_client_key(p, number), number);
		b = client_backend(ctx, p, service, &s);
		if (!b)
			return NAT_UNKNOWN;
	} else {
		s = fresh_session();
		b = s ? session_backend(packet_view(p, service), s->backend) : NULL;
		if (!b)
			return exit_with(COUNTER_DROP_INTERNAL_ERROR, XDP_DROP);
		count_new_flow(counter_index(packet_view(p, service), b));
	}
	out = egress_of(b);
	if (!out)
		return exit_with(COUNTER_DROP_INTERNAL_ERROR, XDP_DROP);
	if (is_other_host(ctx, p, out))
		return exit_with(COUNTER_PASS_OTHER_HOST, XDP_PASS);
	if (p->length > out->mtu)
		return exit_default(answer_mtu(ctx, p, out->mtu));
	exit = write_to_server(ctx, p, s, b, out);
	if (!is_forward(exit))
		return exit_default(exit);
	count_backend(counter_index(packet_view(p, service), b), bytes);
	if (exit == COUNTER_FORWARD_NAT_HANDOVER)
		return exit_with(exit, XDP_PASS);
	return exit_with(exit, transmit(ctx, out->ifindex));
}

/* Handles a packet of `bytes` for a service with VIEW_NAT. Returns the verdict. */
static __always_inline int nat_from_client(struct xdp_md *ctx, const struct packet *p,
					   const struct service *service, __u32 number, __u32 bytes)
{
	int result = continue_session(ctx, p, service, number, bytes);
	enum counter exit;

	if (is_verdict(result))
		return result;
	if (feature_dsr && packet_view(p, service)->flags & VIEW_DSR) {
		result = relay_flow(ctx, p, service, number, bytes);
		if (is_verdict(result))
			return result;
		if (result == NAT_LOOKUP)
			return forward_lookup(ctx, p, service, number);
	}
	exit = begin_session(ctx, p, service, number);
	if (exit == COUNTER_DROP_NO_BACKEND)
		exit = refuse_flow(ctx, p, packet_view(p, service)->flags);
	if (exit != CONTINUE)
		return exit_default(exit);
	return continue_session(ctx, p, service, 0, bytes);
}

/*
 * The path of a packet to the client. With DSR it is the route, if the neighbour is resolved and
 * the egress interface is one that XDP can send through.
 */
static __always_inline void find_client_path(struct xdp_md *ctx, const struct packet *p,
					     const struct server_reply *a, struct path *path)
{
	struct bpf_fib_lookup fib = {};

	reverse_path(a->session, path);
	if (!feature_dsr || !(a->view_flags & VIEW_DSR) || path->vlan || p->tagged)
		return;
	if (find_client_route(ctx, a->vip, a->session->client, a->session->client_port,
			      ctx->ingress_ifindex, &fib) != BPF_FIB_LKUP_RET_SUCCESS)
		return;
	if (fib.ifindex != ctx->ingress_ifindex && fib.ifindex != path->ifindex)
		return;
	__builtin_memcpy(path->destination, fib.dmac, ETH_ALEN);
	__builtin_memcpy(path->source, fib.smac, ETH_ALEN);
	path->ifindex = fib.ifindex;
}

/* Translates the packet for the client. Returns CONTINUE, or the exit. */
static __always_inline enum counter write_to_client(struct xdp_md *ctx, const struct packet *p,
						    const struct server_reply *a,
						    const struct path *path)
{
	const struct nat_session *s = a->session;
	const struct vip_key *vip = a->vip;
	enum counter exit;
	void *ip;

	if (p->quoted) {
		struct translation to = {};

		to_client(a, &to);
		exit = translate_error(ctx, p, &to);
		if (exit != CONTINUE)
			return exit;
	}
	ip = write_frame(ctx, p, path->destination, path->source, path->vlan, p->proto, 0);
	if (!ip)
		return COUNTER_DROP_HEADROOM;
	if (p->quoted)
		return CONTINUE;
	return translate(ctx, p, ip, vip->address, s->client, vip->port, s->client_port);
}

/*
 * The MTU of an interface if the packet exceeds it, else 0. Packets that arrived through the same
 * interface fit, as do those that fit any link.
 */
static __always_inline __u32 exceeded_mtu(struct xdp_md *ctx, const struct packet *p, __u32 ifindex)
{
	__u32 length = p->length;

	if (ifindex == ctx->ingress_ifindex || length <= IPV6_MIN_MTU)
		return 0;
	if (bpf_check_mtu(ctx, ifindex, &length, 0, 0) != BPF_MTU_CHK_RET_FRAG_NEEDED)
		return 0;
	return length;
}

/*
 * Handles a packet that matches no service; it may be a server's reply. Returns the verdict, or
 * NAT_UNKNOWN.
 */
__noinline int nat_from_server(struct xdp_md *ctx, struct packet *p)
{
	struct server_reply a = {};
	struct segment t = {};
	struct path path = {};
	enum counter exit;
	__u32 mtu;

	if (!feature_nat || !p || find_server_reply(p, &a))
		return NAT_UNKNOWN;
	if (!p->quoted) {
		read_segment(ctx, p, &t);
		if (follow_reply(&a, &t))
			return NAT_UNKNOWN;
	}
	find_client_path(ctx, p, &a, &path);
	mtu = exceeded_mtu(ctx, p, path.ifindex);
	if (mtu)
		return exit_default(answer_mtu(ctx, p, mtu));
	if (feature_overlay && p->overlay && merge_outer_ecn(ctx, p))
		return exit_with(COUNTER_DROP_CONGESTED, XDP_DROP);
	exit = write_to_client(ctx, p, &a, &path);
	if (exit != CONTINUE)
		return exit_default(exit);
	return exit_with(COUNTER_FORWARD_NAT_REPLY, transmit(ctx, path.ifindex));
}
