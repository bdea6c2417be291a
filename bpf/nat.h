/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NAT: both addresses and ports of a packet are written anew, in both directions. The server sees a
 * connection from this node and answers it, so it needs to know nothing, and may be wherever the
 * node's routes lead. The price is a session for each flow, which other modes don't have.
 *
 *   client -> VIP           becomes     SNAT address -> backend
 *   backend -> SNAT address becomes     VIP -> client
 */
#pragma once

#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>

#include "ask.h"
#include "config.h"
#include "link.h"
#include "maps.h"
#include "nat_begin.h"
#include "nat_icmp.h"
#include "nat_rewrite.h"
#include "nat_route.h"
#include "nat_session.h"
#include "nat_state.h"
#include "packet.h"
#include "relay.h"
#include "stats.h"
#include "toobig.h"
#include "trace.h"
#include "types.h"

/* The backend of a client's session that goes on, or NULL: then it is a new one's, or nobody's. */
static __always_inline struct backend *client_backend(struct xdp_md *ctx, const struct packet *p,
						      const struct service *service,
						      struct nat_session *s)
{
	__u32 now = nat_time();
	struct backend *b;

	if (!s || !is_live(s, service->nat_idle, now))
		return NULL;
	if (p->phase == PHASE_OPENING && s->state == NAT_CLOSING)
		return NULL;
	/* With DNAT the client may have begun anew through another node. */
	if (feature_dnat && active_view(service)->flags & VIEW_DNAT && is_closing(s, now))
		return NULL;
	b = session_backend(active_view(service), s->backend);
	if (!b || !(b->flags & BACKEND_USABLE))
		return NULL;
	/* One that is relayed to by now keeps the sessions by which it answers here. */
	if (b->flags & BACKEND_RELAY && kept_source(s))
		return NULL;
	if (begins_elsewhere(p, active_view(service), s, b))
		return NULL;
	if (!p->quoted && follow_client(ctx, p, s, b, now))
		return NULL;
	trace_session(s);
	return b;
}

/*
 * Says what to do with a packet to a backend that XDP can't send to: a tc program reads it (struct
 * nat_handover). Returns the exit.
 */
static __always_inline enum counter hand_over(struct xdp_md *ctx, const struct backend *b)
{
	struct nat_handover *handover;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*handover)))
		return COUNTER_DROP_HEADROOM;
	handover = (void *)(long)ctx->data_meta;
	if ((void *)(handover + 1) > (void *)(long)ctx->data)
		return COUNTER_DROP_HEADROOM;
	handover->magic = NAT_HANDOVER_MAGIC;
	handover->ifindex = b->ifindex;
	return COUNTER_FORWARD_NAT_HANDOVER;
}

/* Makes the packet the one that the backend gets. Returns the exit. */
static __always_inline enum counter write_to_server(struct xdp_md *ctx, const struct packet *p,
						    const struct nat_session *s,
						    const struct backend *b)
{
	enum counter exit = COUNTER_COUNT;
	void *ip;

	if (p->quoted) {
		struct translation to = { .source_port = s->snat_port, .port = s->server_port };

		__builtin_memcpy(to.source, s->snat, sizeof(to.source));
		__builtin_memcpy(to.destination, b->remote, sizeof(to.destination));
		exit = translate_error(ctx, p, &to);
		if (exit != COUNTER_COUNT)
			return exit;
	}
	if (b->flags & BACKEND_HANDOVER)
		ip = write_frame(ctx, p, s->own, s->router, 0, p->proto, 0);
	else
		ip = write_link(ctx, p, b, p->proto, 0);
	if (!ip)
		return COUNTER_DROP_HEADROOM;
	if (!p->quoted)
		exit = translate(ctx, p, ip, s->snat, b->remote, s->snat_port, s->server_port);
	if (exit != COUNTER_COUNT)
		return exit;
	return b->flags & BACKEND_HANDOVER ? hand_over(ctx, b) : COUNTER_FORWARD_NAT;
}

/*
 * A packet of `bytes` for the service of that number, or, if it is 0, of the fresh session. Returns the
 * verdict, or NAT_UNKNOWN for a packet of no session that goes on.
 */
