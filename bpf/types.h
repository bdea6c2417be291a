/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The structures that the balancer and its agent share. Go gets them from BTF (bpf2go), never by
 * hand. Addresses are always 16 bytes, IPv4 as ::ffff:a.b.c.d, so nothing is written twice for two
 * families. Padding is explicit, and zero in keys.
 */
#pragma once

#include <linux/types.h>

#include "address.h"

/* Segment types, as in a VIP's key. */
enum segment_type {
	SEGMENT_NONE,
	SEGMENT_VLAN,
	SEGMENT_VXLAN,
	SEGMENT_GENEVE,
};

/* How a packet is brought to a backend. */
enum forward {
	FORWARD_L2DSR = 1,
	FORWARD_IPIP,
	FORWARD_GUE,
	FORWARD_VXLAN,
	FORWARD_GENEVE,
	FORWARD_NAT,
	FORWARD_DNAT,
};

/* The key of the VIP table (Kakao paper, section V.B). */
struct vip_key {
	__u8 address[16];
	__be16 port;
	__u8 protocol; /* IANA number */
	__u8 segment_type;
	__u32 segment_id; /* host order, 0 without a segment */
};
_Static_assert(sizeof(struct vip_key) == 24, "vip_key is compared by words: no implicit padding");

/*
 * A place of the VIP table. A VIP is at the first place that its hash names, or at one of the next
 * VIP_PROBES - 1; looking ends at a place that was never used. User space writes the key before the
 * number, and a place that a VIP has left is written again only after an RCU grace period.
 */
struct vip_place {
	struct vip_key key;
	__u32 number; /* of the service, or one of the values below */
	__u32 pad;
};
_Static_assert(sizeof(struct vip_place) == 32, "two vip_places are one cache line");

enum vip_number {
	VIP_NEVER = 0, /* services are numbered from 1 */
	VIP_LEFT = 0xffffffff,
};

#define VIP_PROBES 32

/* An address that services have, whatever their ports. */
struct address_key {
	__u8 address[16];
	__u32 segment_id;
	__u8 segment_type;
	__u8 pad[3];
};
_Static_assert(sizeof(struct address_key) == 24, "address_key has no implicit padding");

enum address_flag {
	ADDRESS_USABLE = 1 << 0, /* a service of it has a usable backend */
	ADDRESS_REJECT = 1 << 1, /* a service of it has VIEW_REJECT */
	ADDRESS_TUNNELLED = 1 << 2, /* other balancers' tunnels to it end here (member.h) */
};

/*
 * A node that shares services with this one (member.h), by how frames come from it: by its MAC address
 * with L2 DSR, and by the address of its tunnels with the others.
 */
struct member_key {
	__u8 address[16]; /* a MAC address has zeros behind it */
	__u32 forward; /* enum forward */
};
_Static_assert(sizeof(struct member_key) == 20, "member_key has no implicit padding");

enum member {
	MEMBER_BALANCER = 1,
	MEMBER_SELF, /* this node: the end of others' tunnels */
};

/* Answers of the balancer itself that are limited, each kind for itself. */
enum answer {
	ANSWER_TOO_BIG,
	ANSWER_UNREACHABLE,
	ANSWER_RESET,
	ANSWER_ASK, /* no answer: a segment that other nodes are asked about (ask.h) */
	ANSWER_COUNT,
};

/* A thousand a second on each processor, and as many at once after a quiet second. */
#define ANSWER_INTERVAL_NS 1000000ull
#define ANSWER_BURST_NS 1000000000ull

/* What the fragments of one packet have in common (RFC 791, section 3.2; RFC 8200, section 4.5). */
struct fragment_key {
	__u8 source[16];
	__u8 destination[16];
	__u32 id;
	__u32 segment_id;
	__u8 segment_type;
	__u8 protocol; /* 0 in IPv6, where the identification stands alone */
	__u16 pad;
};
_Static_assert(sizeof(struct fragment_key) == 44, "fragment_key has no implicit padding");

/* What only the first one has. */
struct fragment_ports {
	__be16 source_port;
	__be16 port;
	__u8 protocol;
	__u8 pad[3];
};

/* Packets and bytes of received frames. */
struct traffic {
	__u64 packets;
	__u64 bytes;
};

/*
 * Counters are packed as ring entries are: the kernel allocates each element of a per-CPU array, and
 * finds it by a pointer, on its own.
 */
#define TRAFFIC_CHUNK 32

struct traffic_chunk {
	struct traffic entry[TRAFFIC_CHUNK];
};

