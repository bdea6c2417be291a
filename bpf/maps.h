/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The two tables (DESIGN.md section 5.1): which service a VIP is, and which backend a flow of that
 * service has; and the flows that the second table alone would send astray (section 5.2). The arrays are memory-mapped by the agent, which writes them without system calls.
 * Sizes are set when the program is loaded.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "types.h"

/*
 * VIP to service number (vip.h). A service keeps its number as long as it lives, so a change of
 * backends never touches this table. Its size is a power of two.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vip_place);
} vips SEC(".maps");

/* Addresses of this node at which VXLAN and Geneve frames may hold a VIP's packet. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, __u8);
} tunnel_ends SEC(".maps");

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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct backend_detail);
} backend_details SEC(".maps");

/* By counter: what `new_flows` had counted there when the backend that has it now got it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} new_flows_before SEC(".maps");

/* Flow hash to recorded flow. Steady traffic never looks here. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct flow);
} flows SEC(".maps");

/* By service number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_stats);
} flow_stats SEC(".maps");

/*
 * Lists of sources, by number. A list doesn't change while a view names it: a new list gets another
 * number.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct source_key);
	__type(value, enum access);
} sources SEC(".maps");

/* Clients of services with limits: when the next flow of each would come. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct limit_source);
	__type(value, __u64);
} limit_sources SEC(".maps");

/* UDP flows that were let in by services with limits. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct limit_flow);
	__type(value, __u8);
} limit_flows SEC(".maps");

/* QUIC server ids to backends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct server_key);
	__type(value, struct server);
} servers SEC(".maps");

/* Hash of service and client to the client (client.h). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct client);
} clients SEC(".maps");

/* By service number: how long a client may begin no flow and still be remembered, in ns. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} client_idle SEC(".maps");

/* The addresses of all VIPs, to their ADDRESS_* flags. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address_key);
	__type(value, __u32);
} addresses SEC(".maps");

/* Nodes with which services are shared, to what they are (enum member). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct member_key);
	__type(value, __u8);
} members SEC(".maps");

/* By kind of answer: the time up to which it is used up (reply.h). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ANSWER_COUNT);
	__type(key, enum answer);
	__type(value, __u64);
} answer_limits SEC(".maps");

/* Fragmented packets of which the first fragment has been seen. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct fragment_key);
	__type(value, struct fragment_ports);
} fragments SEC(".maps");

/* NAT sessions: the hash of a direction's five-tuple to the session (nat_session.h). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct nat_session);
} nat_sessions SEC(".maps");

/* The session, or the entry of one, that a packet is about to make: the stack has no room for it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_session);
} nat_fresh SEC(".maps");

/* The VIP of each service, by its number: what a server's packets are rewritten to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vip_key);
} service_vips SEC(".maps");

/* The node's own SNAT addresses: IPv4 from 0 on, IPv6 from NAT_ADDRESSES on. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * NAT_ADDRESSES);
	__type(key, __u32);
	__type(value, struct address);
} nat_addresses SEC(".maps");

/* Backends that refused connections, for the agent; what it doesn't read in time is lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} nat_refusals SEC(".maps");
