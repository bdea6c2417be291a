/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The transport headers that services have: TCP (RFC 9293) and UDP (RFC 768).
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "packet.h"
#include "stats.h"

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

/*
 * Ports, from `start`, which is `header` bytes into the IP packet. Returns COUNTER_COUNT if the packet
 * may be a VIP's, else the exit. What follows the header may be in another fragment.
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
		p->closing = tcp->fin | tcp->rst << 1; /* CLOSING_FIN, CLOSING_RST */
		size = sizeof(*tcp);
	}
	if (start + size > end || p->length < header + size)
		return COUNTER_PASS_TRUNCATED;
	return COUNTER_COUNT;
}
