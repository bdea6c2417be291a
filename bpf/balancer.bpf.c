// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The balancer: parse, look up the VIP, pick a backend, encapsulate, transmit.
 */
#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_helpers.h>

#include "answer/echo.h"
#include "answer/error.h"
#include "answer/refuse.h"
#include "answer/unserved.h"
#include "core/address.h"
#include "core/hash.h"
#include "core/maps.h"
#include "core/stats.h"
#include "core/types.h"
#include "core/vip.h"
#include "parse/overlay.h"
#include "parse/parse.h"
#include "parse/peer.h"
#include "pick/admit.h"
#include "pick/flow.h"
#include "pick/trace.h"
#include "send/encap.h"
#include "translate/translate.h"

/* A packet that matches no service: VIP echo requests and NAT return traffic are handled here. */
static __always_inline int no_service(struct xdp_md *ctx, struct packet *p)
{
	enum counter exit = COUNTER_PASS_NOT_VIP;
	int result;

	trace_packet(p);
	if (p->vip.protocol == IPPROTO_ICMP || p->vip.protocol == IPPROTO_ICMPV6) {
		exit = answer_echo(ctx, p);
	} else if (feature_nat) {
		result = nat_from_server(ctx, p);
		if (is_verdict(result))
			return result;
	}
	return exit_default(unserved(ctx, p, exit));
}

/* Whether the service's list of sources denies the client. */
static __always_inline int client_denied(const struct packet *p, const struct service *service,
					 const struct view *view, __u32 active)
{
	return feature_sources && view->flags & VIEW_SOURCES &&
	       !source_allowed(p, service->sources[active]);
}

/*
 * Whether tunnels of peers may contain the packet. Returns COUNTER_PASS_FROM_PEER, the exit if it
 * is dropped, or CONTINUE if it isn't for such a service.
 */
static __always_inline enum counter admit_inner(const struct packet *inner)
{
	struct service *service;
	__u32 number, active;
	struct view *view;
	__u32 *flags;

	if (inner->fragment == FRAGMENT_LATER) {
		flags = vip_address(inner);
		return flags && *flags & ADDRESS_TUNNELLED ? COUNTER_PASS_FROM_PEER : CONTINUE;
	}
	number = service_number(inner);
	service = element(services, number, service_count);
	if (number == VIP_UNUSED || !service)
		return CONTINUE;
	active = *(volatile __u16 *)&service->active & 1;
	view = &service->view[active];
	if (!(view->flags & VIEW_TUNNEL_END))
		return CONTINUE;
	return client_denied(inner, service, view, active) ? COUNTER_DROP_SOURCE_DENIED
							   : COUNTER_PASS_FROM_PEER;
}

/*
 * Decapsulates a packet from a peer. Returns COUNTER_PASS_FROM_PEER, the exit if it is dropped, or
 * CONTINUE if it isn't one.
 */
__noinline enum counter end_peer_tunnel(struct xdp_md *ctx)
{
	struct packet inner = {};
	struct tunnel t = {};
	enum counter exit;

	if (!read_peer_tunnel(ctx, &t) || parse_inner(ctx, &t, &inner) != CONTINUE)
		return CONTINUE;
	exit = admit_inner(&inner);
	if (exit != COUNTER_PASS_FROM_PEER)
		return exit;
	switch (decap(ctx, &t)) {
	case DECAP_DONE:
		return COUNTER_PASS_FROM_PEER;
	case DECAP_CONGESTED:
		return COUNTER_DROP_CONGESTED;
	default:
		return CONTINUE;
	}
}

/* Sends the packet to its backend. Returns the verdict. */
static __always_inline int forward(struct xdp_md *ctx, struct packet *p, const struct view *view,
				   const struct backend *b, __u64 hash, __u64 bytes)
{
	const struct egress *out = egress_of(b);
	enum counter exit;

	if (!out)
		return exit_with(COUNTER_DROP_INTERNAL_ERROR, XDP_DROP);
	/* The kernel decapsulates what it gets. */
	if (feature_overlay && p->overlay && !(b->flags & BACKEND_LOCAL) && merge_outer_ecn(ctx, p))
		return exit_with(COUNTER_DROP_CONGESTED, XDP_DROP);
	exit = encap(ctx, p, b, out, hash);
	if (exit == COUNTER_DROP_TOO_BIG)
		exit = answer_mtu(ctx, p, out->mtu);
	/* The frame is from a peer whose MAC address isn't in `peers` yet. */
	if (feature_peers && exit == COUNTER_DROP_LOOP && view->flags & VIEW_SHARED)
		exit = COUNTER_PASS_FROM_PEER;
	if (!is_forward(exit))
		return exit_default(exit);
	count_backend(counter_index(view, b), bytes);
	if (p->phase == PHASE_OPENING)
		count_new_flow(counter_index(view, b));
	if (feature_peers && exit == COUNTER_FORWARD_LOCAL)
		return exit_with(exit, XDP_PASS);
	return exit_with(exit, transmit(ctx, out->ifindex));
}

SEC("xdp")
int balance(struct xdp_md *ctx)
{
	__u64 bytes = ctx->data_end - ctx->data, hash;
	struct packet packet = {};
	struct service *service;
	struct backend *backend;
	__u32 number, active;
	enum counter exit, ended;
	struct view *view;

	exit = parse(ctx, &packet);
	if (feature_peers && may_be_peer_tunnel(exit, &packet)) {
		ended = end_peer_tunnel(ctx);
		if (ended != CONTINUE)
			return exit_default(ended);
	}
	if (feature_overlay && exit == CONTINUE && is_overlay(&packet))
		exit = parse_overlay(ctx, &packet);
	if (exit != CONTINUE)
		return exit_default(unserved(ctx, &packet, exit));
	number = service_number(&packet);
	if (number == VIP_UNUSED)
		return no_service(ctx, &packet);
	service = element(services, number, service_count);
	if (!service)
		return exit_with(COUNTER_DROP_INTERNAL_ERROR, XDP_DROP);
	active = *(volatile __u16 *)&service->active & 1;
	view = &service->view[active];
	packet.view = active;
	trace_service(&packet, view, number);
	if (feature_peers && view->flags & VIEW_SHARED && is_from_peer(ctx, FORWARD_L2DSR))
		return exit_default(client_denied(&packet, service, view, active)
					    ? COUNTER_DROP_SOURCE_DENIED
					    : COUNTER_PASS_FROM_PEER);
	exit = admit(ctx, &packet, service, view, active, number);
	if (exit != CONTINUE)
		return exit_with(exit, XDP_DROP);
	if (feature_nat && view->flags & VIEW_NAT) {
		packet.routed = feature_dsr && view->flags & VIEW_DSR;
		return nat_from_client(ctx, &packet, service, number, bytes);
	}
	hash = flow_hash(&packet, view->flags);
	backend = pick_backend(ctx, &packet, service, view, hash, number);
	if (!backend)
		return exit_default(refuse_flow(ctx, &packet, view->flags));
	return forward(ctx, &packet, view, backend, hash, bytes);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
