/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Maps. The fast path uses two of them: `vips` maps a VIP to its service, `rings` a flow of the
 * service to its backend. The agent writes arrays through memory mappings, without system calls.
 * Most sizes are set at load time.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/config.h"
#include "core/types.h"

/*
 * An element of an array, or NULL beyond its end. User space makes the whole array one value, and
 * replaces the map by its address when it loads a program: a look-up would read the address, and
 * take its index from the stack.
 */
#define element(map, index, count)                                       \
	({                                                               \
		typeof((map).value) element_ = NULL;                     \
		__u64 index_ = (__u32)(index);                           \
		asm volatile("" : "+r"(index_));                         \
		if (index_ < (count)) {                                  \
			element_ = (typeof((map).value))&(map);          \
			asm volatile("" : "+r"(element_), "+r"(index_)); \
			element_ += index_;                              \
		}                                                        \
		element_;                                                \
	})

/*
 * VIP to service number (core/vip.h). A service keeps its number for life: a change of backends
 * doesn't touch this table. The size is a power of two.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vip_place);
} vips SEC(".maps");

/* Tunnel endpoints of this node: VXLAN and Geneve to them may contain packets for VIPs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, __u8);
} tunnel_ends SEC(".maps");

/* The outer source addresses from which VXLAN and Geneve are decapsulated. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_TUNNEL_PEERS);
	__type(key, struct prefix_key);
	__type(value, __u8);
} tunnel_peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ring_chunk);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct backend);
} backends SEC(".maps");

/* Index 0 is that of unused slots. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct egress);
} egress SEC(".maps");

/*
 * By the index of a backend: remote tunnel endpoint; with NAT the backend's address. Packets of L2
 * DSR need none.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct address);
} remotes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct backend_detail);
} backend_details SEC(".maps");

/* By counter: value of `new_flows` when the present backend got the counter. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} new_flows_before SEC(".maps");

/* Flow hash to recorded flow. Flows on stable ring entries need no look-up. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct flow);
} flows SEC(".maps");

/*
 * The same for flows whose client hasn't followed its first packet, and for those that the previous
 * ring knows: a flood of forged packets evicts only these.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct flow);
} flows_pending SEC(".maps");

/* By service number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_stats);
} flow_stats SEC(".maps");

/*
 * Lists of sources, by number. A list doesn't change while a view refers to it: a new list gets
 * another number.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct source_key);
	__type(value, enum access);
} sources SEC(".maps");

/* Clients of services with limits: theoretical arrival time of the client's next flow. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct limit_source);
	__type(value, __u64);
} limit_sources SEC(".maps");

/* UDP flows accepted by services with limits. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct limit_flow);
	__type(value, __u8);
} limit_flows SEC(".maps");

/* QUIC server ID to backend. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct server_key);
	__type(value, struct server);
} servers SEC(".maps");

/* Hash of service and client to the client (pick/client.h). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct client);
} clients SEC(".maps");

/* By service number: idle timeout of clients, in ns. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} client_idle SEC(".maps");

/* Address of a VIP to its ADDRESS_* flags. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address_key);
	__type(value, __u32);
} addresses SEC(".maps");

/* The aggregates that this node announces. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_AGGREGATES);
	__type(key, struct prefix_key);
	__type(value, __u8);
} aggregates SEC(".maps");

/* Peer to enum peer. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct peer_key);
	__type(value, __u8);
} peers SEC(".maps");

/* By kind of answer: state of its token bucket (answer/reply.h). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RATE_COUNT);
	__type(key, enum rate);
	__type(value, __u64);
} rates SEC(".maps");

/* By service number: theoretical arrival time of the next peer look-up (translate/lookup.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lookups SEC(".maps");

/*
 * By service number: theoretical arrival time of the next "too big" answer (answer/error.h). Servers'
 * packets have number 0.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} mtu_answers SEC(".maps");

/* Fragmented packets of which the first fragment has been seen. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct fragment_key);
	__type(value, struct fragment_ports);
} fragments SEC(".maps");

/* For the next agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct secrets);
} secrets SEC(".maps");

/* Entries of NAT sessions at their places (nat/places.h): established and closing ones. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct session_place);
} nat_sessions SEC(".maps");

/*
 * The same for sessions whose client hasn't proved its address: a flood of forged packets evicts
 * only these.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct session_place);
} nat_pending SEC(".maps");

/*
 * The session, or the entry of one, that a packet is about to make: the stack has no room for it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_session);
} nat_fresh SEC(".maps");

/* Whether the session of the processor's last datagram was in `nat_pending`. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} nat_one_way SEC(".maps");

/* By service number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct service_detail);
} service_details SEC(".maps");

/* SNAT addresses of the node: IPv4 from 0 on, IPv6 from NAT_ADDRESSES on. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * NAT_ADDRESSES);
	__type(key, __u32);
	__type(value, struct address);
} nat_addresses SEC(".maps");

/* Backends that refused connections, for the agent. Entries that don't fit are lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} nat_refusals SEC(".maps");
