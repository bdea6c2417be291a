/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Parsing of TCP (RFC 9293) and UDP (RFC 768).
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "core/exit.h"
#include "core/packet.h"

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

/*
 * Parses the transport header at `start`, which is at offset `header` in the IP packet. Returns
 * CONTINUE if the packet may be for a VIP, else the exit. The payload may be in other
 * fragments.
 */
static __always_inline enum counter parse_ports(void *start, void *end, __u32 header, __u8 protocol,
						struct packet *p)
{
	__be16 *port = start;
	struct tcphdr *tcp = start;
	__u32 size = sizeof(struct udphdr);

	if ((void *)(port + 2) > end)
		return COUNTER_PASS_TRUNCATED;
	p->vip.protocol = protocol;
	p->source_port = port[0];
	p->vip.port = port[1];
	p->header = header;
	p->phase = PHASE_DATAGRAM;
	if (protocol == IPPROTO_TCP) {
		if ((void *)(tcp + 1) > end)
			return COUNTER_PASS_TRUNCATED;
		p->phase = tcp->syn && !tcp->ack ? PHASE_OPENING : PHASE_OPEN;
		p->seq = tcp->seq;
		p->flags = ((__u8 *)tcp)[TCP_FLAGS];
		p->tcp_words = tcp->doff;
		size = sizeof(*tcp);
	}
	if (start + size > end || p->length < header + size)
		return COUNTER_PASS_TRUNCATED;
	return CONTINUE;
}
