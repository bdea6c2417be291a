/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the balancer knows of a packet once it has been parsed.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/types.h>

#include "types.h"

#define VLAN_ID_MASK 0x0fff

struct vlan_tag {
	__be16 tci; /* priority (4 bits, with the drop eligible bit) and id (12) */
	__be16 proto;
};

/* What a packet says about the flow that it belongs to. */
enum phase {
	PHASE_OPEN, /* TCP: the connection was opened by an earlier packet */
	PHASE_OPENING, /* TCP SYN: the first packet of a connection */
	PHASE_DATAGRAM, /* UDP: any packet may be the first */
};

/* Whether it is one of the flow's last. */
enum closing {
	CLOSING_FIN = 1 << 0, /* TCP: its sender has nothing more to say */
	CLOSING_RST = 1 << 1, /* TCP: nothing follows */
};

enum fragment_part {
	FRAGMENT_NONE, /* the packet is whole */
	FRAGMENT_FIRST,
	FRAGMENT_LATER, /* the transport header is in another packet */
};

/*
 * The flow is that of a client's packet. Of an ICMP error it is the flow of the packet which the error
 * quotes, seen from its client: then `source` is not who sent the error.
 */
struct packet {
	struct vip_key vip __attribute__((
		aligned(8))); /* protocol ICMP, port 0: an echo request to the address */
	__u8 source[16] __attribute__((aligned(8)));
	__be16 source_port;
	__be16 proto; /* Ethertype behind the VLAN tag */
	__be16 tci;
	__u16 header; /* bytes from the start of the IP packet to its transport header */
	__u8 tagged; /* a VLAN tag is in the frame, also one of id 0 (priority tag) */
	__u8 ipv4;
	__u8 tos; /* type of service or traffic class */
	__u8 phase; /* enum phase */
	__u8 fragment; /* enum fragment_part */
	__u8 quoted; /* an ICMP error */
	__u8 closing; /* enum closing */
	__u8 routed; /* answers take this node's routes (answer_route.h) */
	__u8 pad[2];
	__u16 quote; /* of an ICMP error: bytes from the start of the IP packet to the quoted transport */
	__u32 length; /* of the IP packet, header included */
	__u32 overlay; /* bytes of a segment's headers between link layer and packet (overlay.h) */
};

#define OFFSET_MASK 0x3fff /* no header is further into a frame; it bounds offsets */

/* Bytes of the link layer: the verifier knows that they are 14 or 18. */
static __always_inline __u32 link_length(const struct packet *p)
{
	return ETH_HLEN + (p->tagged ? sizeof(struct vlan_tag) : 0);
}

/* Bytes in front of the IP packet. */
static __always_inline __u32 packet_offset(const struct packet *p)
{
	return link_length(p) + p->overlay;
}

/* Whether the flow's transport header is where it should be. */
static __always_inline int has_transport(const struct packet *p)
{
	return !p->quoted && p->fragment != FRAGMENT_LATER;
}

/*
 * Where something is that is `offset` bytes into the IP packet, be it beyond the frame's end. The barrier
 * keeps the compiler from checking one copy of the pointer and using another, which the verifier refuses.
 */
static __always_inline void *packet_at(struct xdp_md *ctx, const struct packet *p, __u32 offset)
{
	void *at = (void *)(long)ctx->data + ((packet_offset(p) + offset) & OFFSET_MASK);

	asm volatile("" : "+r"(at));
	return at;
}
