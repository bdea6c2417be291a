// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The laboratory's programs: senders, sinks and reflectors of measurements, and ports for kernels
 * without VLAN and Geneve devices. Each is loaded on its own.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/header.h"
#include "load.h"

/* Sizes of a mix: packets of 40, 576 and 1500 bytes, of which Ethernet pads the small ones. */
#define MIX_SMALL 60
#define MIX_MEDIUM 590
#define MIX_LARGE 1514

/* The size of the next frame of a mix. All sizes are interleaved. */
static __always_inline __u32 mixed_size(void)
{
	__u32 place = sequence * 7 % (load.mix[0] + load.mix[1] + load.mix[2]);

	if (place < load.mix[0])
		return MIX_SMALL;
	return place < load.mix[0] + load.mix[1] ? MIX_MEDIUM : MIX_LARGE;
}

/*
 * Sends the next packet of the load, run with live frames. Every frame arrives with its full size,
 * whatever happened to the previous one.
 */
SEC("xdp")
int transmit(struct xdp_md *ctx)
{
	__u32 size = load.size;

	mark_time();
	if (!size) {
		size = mixed_size();
		if (bpf_xdp_adjust_tail(ctx, (int)size - MIX_LARGE))
			return XDP_ABORTED;
	}
	if (write_packet(ctx, next_flow(), size))
		return XDP_ABORTED;
	return bpf_redirect(load.ifindex, 0);
}

/* The program under test. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} behind SEC(".maps");

/*
 * Generates the next packet, untagged and of one size, for a program that is measured alone. Each
 * run gets the frame as the previous one left it. Its start is moved even if it needn't be, so that
 * the cost is the same in front of every program.
 */
SEC("xdp")
int front(struct xdp_md *ctx)
{
	__s64 length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	/* clang would subtract 32 bits, which the verifier rejects for pointers. */
	barrier_var(length);
	mark_time();
	if (bpf_xdp_adjust_head(ctx, (int)length - load.size))
		return XDP_ABORTED;
	if (write_packet(ctx, next_flow(), load.size))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &behind, 0);
	return XDP_ABORTED;
}

/* Counts and drops frames: the receiver in measurements. */
struct received {
	__u64 frames;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct received);
} received SEC(".maps");

SEC("xdp")
int swallow(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct received *r = bpf_map_lookup_elem(&received, &key);

	if (r) {
		r->frames += 1;
		r->bytes += ctx->data_end - ctx->data;
	}
	return XDP_DROP;
}

/*
 * Sends every frame back to its sender: the least that a program can do with a packet, and the
 * baseline of measurements.
 */
SEC("xdp")
int bounce(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	__u8 address[ETH_ALEN];

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	__builtin_memcpy(address, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, address, ETH_ALEN);
	return XDP_TX;
}

/*
 * An access port of a VLAN, for kernels without VLAN devices: it tags outgoing frames, untags
 * incoming ones and drops incoming frames without the tag.
 */

const volatile __u16 vlan_id = 0;

SEC("tc")
int untag(struct __sk_buff *skb)
{
	if (!skb->vlan_present || (skb->vlan_tci & VLAN_ID_MASK) != vlan_id)
		return TC_ACT_SHOT;
	if (bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

SEC("tc")
int tag(struct __sk_buff *skb)
{
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), vlan_id))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

/*
 * A tunnel endpoint of a Geneve segment (RFC 8926), for kernels without Geneve devices: frames of
 * the segment to one of the endpoint's addresses are decapsulated. All others pass unchanged.
 */

#define ENDS 2 /* one of each family */

const volatile __u32 segment_id = 0;
const volatile __u32 ends[ENDS][4] = {}; /* struct address; :: is none */

static __always_inline int is_end(const struct address *address)
{
	const __u32 *words = (const __u32 *)address->bytes;

	for (int i = 0; i < ENDS; i++)
		if (words[0] == ends[i][0] && words[1] == ends[i][1] && words[2] == ends[i][2] &&
		    words[3] == ends[i][3])
			return 1;
	return 0;
}

/* Returns the length of UDP and Geneve headers, or 0 if this isn't a frame of the segment. */
static __always_inline __u32 parse_geneve(void *start, void *end)
{
	struct udphdr *udp = start;
	struct geneve_header *geneve = (void *)(udp + 1);

	if ((void *)(geneve + 1) > end || udp->dest != bpf_htons(GENEVE_PORT))
		return 0;
	if (geneve->form & GENEVE_VERSION || geneve->flags & GENEVE_NOT_DATA ||
	    geneve->proto != bpf_htons(GENEVE_ETHERNET))
		return 0;
	if (bpf_ntohl(geneve->vni) >> 8 != segment_id)
		return 0;
	return sizeof(*udp) + sizeof(*geneve) + (geneve->form & GENEVE_LENGTH) * 4;
}

/* Returns the offset of the inner frame, or 0 if there is none for this endpoint. */
static __always_inline __u32 parse(void *data, void *end)
{
	struct ethhdr *eth = data;
	void *start = eth + 1, *transport;
	struct address address;
	__u32 length;

	if (start > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = start;

		transport = ip + 1;
		if (transport > end || ip->ihl != sizeof(*ip) / 4 || ip->protocol != IPPROTO_UDP ||
		    ip->frag_off & bpf_htons(IP_FRAGMENT_MASK))
			return 0;
		map_ipv4(address.bytes, ip->daddr);
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = start;

		transport = ip + 1;
		if (transport > end || ip->nexthdr != IPPROTO_UDP)
			return 0;
		__builtin_memcpy(address.bytes, &ip->daddr, sizeof(address));
	} else {
		return 0;
	}
	length = parse_geneve(transport, end);
	return length && is_end(&address) ? transport - data + length : 0;
}

SEC("xdp")
int open_segment(struct xdp_md *ctx)
{
	__u32 outer = parse((void *)(long)ctx->data, (void *)(long)ctx->data_end);

	/* Fails without effect if less than an Ethernet header would be left. */
	if (outer)
		bpf_xdp_adjust_head(ctx, outer);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
