/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A parsed packet.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/types.h>

#include "core/header.h"
#include "core/types.h"

/* Position of a packet in its flow. */
enum phase {
	PHASE_OPEN, /* TCP: not the first packet of a connection */
	PHASE_OPENING, /* TCP SYN: the first packet of a connection */
	PHASE_DATAGRAM, /* UDP: any packet may be the first */
};

enum fragment_part {
	FRAGMENT_NONE, /* the packet is whole */
	FRAGMENT_FIRST,
	FRAGMENT_LATER, /* the transport header is in another packet */
};

/*
 * A packet of a flow from `source` to `vip`. An ICMP error belongs to the flow of the packet that
 * it quotes, seen from the client: `source` is not the sender of the error.
 */
struct packet {
	struct vip_key vip __attribute__((
		aligned(8))); /* protocol ICMP, port 0: an echo request to the address */
	__u8 source[16] __attribute__((aligned(8)));
	__be32 seq; /* TCP sequence number */
	__be16 source_port;
	__be16 proto; /* Ethertype after the VLAN tag */
	__be16 tci;
	__u16 header; /* offset of the transport header in the IP packet */
	__u8 tagged; /* the frame has a VLAN tag, maybe with ID 0 (priority tag) */
	__u8 ipv4;
	__u8 tos; /* type of service or traffic class */
	__u8 phase; /* enum phase */
	__u8 fragment; /* enum fragment_part */
	__u8 quoted; /* an ICMP error */
	__u8 flags; /* of TCP: TCP_* */
	__u8 routed; /* answers follow this node's routes (answer/reply.h) */
	__u8 view; /* which one of the service's: a packet sees all of a change or nothing */
	__u8 ecn; /* of a packet in a segment: congestion mark of the outer header (parse/decap.h) */
	__u8 tcp_words; /* length of the TCP header, in units of 4 bytes */
	__u8 pad;
	__u16 quote; /* of an ICMP error: offset of the quoted transport header in the IP packet */
	__u32 length; /* of the IP packet, header included */
	__u32 overlay; /* bytes of VXLAN or Geneve headers before the packet (parse/overlay.h) */
};

#define TCP_FLAGS 13 /* their offset */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* What a session needs of a TCP header, in network byte order; zero for other protocols. */
struct segment {
	__be32 seq;
	__be32 ack;
	__u8 flags; /* TCP_* */
	__u8 pad[3];
};

#define OFFSET_MASK \
	0x3fff /* bounds offsets for the verifier; headers are never further into a frame */

/* Length of the link-layer header. The verifier sees that it is 14 or 18. */
static __always_inline __u32 link_length(const struct packet *p)
{
	return ETH_HLEN + (p->tagged ? sizeof(struct vlan_tag) : 0);
}

/* Offset of the IP packet in the frame. */
static __always_inline __u32 packet_offset(const struct packet *p)
{
	return link_length(p) + p->overlay;
}

/* Whether the packet contains the transport header of its flow at `header`. */
static __always_inline int has_transport(const struct packet *p)
{
	return !p->quoted && p->fragment != FRAGMENT_LATER;
}

/*
 * Returns a pointer `offset` bytes into the IP packet, which may be beyond the end of the frame.
 * The barrier keeps the compiler from checking one copy of the pointer and using another, which the
 * verifier rejects.
 */
static __always_inline void *packet_at(struct xdp_md *ctx, const struct packet *p, __u32 offset)
{
	void *at = (void *)(long)ctx->data + ((packet_offset(p) + offset) & OFFSET_MASK);

	asm volatile("" : "+r"(at));
	return at;
}
