// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The tunnel endpoint of a worker: decapsulates packets from balancers and passes the client's
 * packet to the kernel, which has the VIP on a loopback. Only packets from the configured balancers
 * to the configured VIPs are decapsulated, so that other hosts can't bypass the network's filters:
 * those to address, port and protocol, their later fragments, and ICMP errors about their answers.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/exit.h"
#include "core/packet.h"
#include "parse/decap.h"

/* Every packet leaves through exactly one of these exits. */
enum node_counter {
	NODE_COUNTER_PASS_NOT_TUNNEL, /* neither IPIP nor plain GUE; IP options, or a fragment */
	NODE_COUNTER_PASS_TRUNCATED, /* ends within a header */
	NODE_COUNTER_PASS_NOT_LOCAL, /* the outer destination isn't an address of this machine */
	NODE_COUNTER_PASS_NOT_VIP, /* the inner packet isn't for a VIP */
	NODE_COUNTER_PASS_FORGED, /* the inner source is an address of this machine, or of no host */
	NODE_COUNTER_PASS_NOT_BALANCER, /* the outer source isn't in an allowed prefix */
	NODE_COUNTER_DROP_HEADROOM, /* the kernel refused to move the frame's start */
	NODE_COUNTER_DROP_CONGESTED, /* a congestion mark on a packet whose sender does not understand it */
	NODE_COUNTER_DECAP_IPIP, /* decapsulated and passed to the kernel */
	NODE_COUNTER_DECAP_GUE,
	NODE_COUNTER_COUNT,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NODE_COUNTER_COUNT);
	__type(key, enum node_counter);
	__type(value, __u64);
} node_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct address);
	__type(value, __u8);
} node_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct vip_key); /* without port and protocol: of later fragments */
	__type(value, __u8);
} node_vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix_key);
	__type(value, __u8);
} node_balancers SEC(".maps");

static __always_inline int exit_with(enum node_counter exit, int verdict)
{
	__u64 *count = bpf_map_lookup_elem(&node_counters, &exit);

	if (count)
		*count += 1;
	return verdict;
}

/* Whether the inner packet is for a VIP. */
static __always_inline int is_for_vip(struct xdp_md *ctx, const struct tunnel *t)
{
	struct packet inner = {};

	return parse_inner(ctx, t, &inner) == CONTINUE &&
	       bpf_map_lookup_elem(&node_vips, &inner.vip);
}

SEC("xdp")
int end_tunnel(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct prefix_key source = { .prefix_length = 128 };
	struct tunnel t = {};
	enum tunnel_form form;

	form = read_tunnel(data, end, &t);
	if (form == TUNNEL_TRUNCATED)
		return exit_with(NODE_COUNTER_PASS_TRUNCATED, XDP_PASS);
	if (form != TUNNEL_VALID)
		return exit_with(NODE_COUNTER_PASS_NOT_TUNNEL, XDP_PASS);
	if (!bpf_map_lookup_elem(&node_addresses, &t.destination))
		return exit_with(NODE_COUNTER_PASS_NOT_LOCAL, XDP_PASS);
	if (!is_for_vip(ctx, &t))
		return exit_with(NODE_COUNTER_PASS_NOT_VIP, XDP_PASS);
	__builtin_memcpy(source.address, t.source.bytes, sizeof(source.address));
	if (!bpf_map_lookup_elem(&node_balancers, &source))
		return exit_with(NODE_COUNTER_PASS_NOT_BALANCER, XDP_PASS);
	if (!is_unicast(t.sender.bytes) || bpf_map_lookup_elem(&node_addresses, &t.sender))
		return exit_with(NODE_COUNTER_PASS_FORGED, XDP_PASS);
	switch (decap(ctx, &t)) {
	case DECAP_FAILED:
		return exit_with(NODE_COUNTER_DROP_HEADROOM, XDP_DROP);
	case DECAP_CONGESTED:
		return exit_with(NODE_COUNTER_DROP_CONGESTED, XDP_DROP);
	case DECAP_DONE:
		break;
	}
	return exit_with(t.forward == FORWARD_GUE ? NODE_COUNTER_DECAP_GUE
						  : NODE_COUNTER_DECAP_IPIP,
			 XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