/* Flows that began, by the same counter: TCP SYNs, and UDP flows when they are recorded. */
struct new_flows_chunk {
	__u64 entry[TRAFFIC_CHUNK];
};

enum view_flag {
	VIEW_AFFINITY_CLIENT =
		1 << 0, /* hash the client's address only, not the whole five-tuple */
	VIEW_TRACK_ALL = 1 << 1, /* record every flow, not only those of unstable entries */
	VIEW_EMPTY = 1 << 2, /* no backend is usable for new flows; the ring may have a past */
	VIEW_REJECT =
		1 << 3, /* without a usable backend, clients are told; not: packets are dropped */
	VIEW_SOURCES = 1 << 4, /* only clients that the view's list of sources lets in */
	VIEW_LIMITS = 1 << 5, /* only so many new flows */
	VIEW_QUIC = 1 << 6, /* QUIC connection ids may name the backend */
	VIEW_NAT = 1 << 7, /* addresses and ports are translated (nat.h) */
	VIEW_PASSIVE = 1 << 8, /* the agent is told of backends that refuse connections */
	VIEW_DNAT =
		1
		<< 9, /* with NAT: the destination only, on the node that has the backend (relay.h) */
	VIEW_SHARED =
		1
		<< 10, /* what another balancer sends here by L2 DSR is for this node (member.h) */
	VIEW_REMEMBER_CLIENTS =
		1 << 11, /* a client's new flows follow its earlier ones (client.h) */
	VIEW_TUNNEL_END = 1 << 12, /* and what it sends by a tunnel: see ADDRESS_TUNNELLED */
};

/*
 * One version of a service: where its rings and its backends lie. Whatever a view points to does
 * not change while a packet may see the view.
 */
struct view {
	__u32 ring_base; /* index of the first chunk in `rings` */
	__u32 ring_size; /* entries; 0: no backend is usable */
	__u32 previous_base; /* the same for the ring that flows older than the changes were on */
	__u32 previous_size;
	__u32 backend_base; /* index of slot 0 in `backends` */
	__u16 slots; /* backends, places without one included */
	__u16 flags; /* VIEW_* */
};

/* Times of limits are in 2^-LIMIT_TIME_SHIFT ns: 10^7 a second is a whole interval to 10^-4. */
enum limit_time {
	LIMIT_TIME_SHIFT = 8,
};

/* How many new flows may begin (limit.h). */
struct limit {
	__u64 interval; /* between two flows of the service; 0: no limit */
	__u64 source_interval; /* between two flows of one client; 0: no limit */
	__u64 arrival; /* when the service's next flow would come: written by packets */
};

/* How the service's servers write their ids into QUIC connection ids (quic.h). One store. */
struct quic {
	__u8 config; /* configuration, in the upper 3 bits as in a connection id */
	__u8 server_length; /* bytes of a server id, 1 to 15 */
	__u8 nonce_length; /* bytes behind it */
	__u8 pad;
};

/*
 * With DNAT: the nodes that are asked, one after the other, about segments that are of no session here
 * (ask.h). One store. It belongs to no view: who reads another one's asks a node all the same, or nobody yet.
 */
struct round {
	__u16 next; /* slot of a backend of the node that comes after this one */
	__u8 nodes; /* others than this one, at most ROUND_NODES; 0: nobody is asked */
	__u8 pending; /* a node can't be asked yet, so that nobody is told that there is no connection */
};

/* More nodes aren't asked: their number has to be below the hop limits with which packets come in. */
enum round_limit {
	ROUND_NODES = 28,
};

/*
 * A service: two views, of which one is in use. User space writes the other one, then `active`: a
 * single aligned store, so that a packet sees all of a change or nothing. Before a view is written
 * again, an RCU grace period has passed. A packet needs the first cache line only.
 */
struct service {
	__u32 active; /* 0 or 1 */
	struct round round;
	struct view view[2];
	__u32 sources[2]; /* of each view with VIEW_SOURCES: the number of its list */
	struct traffic
		gone; /* of backends that have left; kept here by the agent, for its successor */
	__u64 forgotten; /* flow records that the agent deleted, for its successor */
	struct limit limit;
	struct quic quic;
	__u32 nat_idle; /* how long an established NAT session may be silent, in FLOW_TIME units */
	__u64 gone_flows; /* those that began on backends that have left */
};
_Static_assert(sizeof(struct service) == 128, "service is two cache lines");

