/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Structures that the BPF programs and the agent share. Their Go types are generated from BTF
 * (bpf2go). Addresses are always 16 bytes, IPv4 as ::ffff:a.b.c.d, so that one structure serves
 * both families. Padding is explicit, and zero in keys.
 */
#pragma once

#include <linux/types.h>

#include "core/address.h"

/* Types of network segments. */
enum segment_type {
	SEGMENT_NONE,
	SEGMENT_VLAN,
	SEGMENT_VXLAN,
	SEGMENT_GENEVE,
};

/* Forwarding mode: how a packet gets to a backend. */
enum forward {
	FORWARD_L2DSR = 1,
	FORWARD_IPIP,
	FORWARD_GUE,
	FORWARD_VXLAN,
	FORWARD_GENEVE,
	FORWARD_NAT,
	FORWARD_DSR,
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
 * A place in the VIP table, which uses open addressing. A VIP is at the place that its hash selects
 * or at one of the following VIP_PLACES - 1; a search ends at an unused place. User space writes
 * the key before the number, and reuses the place of a deleted VIP only after an RCU grace period.
 */
struct vip_place {
	struct vip_key key;
	__u32 number; /* of the service, or one of the values below */
	__u32 pad;
};
_Static_assert(sizeof(struct vip_place) == 32, "two vip_places are one cache line");

enum vip_number {
	VIP_UNUSED = 0, /* services are numbered from 1 */
	VIP_DELETED = 0xffffffff,
};

#define VIP_PLACES 32

/* Words of a key's input: one for ports, and four for each of two addresses (core/hash.h). */
#define KEY_WORDS 9

/* This node's secrets (core/config.h). */
struct secrets {
	__u64 key_seed;
	__u64 key_secrets[2][KEY_WORDS];
	__u64 vip_secrets[6];
	__u64 place_secrets[2];
};

/* At how many places a record may be, from the first place of its key on (nat/places.h). */
enum place_window {
	PLACE_WINDOW = 48,
};

/* Values of place.key that aren't the key of a record. */
enum place_key {
	PLACE_FREE,
	PLACE_BUSY, /* one writer owns the place */
};

/* What each place of a table begins with (nat/places.h); the record begins with `seen`. */
struct place {
	__u64 key;
	/* Bit i: the place i further has a record whose first place is this one. Above: a version. */
	__u64 near;
	__u32 seen; /* time of the last packet; unit of flow.seen */
	__u8 state; /* enum nat_state */
	__u8 pad[3];
};

/* The address of one or more VIPs, regardless of ports. */
struct address_key {
	__u8 address[16];
	__u32 segment_id;
	__u8 segment_type;
	__u8 pad[3];
};
_Static_assert(sizeof(struct address_key) == 24, "address_key has no implicit padding");

#define MAX_AGGREGATES 4096
#define MAX_TUNNEL_PEERS 1024

/* A prefix of addresses. */
struct prefix_key {
	__u32 prefix_length; /* of the mapped address */
	__u8 address[16];
};
_Static_assert(sizeof(struct prefix_key) == 20, "prefix_key has no implicit padding");

enum address_flag {
	ADDRESS_USABLE = 1 << 0, /* a service of it has a usable backend */
	ADDRESS_REJECT = 1 << 1, /* a service of it has VIEW_REJECT */
	ADDRESS_TUNNELLED = 1 << 2, /* a service of it has VIEW_TUNNEL_END */
};

/*
 * A peer: a balancer that shares services with this node (parse/peer.h). It is identified by its
 * MAC address with L2 DSR and DSR, and by the address of its tunnel endpoint with the other modes.
 * With DSR only nodes with backends are peers.
 */
struct peer_key {
	__u8 address[16]; /* a MAC address is followed by zeros */
	__u32 forward; /* enum forward */
};
_Static_assert(sizeof(struct peer_key) == 20, "peer_key has no implicit padding");

enum peer {
	PEER_BALANCER = 1,
	PEER_LOCAL, /* this node: where tunnels from peers end */
};

/* What has a rate limit on each processor: answers, unless they say otherwise. */
enum rate {
	RATE_TOO_BIG,
	RATE_UNREACHABLE,
	RATE_RESET,
	RATE_LOOKUP, /* a packet sent to the next peer (translate/lookup.h) */
	RATE_RECORD, /* a new record of a flow (pick/flow.h) */
	RATE_CONFIRM, /* a record moved to `flows` */
	RATE_CLIENT, /* a new record of a client (pick/client.h) */
	RATE_ECHO,
	RATE_QUOTED, /* an ICMP error, forwarded to the server whose packet it quotes */
	RATE_COUNT,
};

/* 1000 per second and processor, with bursts of 1000. */
#define ANSWER_INTERVAL_NS 1000000ull
#define RATE_BURST_NS 1000000000ull
#define QUOTED_INTERVAL_NS 100000ull /* 10000 per second and processor */
#define TOO_BIG_INTERVAL_NS 100000ull /* the same; 1000 per second and service */

/* Identifies the fragments of one packet (RFC 791, section 3.2; RFC 8200, section 4.5). */
struct fragment_key {
	__u8 source[16];
	__u8 destination[16];
	__u32 id;
	__u32 segment_id;
	__u8 segment_type;
	__u8 protocol; /* 0 with IPv6, whose identification doesn't depend on it */
	__u16 pad;
};
_Static_assert(sizeof(struct fragment_key) == 44, "fragment_key has no implicit padding");

/* Ports, which only the first fragment contains. */
struct fragment_ports {
	__be16 source_port;
	__be16 port;
	__u8 protocol; /* 0: several packets have this identification */
	__u8 pad[3];
	__u32 seen; /* time of the first fragment; unit of flow.seen */
};

/* Packets and bytes of received frames. */
struct traffic {
	__u64 packets;
	__u64 bytes;
};

/*
 * Counters are packed into chunks, as the kernel allocates every element of a per-CPU array
 * separately and needs a pointer to each.
 */
#define TRAFFIC_CHUNK 32

struct traffic_chunk {
	struct traffic entry[TRAFFIC_CHUNK];
};

/* New flows, indexed like traffic: TCP SYNs, and UDP flows when they are recorded. */
struct new_flows_chunk {
	__u64 entry[TRAFFIC_CHUNK];
};

enum view_flag {
	VIEW_AFFINITY_CLIENT = 1 << 0, /* hash the client's address instead of the five-tuple */
	VIEW_TRACK_ALL = 1 << 1, /* record all flows, not only those of unstable entries */
	VIEW_EMPTY = 1 << 2, /* no backend takes new flows; the ring may serve old ones */
	VIEW_REJECT = 1 << 3, /* without a usable backend, refuse packets instead of dropping */
	VIEW_SOURCES = 1 << 4, /* only clients that the list of sources allows */
	VIEW_LIMITS = 1 << 5, /* the rate of new flows is limited */
	VIEW_QUIC = 1 << 6, /* QUIC connection IDs may identify the backend */
	VIEW_NAT = 1 << 7, /* addresses and ports are translated */
	VIEW_PASSIVE = 1 << 8, /* report backends that refuse connections to the agent */
	VIEW_DSR = 1 << 9, /* with NAT: only the destination, on the backend's node */
	VIEW_SHARED = 1 << 10, /* shared with peers: packets from them are for this node */
	VIEW_REMEMBER_CLIENTS = 1 << 11, /* new flows follow the client's earlier ones */
	VIEW_TUNNEL_END = 1 << 12, /* shared with peers that send by tunnels */
};

/*
 * One version of a service: the positions of its rings and backends. What a view refers to doesn't
 * change while a packet may use the view.
 */
struct view {
	__u32 ring_base; /* index of the first chunk in `rings` */
	__u32 ring_size; /* entries; 0: no usable backend */
	__u32 previous_base; /* the ring before the latest changes, for older flows */
	__u32 previous_size;
	__u32 backend_base; /* index of slot 0 in `backends` */
	__u32 stats_base; /* index of the counters of slot 0 */
	__u16 slots; /* backends, including unused slots */
	__u16 flags; /* VIEW_* */
};

/* Limits count time in 2^-LIMIT_TIME_SHIFT ns: at 10^7 flows/s an interval is exact to 10^-4. */
enum limit_time {
	LIMIT_TIME_SHIFT = 8,
};

/* Limits of new flows (pick/admit.h). */
struct limit {
	__u64 interval; /* between new flows of the service; 0: no limit */
	__u64 source_interval; /* between new flows of one client; 0: no limit */
	__u64 arrival; /* theoretical arrival time of the service's next flow; written by packets */
};

/* Format of server IDs in QUIC connection IDs (pick/quic.h). Written with one store. */
struct quic {
	__u8 config; /* config rotation bits, the upper 3 as in a connection ID */
	__u8 server_length; /* bytes of a server ID, 1 to 15 */
	__u8 nonce_length; /* bytes after the server ID */
	__u8 pad;
};

/*
 * With DSR: the peers that get packets of unknown connections, one after the other
 * (translate/lookup.h). Written with one store. It isn't part of a view: with the value of another
 * view a packet still reaches a peer, or none yet.
 */
struct peer_lookup {
	__u16 next; /* slot of a backend of the peer after this node */
	__u8 peers; /* at most PEER_LOOKUP_MAX; 0: no look-up */
	__u8 pending; /* a peer can't be reached yet, so unknown connections aren't reset */
};

/* Look-ups count peers in the hop limit, which has to stay below that of arriving packets. */
enum peer_lookup_limit {
	PEER_LOOKUP_MAX = 28,
};

/*
 * A service has two views, one of them in use. User space writes the other one, then `active` with
 * a single aligned store: a packet sees all of a change or nothing. A view is rewritten only after
 * an RCU grace period. A packet needs the first cache line only.
 */
struct service {
	__u16 active; /* 0 or 1 */
	__u16 local; /* with DSR: slot of this node's newest backend, plus 1; 0: none */
	struct peer_lookup peer_lookup;
	struct view view[2];
	__u32 sources[2]; /* number of the list of sources of each view with VIEW_SOURCES */
	struct limit limit;
	struct quic quic;
	__u32 nat_idle; /* idle timeout of established NAT sessions, in FLOW_TIME units */
	__u64 pad[3];
};
_Static_assert(sizeof(struct service) == 128, "service is two cache lines");

/* The rarely needed part of a service, with the same number. What is counted is the agent's. */
struct service_detail {
	struct vip_key vip; /* the source of packets from servers */
	struct traffic gone; /* of removed backends */
	__u64 gone_flows; /* the same: new flows */
	__u64 forgotten; /* flow records that were deleted */
};
_Static_assert(sizeof(struct service_detail) == 56, "service_detail has no implicit padding");

/*
 * Ring entries are packed into chunks of a cache line, as a BPF array pads every element to 8 bytes.
 * Those of views with few slots are bytes: the rings of thousands of services compete for the cache.
 */
#define RING_CHUNK 32

enum ring_few {
	RING_FEW_SLOTS = 127,
};

/*
 * A ring entry is the slot of a backend within its service and a mark. A marked entry is unstable:
 * it had another backend recently, where older flows may still be (pick/flow.h).
 */
#define RING_SLOT 0x7fff /* 0x7fff itself: no backend */
#define RING_UNSTABLE 0x8000

struct ring_chunk {
	union {
		__u16 entry[RING_CHUNK];
		__u8 few[2 * RING_CHUNK]; /* with RING_FEW_SLOTS at most: the mark is bit 7 */
	};
};
_Static_assert(sizeof(struct ring_chunk) == 64, "ring_chunk is one cache line");

enum backend_flag {
	BACKEND_USABLE = 1 << 0, /* its next hop is known; it may still have no ring entry */
	BACKEND_HANDOVER =
		1 << 1, /* with NAT: the kernel sends, through its interface (nat_handover.bpf.c) */
	BACKEND_RELAY = 1 << 2, /* with DSR: on another node, to which packets are relayed */
	BACKEND_KEEP_SOURCE = 1 << 3, /* the client's address stays: DSR, or this node's stack */
	BACKEND_LOCAL = 1 << 4, /* this node itself: packets are passed to its kernel */
	BACKEND_NEW_FLOWS =
		1 << 5, /* it takes new flows: it is in the service, and its weight isn't 0 */
};

/*
 * A backend of one service. It keeps its slot as long as a ring or a flow may refer to it. Four of
 * them are a cache line; the rest of what is written into a packet is in `egress`, which few have
 * of their own, and in `remotes`.
 */
struct backend {
	__u8 destination[6]; /* MAC address of the next hop */
	__u16 egress; /* index of its egress */
	__u16 generation; /* distinguishes successive backends of the slot */
	__u8 flags; /* BACKEND_* */
	__u8 pad[5];
};
_Static_assert(sizeof(struct backend) == 16, "a backend's index is its distance from the first");

/* How packets leave towards backends, which share it. Two of them are a cache line. */
struct egress {
	__u8 source[6]; /* MAC address of the interface */
	__u16 vlan; /* id, host order; 0: untagged */
	__u32 ifindex;
	__u16 mtu; /* the largest packet of a client, which a tunnel header makes longer */
	__u8 forward; /* enum forward */
	__u8 pad;
	__u8 local
		[16]; /* local tunnel endpoint; with NAT this node's address towards the backend */
};
_Static_assert(sizeof(struct egress) == 32, "egress has no implicit padding");

/* The rarely needed part of a backend, at the same index. */
struct backend_detail {
	__u8 address[16]; /* with port: identifies the backend to an agent that adopts the maps */
	__be16 port;
	__u8 mac[6]; /* of the backend, for frames within its segment */
	__u32 segment; /* VXLAN or Geneve network identifier */
	__u32 pad;
	struct traffic before; /* value of the counter when the backend got it */
};
_Static_assert(sizeof(struct backend_detail) == 48, "backend_detail has no implicit padding");

enum flow_open {
	FLOW_OPENING, /* only SYNs, or one datagram, have come */
	FLOW_OPEN,
	FLOW_OLDER, /* without a SYN: the present or the previous ring names its backend too */
	FLOW_REOPENED, /* a SYN has come, and the flow's backend takes no new flows */
};

/* A recorded flow. */
struct flow {
	__u32 service; /* number */
	__u32 backend; /* slot, and generation << 16: one store */
	__u32 seen; /* time of the last packet: CLOCK_MONOTONIC >> FLOW_TIME_SHIFT, wraps */
	__u32 place; /* upper half of the hash that selects the ring entry */
	__u8 client[16];
	__be16 port; /* the client's */
	__u8 closing; /* the client has sent FIN or RST with the right sequence number */
	__u8 open; /* enum flow_open */
	__u32 opening; /* with FLOW_REOPENED: the backend of the latest SYN */
	__u32 opening_seq; /* of the latest SYN, with FLOW_OPENING and FLOW_REOPENED */
	__u32 next; /* the client's next sequence number (RFC 9293: SND.NXT) */
};
_Static_assert(sizeof(struct flow) == 48, "flow has no implicit padding");

/* Unit of flow.seen: 2^20 ns, about a millisecond. */
#define FLOW_TIME_SHIFT 20

/* State of a NAT session; it only increases. TCP and UDP have different ones. */
enum nat_state {
	NAT_OPENING = 1, /* TCP: the client's SYN was seen */
	NAT_ANSWERED, /* TCP: the server has answered */
	NAT_ESTABLISHED, /* TCP: the client has acknowledged the answer, so its address isn't forged */
	NAT_CLOSING, /* TCP: FINs from both sides, or a RST with the right sequence number */
	NAT_ONE_WAY, /* UDP: packets from the client only */
	NAT_TWO_WAY, /* UDP: packets from both sides */
};

/*
 * Idle timeouts of sessions that aren't established. Half-open connections get the minute for which
 * servers retransmit SYN-ACKs (RFC 9293, section 3.8.3; RFC 5382, REQ-5 requires more, but for NATs
 * that don't know their servers). Closed connections keep their port for two minutes, the lifetime
 * of a delayed packet (RFC 9293, section 3.4.2), unless no other port is free (nat/port.h). UDP:
 * RFC 4787, REQ-5.
 */
enum nat_seconds {
	NAT_OPENING_SECONDS = 60,
	NAT_CLOSING_SECONDS = 120,
	NAT_ONE_WAY_SECONDS = 30,
};

enum nat_flag {
	NAT_REPLY = 1 << 0, /* the session's entry for packets from the server */
	NAT_FIN_CLIENT = 1 << 1, /* the client has sent a FIN */
	NAT_FIN_SERVER = 1 << 2, /* the server has sent a FIN */
	NAT_PENDING = 1 << 3, /* the entry is in `nat_pending` */
	NAT_RESET = 1 << 4, /* the last segment was a RST with another sequence number */
	/* Of the server's entry: the server has sent nothing since the client's SYN. */
	NAT_SYN = 1 << 5,
	NAT_ASKED = 1 << 6, /* and it should have answered that one or a later one */
};

/*
 * A NAT session: client to VIP on one side, SNAT address to backend on the other. Each direction
 * has an entry with the same content, except for `acked` (nat/session.h).
 */
struct nat_session {
	__u32 seen; /* time of the last packet, to about a second; unit of flow.seen */
	__u8 state; /* enum nat_state */
	__u8 flags; /* NAT_* */
	__u16 service; /* number */
	__u8 client[16];
	__u8 snat[16]; /* this node's address towards the backend */
	__be16 client_port;
	__be16 snat_port;
	__be16 server_port;
	__u16 vlan; /* of the client's packets: id, host order; 0: untagged */
	__u32 acked; /* last TCP acknowledgement number of this entry's direction (nat/state.h) */
	__u32 backend; /* slot, and generation << 16 */
	__u32 ifindex; /* ingress interface of the client's packets */
	__u8 router_mac[6]; /* their source MAC address */
	__u8 local_mac[6]; /* their destination MAC address */
};
_Static_assert(sizeof(struct nat_session) == 72, "nat_session has no implicit padding");

/* An entry at its place in a table of sessions. */
struct session_place {
	__u64 key;
	__u64 near;
	struct nat_session session;
	__u64 pad;
};
_Static_assert(sizeof(struct session_place) == 96, "each place is in two cache lines");
_Static_assert(__builtin_offsetof(struct session_place, session.seen) ==
		       __builtin_offsetof(struct place, seen),
	       "session_place begins as place does");

/* A backend that refused a connection: it answered a SYN with RST. */
struct nat_refusal {
	__u32 service; /* number */
	__u32 backend; /* slot, and generation << 16 */
};

/*
 * XDP metadata of a frame for a backend with BACKEND_HANDOVER. Addresses and ports are translated,
 * a VLAN tag is removed. A tc program forwards the frame with bpf_redirect_neigh
 * (nat_handover.bpf.c).
 */
struct nat_handover {
	__u32 magic; /* NAT_HANDOVER_MAGIC */
	__u32 ifindex; /* device towards the backend; the kernel resolves the next hop */
};

#define NAT_HANDOVER_MAGIC 0x4e415431

/* Maximum number of SNAT addresses of each family. */
#define NAT_ADDRESSES 64

/* Look-ups of recorded flows. */
struct flow_stats {
	__u64 hits; /* packets sent to the recorded backend */
	__u64 misses; /* no record, or its backend isn't usable */
	__u64 inserts; /* new records */
	__u64 unrecorded; /* flows without a record, as there were too many new ones */
};

/* Whether a client may use a service. */
enum access {
	ACCESS_DENIED,
	ACCESS_ALLOWED,
	ACCESS_UNLISTED, /* denied, as only others are allowed: it may be a router on the path to them */
};

/* A prefix in a list of sources. Prefixes include all bits of the list's number. */
struct source_key {
	__u32 prefix_length; /* bits of list and address */
	__u32 list;
	__u8 address[16];
};
_Static_assert(sizeof(struct source_key) == 24, "source_key has no implicit padding");

#define SOURCE_KEY_BITS 160

/* A client whose new flows are limited: an IPv4 address, or the upper half of an IPv6 address. */
struct limit_source {
	__u64 network;
	__u32 service; /* number */
	__u32 pad;
};
_Static_assert(sizeof(struct limit_source) == 16, "limit_source is hashed whole: no padding");

/* A UDP flow of a service whose new flows are limited. */
struct limit_flow {
	__u8 client[16];
	__u32 service; /* number */
	__be16 port; /* the client's */
	__u16 pad;
};
_Static_assert(sizeof(struct limit_flow) == 24, "limit_flow is hashed whole: no padding");

/* A QUIC server ID of a service. */
struct server_key {
	__u32 service; /* number */
	__u8 length;
	__u8 pad[3];
	__u8 id[16]; /* followed by zeros */
};
_Static_assert(sizeof(struct server_key) == 24, "server_key is hashed whole: no padding");

/* A client of a service with VIEW_REMEMBER_CLIENTS: the backend of its latest flow. */
struct client {
	__u32 service; /* number */
	__u32 backend; /* slot, and generation << 16: one store */
	__u64 seen; /* time of the latest flow: CLOCK_MONOTONIC in ns, up to CLIENT_TOUCH late */
	__u8 address[16];
};
_Static_assert(sizeof(struct client) == 32, "client has no implicit padding");

/* The backend with a QUIC server ID. */
struct server {
	__u32 service; /* number */
	__u32 backend; /* slot, and generation << 16: one store */
};
