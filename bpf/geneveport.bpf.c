// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The receiving end of a Geneve segment (RFC 8926), for machines whose kernel has no Geneve devices: of
 * frames of the segment to one of the ends' addresses the kernel gets what is inside. All others pass
 * as they are.
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

/* Returns the bytes of UDP and Geneve, options included, or 0 if this is no frame of the segment. */
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

/* Returns the bytes in front of the frame inside, or 0 if there is none for this end. */
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

	/* Refused, and nothing changed, if less than an Ethernet header would be left. */
	if (outer)
		bpf_xdp_adjust_head(ctx, outer);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