/*
 * Ring entries are packed: an array pads every element to 8 bytes, so one entry an element would
 * waste three quarters of the cache. 32 entries are one cache line.
 */
#define RING_CHUNK 32

/*
 * A ring entry is the slot of a backend within its service and a mark: the entry had another backend
 * not long ago, so that flows older than that may be elsewhere (DESIGN.md section 5.2).
 */
#define RING_SLOT 0x7fff /* 0x7fff itself: no backend */
#define RING_UNSTABLE 0x8000

struct ring_chunk {
	__u16 entry[RING_CHUNK];
};
_Static_assert(sizeof(struct ring_chunk) == 64, "ring_chunk is one cache line");

enum backend_flag {
	BACKEND_USABLE = 1 << 0, /* its next hop is known; it may have no ring entry all the same */
	BACKEND_HANDOVER = 1 << 1, /* with NAT: the kernel's side sends, out of `ifindex` */
	BACKEND_RELAY = 1 << 2, /* with DNAT: another node's, to which packets go as they came */
	BACKEND_OWN = 1 << 3, /* with DNAT: this node's, which sees clients' own addresses */
	BACKEND_SELF = 1 << 4, /* this node itself: its kernel gets the packets as they came */
	BACKEND_NEW_FLOWS = 1 << 5, /* with VIEW_REMEMBER_CLIENTS: its weight isn't 0 */
};

/*
 * A backend of one service, ready to be written into a packet. It keeps its slot as long as a ring or
 * a flow may name it. One cache line.
 */
struct backend {
	__u8 destination[6]; /* MAC address of the next hop */
	__u8 source[6]; /* MAC address of the interface that sends */
	__u16 vlan; /* id, host order; 0: untagged */
	__u16 mtu; /* largest IP packet on the way to the backend, tunnel header included */
	__u32 ifindex; /* interface that sends */
	__u32 stats; /* its counter: chunk * TRAFFIC_CHUNK + place in `backend_stats` */
	__u16 generation; /* tells the slot's backends apart, one after the other */
	__u8 forward; /* enum forward */
	__u8 flags; /* BACKEND_* */
	__u32 index; /* its own in `backends`, and so in `backend_details` */
	__u8 remote[16]; /* the tunnel's far end; with NAT the backend's own address */
	__u8 local
		[16]; /* the tunnel's near end; with NAT an address of this node towards the backend */
};
_Static_assert(sizeof(struct backend) == 64, "backend is one cache line");

/* What few packets need of a backend; at the same index as the backend. */
struct backend_detail {
	__u8 address[16]; /* with port: the backend's name, for an agent that adopts the maps */
	__be16 port;
	__u8 mac[6]; /* the backend's own, for frames within a segment */
	__u32 segment; /* VXLAN or Geneve network identifier */
	__u32 pad;
	struct traffic before; /* what its counter had counted when the backend got it */
};
_Static_assert(sizeof(struct backend_detail) == 48, "backend_detail has no implicit padding");

/* A recorded flow. */
struct flow {
	__u32 service; /* number */
	__u32 backend; /* slot, and generation << 16: one store */
	__u32 seen; /* when its last packet came: clock_monotonic >> FLOW_TIME_SHIFT, wraps */
	__u32 place; /* upper half of the hash that picks the ring entry */
	__u8 client[16];
	__be16 port; /* the client's */
	__u8 closing; /* the client has sent FIN or RST, and no SYN since */
	__u8 pad[5];
};
_Static_assert(sizeof(struct flow) == 40, "flow has no implicit padding");

/* Unit of flow.seen: 2^20 ns, about a millisecond. */
#define FLOW_TIME_SHIFT 20

/* How far a NAT session has come; the numbers of each protocol only grow. */
enum nat_state {
	NAT_OPENING = 1, /* TCP: the client's SYN was seen */
	NAT_ANSWERED, /* TCP: the server has answered */
	NAT_ESTABLISHED, /* TCP: and the client has gone on from there */
	NAT_CLOSING, /* TCP: both have said FIN, or one RST */
	NAT_ONE_WAY, /* UDP: only the client was heard */
	NAT_TWO_WAY, /* UDP: the server too */
};

/*
 * How many seconds a session may be silent that isn't established. A connection that is being opened has
 * the minute that servers repeat their answer for (RFC 9293, section 3.8.3; RFC 5382, REQ-5 asks more of
 * a NAT that isn't its servers' own). One that was closed keeps its port for two minutes, as long as a
 * last segment may be on its way (RFC 9293, section 3.4.2), but gives it up to a new session when no
 * port is free (nat_port.h). UDP: RFC 4787, REQ-5.
 */
