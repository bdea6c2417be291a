// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Health probes along the real path (DESIGN.md section 5.5). A probe is a packet to a VIP whose socket
 * mark names one backend. It is routed into a veth pair: `address_probe`, at the end that it enters by,
 * writes what the mark says into the frame, and `send_probe`, at the other end, sends it to the backend
 * by the balancer's own code and tables.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "address.h"
#include "encap.h"
#include "hash.h"
#include "maps.h"
#include "packet.h"
#include "stats.h"
#include "transport.h"
#include "types.h"

/* A probe's mark: PROBE_MARK, and the number of its target. */
enum probe_mark {
	PROBE_NUMBER = 0x000fffff,
	PROBE_MARK = 0x3fa00000,
};

/* Where the target's number is in the destination address between the two ends; behind 2 bytes. */
#define NUMBER_OFFSET 2

/* What became of probes: each is counted once. */
enum probe_counter {
	PROBE_COUNTER_SENT,
	PROBE_COUNTER_NO_MARK, /* no probe, or one of an earlier agent */
	PROBE_COUNTER_NO_TARGET, /* the way has been closed */
	PROBE_COUNTER_NO_NEXT_HOP, /* nobody knows how the backend is reached */
	PROBE_COUNTER_REFUSED, /* the data plane would not forward it either: no IP packet, too big */
	PROBE_COUNTER_COUNT,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROBE_COUNTER_COUNT);
	__type(key, enum probe_counter);
	__type(value, __u64);
} probe_counters SEC(".maps");

/* By number: where the target is in `backends`, plus 1. 0 is no target. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set when loaded */
	__type(key, __u32);
	__type(value, __u32);
} probe_targets SEC(".maps");

/* Never read: it keeps the enumeration in the BTF, where Go takes it from. */
const enum probe_mark *const btf_probe_mark = 0;

static __always_inline int count_probe(enum probe_counter counter, int verdict)
{
	__u64 *count = bpf_map_lookup_elem(&probe_counters, &counter);

	if (count)
		*count += 1;
	return verdict;
}

SEC("tc")
int address_probe(struct __sk_buff *skb)
{
	__be32 number = bpf_htonl(skb->mark & PROBE_NUMBER);

	if ((skb->mark & ~PROBE_NUMBER) != PROBE_MARK)
		return count_probe(PROBE_COUNTER_NO_MARK, TC_ACT_SHOT);
	if (bpf_skb_store_bytes(skb, NUMBER_OFFSET, &number, sizeof(number), 0))
		return count_probe(PROBE_COUNTER_REFUSED, TC_ACT_SHOT);
	return TC_ACT_OK;
}

/*
 * What encapsulation needs to know of a packet. It comes from this machine's own network stack: it is
 * whole and sound, and there is nothing behind it in the frame. Of fragments and of what has no ports
 * where they are looked for, the hash knows the addresses.
 */
static __always_inline int read_ipv4(void *start, void *end, struct packet *p, __u8 *protocol)
{
	struct iphdr *ip = start;

	if ((void *)(ip + 1) > end)
		return -1;
	p->ipv4 = 1;
	p->tos = ip->tos;
	map_ipv4(p->source, ip->saddr);
	map_ipv4(p->vip.address, ip->daddr);
	*protocol = ip->frag_off & bpf_htons(IP_FRAGMENT_MASK) ? 0 : ip->protocol;
	return ip->ihl * 4;
}

static __always_inline int read_ipv6(void *start, void *end, struct packet *p, __u8 *protocol)
{
	struct ipv6hdr *ip = start;

	if ((void *)(ip + 1) > end)
		return -1;
	p->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	__builtin_memcpy(p->source, &ip->saddr, 16);
	__builtin_memcpy(p->vip.address, &ip->daddr, 16);
	*protocol = ip->nexthdr;
	return sizeof(*ip);
}

static __always_inline int read_probe(struct xdp_md *ctx, struct packet *p)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	int header = -1;
	__u8 protocol = 0;

	if ((void *)(eth + 1) > end)
		return -1;
	p->proto = eth->h_proto;
	p->length = ctx->data_end - ctx->data - sizeof(*eth);
	if (p->proto == bpf_htons(ETH_P_IP))
		header = read_ipv4(eth + 1, end, p, &protocol);
	else if (p->proto == bpf_htons(ETH_P_IPV6))
		header = read_ipv6(eth + 1, end, p, &protocol);
	if (header < 0)
		return -1;
	if (has_ports(protocol))
		parse_ports((void *)(eth + 1) + (header & 0x3f), end, header, protocol, p);
	return 0;
}

static __always_inline __u32 target_number(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	__be32 number;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return PROBE_NUMBER;
	__builtin_memcpy(&number, eth->h_dest + NUMBER_OFFSET, sizeof(number));
	return bpf_ntohl(number);
}

SEC("xdp")
int send_probe(struct xdp_md *ctx)
{
	__u32 index, number = target_number(ctx);
	__u32 *target = bpf_map_lookup_elem(&probe_targets, &number);
	struct packet packet = {};
	struct backend *backend;
	enum counter exit;

	if (!target || !*target)
		return count_probe(PROBE_COUNTER_NO_TARGET, XDP_DROP);
	index = *target - 1;
	backend = bpf_map_lookup_elem(&backends, &index);
	if (!backend || !backend->ifindex)
		return count_probe(PROBE_COUNTER_NO_NEXT_HOP, XDP_DROP);
	if (read_probe(ctx, &packet))
		return count_probe(PROBE_COUNTER_REFUSED, XDP_DROP);
	exit = encap(ctx, &packet, backend, flow_hash(&packet, vip_hash(&packet), 0));
	if (!is_forward(exit) || exit == COUNTER_FORWARD_SELF)
		return count_probe(PROBE_COUNTER_REFUSED, XDP_DROP);
	return count_probe(PROBE_COUNTER_SENT, bpf_redirect(backend->ifindex, 0));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
