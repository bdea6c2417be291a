// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The balancer: parse, one look-up for the VIP, one ring slot, one backend, rewrite, transmit.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "access.h"
#include "echo.h"
#include "encap.h"
#include "flow.h"
#include "hash.h"
#include "limit.h"
#include "maps.h"
#include "member.h"
#include "nat.h"
#include "overlay.h"
#include "parse.h"
#include "quic.h"
#include "ring.h"
#include "stats.h"
#include "toobig.h"
#include "trace.h"
#include "types.h"
#include "unavailable.h"
#include "vip.h"

/* No service's packet, which a ping of its address is neither, nor a server's that NAT sends back. */
static __always_inline int unserved(struct xdp_md *ctx, const struct packet *p)
{
	if (p->vip.protocol == IPPROTO_ICMP || p->vip.protocol == IPPROTO_ICMPV6)
		return conclude(answer_echo(ctx, p));
	if (feature_nat)
		return nat_server(ctx, p);
	return leave(COUNTER_PASS_NOT_VIP, XDP_PASS);
}

SEC("xdp")
int balance(struct xdp_md *ctx)
{
	__u64 bytes = ctx->data_end - ctx->data;
	struct packet packet = {};
	struct service *service;
	struct backend *backend = NULL;
	struct view *view;
	enum counter exit;
	__u32 number, active;
	__u64 hash;

	exit = parse(ctx, &packet);
	if (feature_member && may_be_tunnel(exit, &packet)) {
		if (end_tunnel(ctx))
			return leave(COUNTER_PASS_BALANCED, XDP_PASS);
	}
	if (feature_overlay && exit == COUNTER_COUNT && is_overlay(&packet))
		exit = parse_overlay(ctx, &packet);
	if (exit != COUNTER_COUNT)
		return conclude(exit);
	hash = vip_hash(&packet);
	number = service_number(&packet, hash);
	if (number == VIP_NEVER) {
		trace_packet(&packet);
		return unserved(ctx, &packet);
	}
	service = bpf_map_lookup_elem(&services, &number);
	if (!service)
		return leave(COUNTER_DROP_STATE, XDP_DROP);
	active = *(volatile __u32 *)&service->active & 1;
	view = &service->view[active];
	trace_service(&packet, view, number);
	if (feature_member && view->flags & VIEW_SHARED && is_balanced(ctx))
		return leave(COUNTER_PASS_BALANCED, XDP_PASS);
	if (feature_sources && view->flags & VIEW_SOURCES &&
	    !source_allowed(&packet, service->sources[active]))
		return leave(COUNTER_DROP_SOURCE_DENIED, XDP_DROP);
	/* A traced packet takes nothing out of what live packets may. */
	if (feature_limits && !tracing && view->flags & VIEW_LIMITS && packet.phase != PHASE_OPEN &&
	    !packet.quoted) {
		exit = limit_new_flow(&packet, service, number);
		if (exit != COUNTER_COUNT)
			return leave(exit, XDP_DROP);
	}
	if (feature_nat && view->flags & VIEW_NAT) {
		packet.routed = feature_dnat && view->flags & VIEW_DNAT;
		return nat_client(ctx, &packet, service, number, bytes);
	}
	hash = flow_hash(&packet, hash, view->flags);
	if (feature_quic && view->flags & VIEW_QUIC && has_transport(&packet))
		backend = quic_backend(ctx, &packet, view, &service->quic, number);
	if (!backend && view->ring_size)
		backend = flow_backend(&packet, view, hash, number);
	if (!backend)
		return conclude(refuse_flow(ctx, &packet, view->flags));
	exit = encap(ctx, &packet, backend, hash);
	if (exit == COUNTER_DROP_TOO_BIG)
		exit = answer_too_big(ctx, &packet, backend);
	/* From a balancer, although the agent hasn't heard of its MAC address yet. */
	if (feature_member && exit == COUNTER_DROP_LOOP && view->flags & VIEW_SHARED)
		exit = COUNTER_PASS_BALANCED;
	if (!is_forward(exit))
		return conclude(exit);
	count_backend(backend->stats, bytes);
	if (packet.phase == PHASE_OPENING)
		count_new_flow(backend->stats);
	if (feature_member && exit == COUNTER_FORWARD_SELF)
		return leave(exit, XDP_PASS);
	return leave(exit, transmit(ctx, backend->ifindex));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
