/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters. Every packet leaves the program through exactly one of these exits and is counted
 * there once. The agent takes the names from BTF: COUNTER_PASS_NOT_IP is shown as pass_not_ip.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "types.h"

/* In the order of their verdicts (conclude). */
enum counter {
	/* Not for us: the kernel gets the packet as it came. */
	COUNTER_PASS_NOT_IP, /* neither IPv4 nor IPv6: ARP, LLDP, ... */
	COUNTER_PASS_VLAN_STACKED, /* more than one VLAN tag, a service tag (802.1ad), a tag in a segment */
	COUNTER_PASS_TRUNCATED, /* ends within a header */
	COUNTER_PASS_MALFORMED, /* headers contradict each other */
	COUNTER_PASS_FRAGMENT, /* a later IP fragment for an address that no VIP has */
	COUNTER_PASS_EXTENSION_HEADER, /* more IPv6 extension headers than are walked over */
	COUNTER_PASS_NOT_TCP_UDP, /* another transport, or ICMP that concerns no flow */
	COUNTER_PASS_OVERLAY, /* VXLAN or Geneve that is not for us to open: no identifier, a control
			       * packet, critical options */
	COUNTER_PASS_NOT_VIP, /* no service at this address, port, protocol and segment */
	COUNTER_PASS_BALANCED, /* a VIP's, for this node: another balancer sent it here */
	COUNTER_PASS_OTHER_HOST, /* a VIP's, but the frame is for another station */
	/* A VIP's packet that can't be delivered. */
	COUNTER_DROP_NO_BACKEND, /* the service has no usable backend */
	COUNTER_DROP_FRAGMENT, /* a later fragment whose first one is unknown */
	COUNTER_DROP_TOO_BIG, /* longer than the MTU towards the backend */
	COUNTER_DROP_HEADROOM, /* no room in front of the frame for another header */
	COUNTER_DROP_LOOP, /* would go back to the station that it came from */
	COUNTER_DROP_ANSWER_LIMITED, /* not answered, or asked around, because many others just were */
	COUNTER_DROP_SOURCE_DENIED, /* the client may not use the service */
	COUNTER_DROP_SOURCE_LIMIT, /* the client has begun too many flows */
	COUNTER_DROP_SERVICE_LIMIT, /* the service's clients together have */
	COUNTER_DROP_NO_SESSION, /* NAT: of a connection that is unknown here, and can't be answered */
	COUNTER_DROP_NAT_PORTS, /* NAT: no port is free for another session with the backend */
	COUNTER_DROP_TTL, /* NAT: the packet may make no further hop */
	COUNTER_DROP_STATE, /* ring or backend missing: a defect, never expected */
	/* Sent to a backend. */
	COUNTER_FORWARD_L2DSR,
	COUNTER_FORWARD_IPIP,
	COUNTER_FORWARD_GUE,
	COUNTER_FORWARD_VXLAN,
	COUNTER_FORWARD_GENEVE,
	COUNTER_FORWARD_NAT,
	COUNTER_FORWARD_NAT_HANDOVER, /* by the kernel's side: XDP can't send to the backend */
	COUNTER_FORWARD_RELAY, /* DNAT: to the node that has the backend */
	COUNTER_FORWARD_SELF, /* the backend is this node: its kernel gets the packet as it came */
	COUNTER_FORWARD_ASK, /* DNAT: to the next node, which may know the connection */
	COUNTER_FORWARD_NAT_REPLY, /* from a backend to its client */
	/* Answered by the balancer itself: the frame is the answer, on its way back. */
	COUNTER_ANSWER_ECHO, /* ping */
	COUNTER_ANSWER_TOO_BIG, /* fragmentation needed, or packet too big */
	COUNTER_ANSWER_UNREACHABLE, /* no backend: port or host unreachable */
	COUNTER_ANSWER_RESET, /* no backend: TCP RST */
	COUNTER_COUNT,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTER_COUNT);
	__type(key, enum counter);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* set when loaded: a counter for each backend of each service */
	__type(key, __u32);
	__type(value, struct traffic_chunk);
} backend_stats SEC(".maps");

/* Apart from backend_stats, which every packet writes: these are written when flows begin. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* as many as backend_stats has */
	__type(key, __u32);
	__type(value, struct new_flows_chunk);
} new_flows SEC(".maps");

static __always_inline int is_forward(enum counter exit)
{
	return exit >= COUNTER_FORWARD_L2DSR && exit <= COUNTER_FORWARD_NAT_REPLY;
}

/* Counts the packet at its exit and returns the verdict. */
static __always_inline int leave(enum counter exit, int verdict)
{
	__u64 *count = bpf_map_lookup_elem(&counters, &exit);

	if (count)
		*count += 1;
	return verdict;
}

/* Leaves by an exit that sends nothing to a backend. */
static __always_inline int conclude(enum counter exit)
{
	if (exit >= COUNTER_ANSWER_ECHO)
		return leave(exit, XDP_TX);
	return leave(exit, exit >= COUNTER_DROP_NO_BACKEND ? XDP_DROP : XDP_PASS);
}

static __always_inline void count_backend(__u32 counter, __u64 bytes)
{
	__u32 key = counter / TRAFFIC_CHUNK;
	struct traffic_chunk *chunk = bpf_map_lookup_elem(&backend_stats, &key);
	struct traffic *t;

	if (!chunk)
		return;
	t = &chunk->entry[counter % TRAFFIC_CHUNK];
	t->packets += 1;
	t->bytes += bytes;
}

static __always_inline void count_new_flow(__u32 counter)
{
	__u32 key = counter / TRAFFIC_CHUNK;
	struct new_flows_chunk *chunk = bpf_map_lookup_elem(&new_flows, &key);

	if (chunk)
		chunk->entry[counter % TRAFFIC_CHUNK] += 1;
}