__noinline int continue_session(struct xdp_md *ctx, const struct packet *p,
				const struct service *service, __u32 number, __u32 bytes)
{
	struct nat_session *s;
	struct backend *b;
	enum counter exit;

	if (!feature_nat || !p || !service)
		return leave(COUNTER_DROP_STATE, XDP_DROP);
	if (number) {
		s = client_session(p, flow_hash(p, vip_hash(p), 0), number);
		b = client_backend(ctx, p, service, s);
		if (!b)
			return NAT_UNKNOWN;
	} else {
		s = fresh_session();
		b = s ? session_backend(active_view(service), s->backend) : NULL;
		if (!b)
			return leave(COUNTER_DROP_STATE, XDP_DROP);
		count_new_flow(b->stats);
	}
	if (is_for_others(ctx, p, b))
		return leave(COUNTER_PASS_OTHER_HOST, XDP_PASS);
	if (p->length > b->mtu)
		return conclude(answer_too_big(ctx, p, b));
	exit = write_to_server(ctx, p, s, b);
	if (!is_forward(exit))
		return conclude(exit);
	count_backend(b->stats, bytes);
	if (exit == COUNTER_FORWARD_NAT_HANDOVER)
		return leave(exit, XDP_PASS);
	return leave(exit, transmit(ctx, b->ifindex));
}

/* A packet of `bytes` for a service with VIEW_NAT. Returns the verdict. */
static __always_inline int nat_client(struct xdp_md *ctx, const struct packet *p,
				      const struct service *service, __u32 number, __u32 bytes)
{
	int verdict = continue_session(ctx, p, service, number, bytes);
	enum counter exit;

	if (verdict != NAT_UNKNOWN)
		return verdict;
	if (feature_dnat && active_view(service)->flags & VIEW_DNAT) {
		verdict = relay_flow(ctx, p, service, number, bytes);
		if (verdict == NAT_ASK)
			return ask_around(ctx, p, service);
		if (verdict != NAT_UNKNOWN)
			return verdict;
	}
	exit = begin_session(ctx, p, service, number);
	if (exit != COUNTER_COUNT)
		return conclude(exit);
	return continue_session(ctx, p, service, 0, bytes);
}

/*
 * The way of a packet to the client. Routes count with DNAT, if they lead out of an interface that XDP is
 * known to send by, and the neighbour is known.
 */
static __always_inline void find_way(struct xdp_md *ctx, const struct packet *p,
				     const struct answered *a, struct way *way)
{
	struct bpf_fib_lookup fib = {};

	way_back(a->session, way);
	if (!feature_dnat || !(a->view_flags & VIEW_DNAT) || way->vlan || p->tagged)
		return;
	if (find_route(ctx, a->vip, a->session->client, a->session->client_port,
		       ctx->ingress_ifindex, &fib) != BPF_FIB_LKUP_RET_SUCCESS)
		return;
	if (fib.ifindex != ctx->ingress_ifindex && fib.ifindex != way->ifindex)
		return;
	__builtin_memcpy(way->destination, fib.dmac, ETH_ALEN);
	__builtin_memcpy(way->source, fib.smac, ETH_ALEN);
	way->ifindex = fib.ifindex;
}

/* Makes the packet the one that the client gets. Returns COUNTER_COUNT, or the exit. */
static __always_inline enum counter write_to_client(struct xdp_md *ctx, const struct packet *p,
						    const struct answered *a, const struct way *way)
{
	const struct nat_session *s = a->session;
	const struct vip_key *vip = a->vip;
	enum counter exit;
	void *ip;

	if (p->quoted) {
		struct translation to = {};

		to_client(a, &to);
		exit = translate_error(ctx, p, &to);
		if (exit != COUNTER_COUNT)
			return exit;
	}
	ip = write_frame(ctx, p, way->destination, way->source, way->vlan, p->proto, 0);
	if (!ip)
		return COUNTER_DROP_HEADROOM;
	if (p->quoted)
		return COUNTER_COUNT;
	return translate(ctx, p, ip, vip->address, s->client, vip->port, s->client_port);
}

/*
 * The MTU of an interface, if the packet is longer, else 0. What came in by the same interface fits, and
 * what is as short as any link can carry does too.
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

/* A packet that is no service's: if it is of a session, then from its server. Returns the verdict. */
__noinline int nat_server(struct xdp_md *ctx, const struct packet *p)
{
	struct answered a = {};
	struct way way = {};
	enum counter exit;
	__u32 mtu;

	if (!feature_nat || !p || find_answered(p, &a))
		return leave(COUNTER_PASS_NOT_VIP, XDP_PASS);
	if (!p->quoted && follow_server(&a, tcp_flags(ctx, p)))
		return leave(COUNTER_PASS_NOT_VIP, XDP_PASS);
	find_way(ctx, p, &a, &way);
	mtu = exceeded_mtu(ctx, p, way.ifindex);
	if (mtu)
		return conclude(answer_mtu(ctx, p, mtu));
	exit = write_to_client(ctx, p, &a, &way);
	if (exit != COUNTER_COUNT)
		return conclude(exit);
	return leave(COUNTER_FORWARD_NAT_REPLY, transmit(ctx, way.ifindex));
}
