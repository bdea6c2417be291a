// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The balancer: parse, look up the VIP, pick a backend, encapsulate, transmit.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "answer/echo.h"
#include "answer/error.h"
#include "answer/refuse.h"
#include "answer/unserved.h"
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
static __always_inline int no_service(struct xdp_md *ctx, const struct packet *p)
{
	enum counter exit = COUNTER_PASS_NOT_VIP;
	int verdict;

	trace_packet(p);
	if (p->vip.protocol == IPPROTO_ICMP || p->vip.protocol == IPPROTO_ICMPV6) {
		exit = answer_echo(ctx, p);
	} else if (feature_nat) {
		verdict = nat_from_server(ctx, p);
		if (verdict != NAT_UNKNOWN)
			return verdict;
	}
	return exit_default(unserved(ctx, p, exit));
}

/* Sends the packet to its backend. Returns the verdict. */
static __always_inline int forward(struct xdp_md *ctx, const struct packet *p,
				   const struct view *view, const struct backend *b, __u64 hash,
				   __u64 bytes)
{
	enum counter exit = encap(ctx, p, b, hash);

	if (exit == COUNTER_DROP_TOO_BIG)
		exit = answer_too_big(ctx, p, b);
	/* The frame is from a peer whose MAC address isn't in `peers` yet. */
	if (feature_peers && exit == COUNTER_DROP_LOOP && view->flags & VIEW_SHARED)
		exit = COUNTER_PASS_FROM_PEER;
	if (!is_forward(exit))
		return exit_default(exit);
	count_backend(b->stats, bytes);
	if (p->phase == PHASE_OPENING)
		count_new_flow(b->stats);
	if (feature_peers && exit == COUNTER_FORWARD_LOCAL)
		return exit_with(exit, XDP_PASS);
	return exit_with(exit, transmit(ctx, b->ifindex));
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
		ended = decap_from_peer(ctx);
		if (ended != COUNTER_COUNT)
			return exit_default(ended);
	}
	if (feature_overlay && exit == COUNTER_COUNT && is_overlay(&packet))
		exit = parse_overlay(ctx, &packet);
	if (exit != COUNTER_COUNT)
		return exit_default(unserved(ctx, &packet, exit));
	hash = vip_hash(&packet);
	number = service_number(&packet, hash);
	if (number == VIP_UNUSED)
		return no_service(ctx, &packet);
	service = bpf_map_lookup_elem(&services, &number);
	if (!service)
		return exit_with(COUNTER_DROP_INTERNAL_ERROR, XDP_DROP);
	active = *(volatile __u32 *)&service->active & 1;
	view = &service->view[active];
	trace_service(&packet, view, number);
	if (feature_peers && view->flags & VIEW_SHARED && is_from_peer(ctx))
		return exit_with(COUNTER_PASS_FROM_PEER, XDP_PASS);
	exit = admit(&packet, service, view, active, number);
	if (exit != COUNTER_COUNT)
		return exit_with(exit, XDP_DROP);
	if (feature_nat && view->flags & VIEW_NAT) {
		packet.routed = feature_dsr && view->flags & VIEW_DSR;
		return nat_from_client(ctx, &packet, service, number, bytes);
	}
	hash = flow_hash(&packet, hash, view->flags);
	backend = pick_backend(ctx, &packet, service, view, hash, number);
	if (!backend)
		return exit_default(refuse_flow(ctx, &packet, view->flags));
	return forward(ctx, &packet, view, backend, hash, bytes);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
