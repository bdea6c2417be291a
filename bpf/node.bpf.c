// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The other end of a tunnel, on a worker: takes the outer headers off packets that balancers sent to
 * this machine and hands the client's packet to the kernel, which has the VIP on a loopback. Only
 * packets from the given balancers to the given VIPs are opened; all others pass untouched, so that a
 * stranger can't slip forged packets past the network's filters.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "address.h"
#include "tunnel.h"

/* Every packet leaves through exactly one of these exits. */
enum node_counter {
	NODE_COUNTER_PASS_NOT_TUNNEL, /* neither IPIP nor plain GUE; IP options, or a fragment */
	NODE_COUNTER_PASS_TRUNCATED, /* ends within a header */
	NODE_COUNTER_PASS_NOT_LOCAL, /* the outer destination is no tunnel end of this machine */
	NODE_COUNTER_PASS_NOT_VIP, /* the inner destination is none of the VIPs */
	NODE_COUNTER_PASS_NOT_BALANCER, /* the outer source is in none of the allowed prefixes */
	NODE_COUNTER_DROP_HEADROOM, /* the kernel refused to move the frame's start */
	NODE_COUNTER_DECAP_IPIP, /* opened and handed to the kernel */
	NODE_COUNTER_DECAP_GUE,
	NODE_COUNTER_COUNT,
};

struct prefix {
	__u32 length; /* bits, 0 to 128 */
	struct address address;
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
	__type(key, struct address);
	__type(value, __u8);
} node_vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix);
	__type(value, __u8);
} node_balancers SEC(".maps");

/* Outer and inner header of a packet. */
struct tunnel {
	struct prefix source;
	struct address outer;
	struct address inner;
	__be16 proto; /* Ethertype of the inner packet */
	__u16 header; /* bytes of the outer headers */
	__u32 exit; /* enum node_counter, once the tunnel is opened */
};

static __always_inline int leave(enum node_counter exit, int verdict)
{
	__u64 *count = bpf_map_lookup_elem(&node_counters, &exit);

	if (count)
		*count += 1;
	return verdict;
}

static __always_inline enum node_counter parse_inner(void *start, void *end, __u8 protocol,
						     struct tunnel *t)
{
	if (protocol == IPPROTO_IPIP) {
		struct iphdr *ip = start;

		if (start + sizeof(*ip) > end)
			return NODE_COUNTER_PASS_TRUNCATED;
		t->proto = bpf_htons(ETH_P_IP);
		map_ipv4(t->inner.bytes, ip->daddr);
		return NODE_COUNTER_COUNT;
	}
	if (protocol == IPPROTO_IPV6) {
		struct ipv6hdr *ip = start;

		if (start + sizeof(*ip) > end)
			return NODE_COUNTER_PASS_TRUNCATED;
		t->proto = bpf_htons(ETH_P_IPV6);
		__builtin_memcpy(t->inner.bytes, &ip->daddr, 16);
		return NODE_COUNTER_COUNT;
	}
	return NODE_COUNTER_PASS_NOT_TUNNEL;
}

/*
 * GUE as balancers send it, without optional fields. Its UDP checksum is not looked at: the packet
 * inside has one of its own.
 */
static __always_inline enum node_counter parse_gue(void *start, void *end, struct tunnel *t)
{
	struct udphdr *udp = start;
	struct gue_header *gue = (void *)(udp + 1);

	if ((void *)(gue + 1) > end)
		return NODE_COUNTER_PASS_TRUNCATED;
	if (udp->dest != bpf_htons(GUE_PORT) || gue->form || gue->flags)
		return NODE_COUNTER_PASS_NOT_TUNNEL;
	t->header += sizeof(*udp) + sizeof(*gue);
	t->exit = NODE_COUNTER_DECAP_GUE;
	return parse_inner(gue + 1, end, gue->proto, t);
}

/* What follows the outer IP header. */
static __always_inline enum node_counter parse_tunnel(void *start, void *end, __u8 protocol,
						      struct tunnel *t)
{
	if (protocol == IPPROTO_UDP)
		return parse_gue(start, end, t);
	t->exit = NODE_COUNTER_DECAP_IPIP;
	return parse_inner(start, end, protocol, t);
}

/* Returns NODE_COUNTER_COUNT for a tunnel packet, else the exit. */
static __always_inline enum node_counter parse(void *data, void *end, struct tunnel *t)
{
	struct ethhdr *eth = data;
	void *start = eth + 1;

	if (start > end)
		return NODE_COUNTER_PASS_TRUNCATED;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = start;

		if (start + sizeof(*ip) > end)
			return NODE_COUNTER_PASS_TRUNCATED;
		if (ip->version != 4 || ip->ihl != sizeof(*ip) / 4 ||
		    ip->frag_off & bpf_htons(IP_FRAGMENT_MASK))
			return NODE_COUNTER_PASS_NOT_TUNNEL;
		map_ipv4(t->source.address.bytes, ip->saddr);
		map_ipv4(t->outer.bytes, ip->daddr);
		t->header = sizeof(*ip);
		return parse_tunnel(ip + 1, end, ip->protocol, t);
	}
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = start;

		if (start + sizeof(*ip) > end)
			return NODE_COUNTER_PASS_TRUNCATED;
		if (ip->version != 6)
			return NODE_COUNTER_PASS_NOT_TUNNEL;
		__builtin_memcpy(t->source.address.bytes, &ip->saddr, 16);
		__builtin_memcpy(t->outer.bytes, &ip->daddr, 16);
		t->header = sizeof(*ip);
		return parse_tunnel(ip + 1, end, ip->nexthdr, t);
	}
	return NODE_COUNTER_PASS_NOT_TUNNEL;
}

/* Takes the outer headers off; the link-layer addresses stay. Returns 0, or -1 if there is no room. */
static __always_inline int decap(struct xdp_md *ctx, const struct tunnel *t)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr link;

	if ((void *)(eth + 1) > end)
		return -1;
	link = *eth;
	if (bpf_xdp_adjust_head(ctx, t->header))
		return -1;
	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if ((void *)(eth + 1) > end)
		return -1;
	link.h_proto = t->proto;
	*eth = link;
	return 0;
}

SEC("xdp")
int end_tunnel(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct tunnel t = { .source.length = 128 };
	enum node_counter exit;

	exit = parse(data, end, &t);
	if (exit != NODE_COUNTER_COUNT)
		return leave(exit, XDP_PASS);
	if (!bpf_map_lookup_elem(&node_addresses, &t.outer))
		return leave(NODE_COUNTER_PASS_NOT_LOCAL, XDP_PASS);
	if (!bpf_map_lookup_elem(&node_vips, &t.inner))
		return leave(NODE_COUNTER_PASS_NOT_VIP, XDP_PASS);
	if (!bpf_map_lookup_elem(&node_balancers, &t.source))
		return leave(NODE_COUNTER_PASS_NOT_BALANCER, XDP_PASS);
	if (decap(ctx, &t))
		return leave(NODE_COUNTER_DROP_HEADROOM, XDP_DROP);
	return leave(t.exit, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
