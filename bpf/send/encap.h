/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Encapsulation: from a packet and its backend to the frame that is sent. Each mode moves the start
 * of the frame once and writes all headers in front of the client's IP packet, which isn't
 * modified.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include "core/address.h"
#include "core/config.h"
#include "core/header.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "send/link.h"
#include "send/outer.h"
#include "send/segment.h"

/* L2 DSR: only the link-layer header changes. */
static __always_inline enum counter forward_l2dsr(struct xdp_md *ctx, const struct packet *p,
						  const struct backend *b, const struct egress *out)
{
	if (returns_to_sender(ctx, p, b, out))
		return COUNTER_DROP_LOOP;
	return write_link(ctx, p, b, out, p->proto, 0) ? COUNTER_FORWARD_L2DSR
						       : COUNTER_DROP_HEADROOM;
}

/* IP in IP (RFC 2003, RFC 2473, RFC 4213). */
static __always_inline enum counter forward_ipip(struct xdp_md *ctx, const struct packet *p,
						 const struct backend *b, const struct egress *out,
						 __u64 hash)
{
	return write_outer(ctx, p, b, out, hash, ip_protocol(p), 0) ? COUNTER_FORWARD_IPIP
								    : COUNTER_DROP_HEADROOM;
}

/* Generic UDP Encapsulation, in the form of Linux's fou module. */
static __noinline enum counter forward_gue(struct xdp_md *ctx, const struct packet *p,
					   const struct backend *b, const struct egress *out,
					   __u64 hash)
{
	struct gue_header *gue;
	struct udphdr *udp = write_udp(ctx, p, b, out, hash, GUE_PORT, sizeof(*gue));

	if (!udp)
		return COUNTER_DROP_HEADROOM;
	gue = (void *)(udp + 1);
	gue->form = 0;
	gue->proto = ip_protocol(p);
	gue->flags = 0;
	finish_udp(ctx, p, b, out, udp, sizeof(*gue));
	return COUNTER_FORWARD_GUE;
}

/*
 * Writes the frame for the backend. Returns a FORWARD exit, or the exit of a packet that can't be
 * sent.
 */
static __always_inline enum counter encap(struct xdp_md *ctx, const struct packet *p,
					  const struct backend *b, const struct egress *out,
					  __u64 hash)
{
	if (feature_peers && b->flags & BACKEND_LOCAL)
		return COUNTER_FORWARD_LOCAL;
	if (is_other_host(ctx, p, out))
		return COUNTER_PASS_OTHER_HOST;
	if (p->length > out->mtu)
		return COUNTER_DROP_TOO_BIG;
	if (feature_l2dsr && out->forward == FORWARD_L2DSR)
		return forward_l2dsr(ctx, p, b, out);
	if (feature_ipip && out->forward == FORWARD_IPIP)
		return forward_ipip(ctx, p, b, out, hash);
	if (feature_gue && out->forward == FORWARD_GUE)
		return forward_gue(ctx, p, b, out, hash);
	if (feature_vxlan && out->forward == FORWARD_VXLAN)
		return forward_vxlan(ctx, p, b, out, hash);
	if (feature_geneve && out->forward == FORWARD_GENEVE)
		return forward_geneve(ctx, p, b, out, hash);
	return COUNTER_DROP_INTERNAL_ERROR;
}
