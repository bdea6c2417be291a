// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Health probes along the data path. A probe is a packet to a VIP whose socket mark identifies a
 * backend. It is routed into a veth pair. At the first device, `address_probe` copies the mark into
 * the frame; at the second one, `send_probe` sends the packet to the backend with the balancer's
 * code and tables.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/hash.h"
#include "core/maps.h"
#include "core/packet.h"
#include "core/stats.h"
#include "core/types.h"
#include "parse/transport.h"
#include "send/encap.h"

/* The mark of a probe: PROBE_MARK, and the number of its target. */
enum probe_mark {
	PROBE_NUMBER = 0x000fffff,
	PROBE_MARK = 0x3fa00000,
};

/* Offset of the target's number in the destination MAC address. */
#define NUMBER_OFFSET 2

/* Every probe is counted once. */
enum probe_counter {
	PROBE_COUNTER_SENT,
	PROBE_COUNTER_NO_MARK, /* not a probe, or one of an earlier agent */
	PROBE_COUNTER_NO_TARGET, /* the target has been removed */
	PROBE_COUNTER_NO_NEXT_HOP, /* the backend's next hop is unknown */
	PROBE_COUNTER_REFUSED, /* the data plane wouldn't forward it: not IP, or too big */
	PROBE_COUNTER_COUNT,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROBE_COUNTER_COUNT);
	__type(key, enum probe_counter);
	__type(value, __u64);
} probe_counters SEC(".maps");

/* By number: index of the target in `backends`, plus 1; 0: no target. */
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
 * Parses what encapsulation needs. Probes come from this machine's network stack, so they are
 * well-formed and fill the frame. Without ports, as for fragments, the hash covers the addresses
 * only.
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
	const struct egress *out;
	struct backend *backend;
	enum counter exit;

	if (!target || !*target)
		return count_probe(PROBE_COUNTER_NO_TARGET, XDP_DROP);
	index = *target - 1;
	backend = element(backends, index, backend_count);
	out = backend ? egress_of(backend) : NULL;
	if (!out || !out->ifindex)
		return count_probe(PROBE_COUNTER_NO_NEXT_HOP, XDP_DROP);
	if (read_probe(ctx, &packet))
		return count_probe(PROBE_COUNTER_REFUSED, XDP_DROP);
	exit = encap(ctx, &packet, backend, out, flow_hash(&packet, 0));
	if (!is_forward(exit) || exit == COUNTER_FORWARD_LOCAL)
		return count_probe(PROBE_COUNTER_REFUSED, XDP_DROP);
	return count_probe(PROBE_COUNTER_SENT, bpf_redirect(out->ifindex, 0));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
