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

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "link.h"
#include "maps.h"
#include "nat_icmp.h"
#include "nat_port.h"
#include "nat_rewrite.h"
#include "nat_session.h"
#include "packet.h"
#include "quic.h"
#include "reset.h"
#include "ring.h"
#include "stats.h"
#include "toobig.h"
#include "trace.h"
#include "transmit.h"
#include "types.h"
#include "unavailable.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04

/* The flags of a TCP segment, or 0. */
static __always_inline __u8 tcp_flags(struct xdp_md *ctx, const struct packet *p)
{
	__u8 *tcp = packet_at(ctx, p, p->header);

	if (p->vip.protocol != IPPROTO_TCP || !has_transport(p) ||
	    (void *)(tcp + sizeof(struct tcphdr)) > (void *)(long)ctx->data_end)
		return 0;
	return tcp[13];
}

/* What a client's packet makes of its session's state. */
static __always_inline __u8 after_client(struct nat_session *s, __u8 flags)
{
	if (flags & TCP_RST)
		return NAT_CLOSING;
	if (flags & TCP_FIN)
		s->flags |= NAT_FIN_CLIENT;
	if (s->flags & NAT_FIN_SERVER && s->flags & NAT_FIN_CLIENT)
		return NAT_CLOSING;
	return s->state == NAT_ANSWERED && !(flags & TCP_SYN) ? NAT_ESTABLISHED : s->state;
}

/* The same for a server's. */
static __always_inline __u8 after_server(struct nat_session *s, __u8 flags)
{
	if (flags & TCP_RST)
		return NAT_CLOSING;
	if (flags & TCP_FIN)
		s->flags |= NAT_FIN_SERVER;
	if (s->flags & NAT_FIN_SERVER && s->flags & NAT_FIN_CLIENT)
		return NAT_CLOSING;
	if (s->state == NAT_OPENING)
		return NAT_ANSWERED;
	return s->state == NAT_ONE_WAY ? NAT_TWO_WAY : s->state;
}