enum nat_seconds {
	NAT_OPENING_SECONDS = 60,
	NAT_CLOSING_SECONDS = 120,
	NAT_ONE_WAY_SECONDS = 30,
};

enum nat_flag {
	NAT_REPLY = 1 << 0, /* the session's entry for packets of the server */
	NAT_FIN_CLIENT = 1 << 1, /* TCP FIN came from the client */
	NAT_FIN_SERVER = 1 << 2, /* or from the server */
};

/*
 * A NAT session: client to VIP on the one side, SNAT address to backend on the other. It has two
 * entries of the same content, one for each direction (nat_session.h). With the table's own 48 bytes and
 * a key of 8, an entry is two cache lines; what decides whether it is the right one is in the first.
 */
struct nat_session {
	__u32 seen; /* when its last packet came, to about a second; unit as in flow.seen */
	__u8 state; /* enum nat_state */
	__u8 flags; /* NAT_* */
	__u8 protocol;
	__u8 pad;
	__u8 client[16];
	__u8 snat[16]; /* this node's address towards the backend */
	__be16 client_port;
	__be16 snat_port;
	__be16 server_port;
	__u16 vlan; /* of the client's packets: id, host order; 0: untagged */
	__u32 service; /* number */
	__u32 backend; /* slot, and generation << 16 */
	__u32 ifindex; /* the interface by which the client's packets come in */
	__u8 router[6]; /* the MAC address from which they come */
	__u8 own[6]; /* and the one to which */
};
_Static_assert(sizeof(struct nat_session) == 72, "with its key and the kernel's part: 128 bytes");

/* A backend that refused a connection: it answered a SYN with RST. */
struct nat_refusal {
	__u32 service; /* number */
	__u32 backend; /* slot, and generation << 16 */
};

/*
 * In front of a frame (XDP metadata) that is for a backend with BACKEND_HANDOVER: addresses and ports
 * are the server's already, the VLAN tag is gone. A tc program sends it on, with bpf_redirect_neigh.
 */
struct nat_handover {
	__u32 magic; /* NAT_HANDOVER_MAGIC */
	__u32 ifindex; /* device towards the backend; the kernel's routes know its next hop */
};

#define NAT_HANDOVER_MAGIC 0x4e415431

/* SNAT addresses of each family, at most. */
#define NAT_ADDRESSES 64

/* What became of the packets that looked for a recorded flow. */
struct flow_stats {
	__u64 hits; /* sent to the recorded backend */
	__u64 misses; /* not recorded, or recorded with a backend that can't be used */
	__u64 inserts; /* new records */
};

/* Whether a client may use a service. */
enum access {
	ACCESS_DENIED,
	ACCESS_ALLOWED,
};

/* A prefix in a service's list of sources. The list's number always counts as a whole. */
struct source_key {
	__u32 prefix_length; /* bits of list and address */
	__u32 list;
	__u8 address[16];
};
_Static_assert(sizeof(struct source_key) == 24, "source_key has no implicit padding");

#define SOURCE_KEY_BITS 160

/* A client whose new flows are counted: an IPv4 address or the first half of an IPv6 address. */
struct limit_source {
	__u64 network;
	__u32 service; /* number */
	__u32 pad;
};
_Static_assert(sizeof(struct limit_source) == 16, "limit_source is hashed whole: no padding");

/* A UDP flow of a service whose new flows are counted. */
struct limit_flow {
	__u8 client[16];
	__u32 service; /* number */
	__be16 port; /* the client's */
	__u16 pad;
};
_Static_assert(sizeof(struct limit_flow) == 24, "limit_flow is hashed whole: no padding");

/* A server id of a service. */
struct server_key {
	__u32 service; /* number */
	__u8 length;
	__u8 pad[3];
	__u8 id[16]; /* zero behind its length */
};
_Static_assert(sizeof(struct server_key) == 24, "server_key is hashed whole: no padding");

/* A client of a service with VIEW_REMEMBER_CLIENTS: where its latest flow began. */
struct client {
	__u32 service; /* number */
	__u32 backend; /* slot, and generation << 16: one store */
	__u64 seen; /* when a flow began, CLOCK_MONOTONIC in ns: may be late by CLIENT_TOUCH */
};
_Static_assert(sizeof(struct client) == 16, "client has no implicit padding");

/* The backend that has a server id. */
struct server {
	__u32 service; /* number */
	__u32 backend; /* slot, and generation << 16: one store */
};
