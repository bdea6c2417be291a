/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The structures that the balancer and its agent share. Go gets them from BTF (bpf2go), never by
 * hand. Addresses are always 16 bytes, IPv4 as ::ffff:a.b.c.d, so nothing is written twice for two
 * families. Padding is explicit, and zero in keys.
 */
#pragma once

#include <linux/types.h>

/* Segment types, as in a VIP's key. */
enum segment_type {
	SEGMENT_NONE,
	SEGMENT_VLAN,
};

/* How a packet is brought to a backend. */
enum forward {
	FORWARD_L2DSR = 1,
	FORWARD_IPIP,
};

/* The key of the VIP table (Kakao paper, section V.B). */
struct vip_key {
	__u8 address[16];
	__be16 port;
	__u8 protocol; /* IANA number */
	__u8 segment_type;
	__u32 segment_id; /* host order, 0 without a segment */
};
_Static_assert(sizeof(struct vip_key) == 24, "vip_key is hashed whole: no implicit padding");

/* Packets and bytes of received frames. */
struct traffic {
	__u64 packets;
	__u64 bytes;
};

enum view_flag {
	VIEW_AFFINITY_CLIENT =
		1 << 0, /* hash the client's address only, not the whole five-tuple */
};

/*
 * One version of a service: where its ring and its backends lie. Whatever a view points to does
 * not change while a packet may see the view.
 */
struct view {
	__u32 ring_base; /* index of the first chunk in `rings` */
	__u32 ring_size; /* entries; 0: no backend is usable */
	__u32 backend_base; /* index of backend 0 in `backends` */
	__u16 backend_count;
	__u16 flags; /* VIEW_* */
};

/*
 * A service: two views, of which one is in use. User space writes the other one, then `active`: a
 * single aligned store, so that a packet sees all of a change or nothing. Before a view is written
 * again, an RCU grace period has passed. One cache line.
 */
struct service {
	__u32 active; /* 0 or 1 */
	__u32 pad[3];
	struct view view[2];
	struct traffic
		gone; /* of backends that have left; kept here by the agent, for its successor */
};
_Static_assert(sizeof(struct service) == 64, "service is one cache line");

/*
 * Ring entries are packed: an array pads every element to 8 bytes, so one entry an element would
 * waste three quarters of the cache. 32 entries are one cache line.
 */
#define RING_CHUNK 32

struct ring_chunk {
	__u16 entry[RING_CHUNK]; /* index of a backend within its service, 0 to 32766 */
};
_Static_assert(sizeof(struct ring_chunk) == 64, "ring_chunk is one cache line");

/* A backend of one service, ready to be written into a packet. One cache line. */
struct backend {
	__u8 destination[6]; /* MAC address of the next hop */
	__u8 source[6]; /* MAC address of the interface that sends */
	__u16 vlan; /* id, host order; 0: untagged */
	__u16 mtu; /* largest IP packet on the way to the backend, tunnel header included */
	__u32 ifindex; /* interface that sends */
	__u32 stats; /* index in `backend_stats` */
	__be16 port; /* with address: the name of the backend, for an agent that adopts the maps */
	__u8 forward; /* enum forward */
	__u8 pad[5];
	__u8 address[16]; /* the backend; the tunnel's far end */
	__u8 local[16]; /* the tunnel's near end */
};
_Static_assert(sizeof(struct backend) == 64, "backend is one cache line");
