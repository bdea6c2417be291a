/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Load for measurements: packets of many flows to some VIPs. Each packet belongs to another flow,
 * and is complete and valid, checksums included.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/types.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Common properties of the packets. Ports and addresses are in wire order. */
struct load_shape {
	__be32 macs[3]; /* destination and source, as in a frame */
	__u8 ipv6;
	__u8 protocol; /* IANA number: TCP or UDP */
	__u8 syn; /* TCP: SYN instead of ACK */
	__u8 pad;
	__be16 port; /* of the VIPs */
	__u16 size; /* of a frame without its tag, in bytes; 0: a mix */
	__u16 mix[3]; /* numbers of small, medium and large frames, see mixed_size() */
	__be16 vlan; /* VLAN ID; 0: frames have no tag */
	__u32 flow_bits; /* there are 2^flow_bits flows */
	__u32 vips; /* number of VIPs; a power of two */
	__be32 client[4]; /* address of flow 0 */
	__be32 vip[4]; /* address of VIP 0 */
	__u32 prefix_sum; /* checksum of the first 12 bytes of both addresses */
	__u32 ifindex; /* egress interface */
};

const volatile struct load_shape load = {};

/* Number of packets so far. The program runs on one processor at a time. */
__u64 sequence = 0;

/*
 * Times of packets (CLOCK_MONOTONIC, in ns), from which user space calculates the duration of a run
 * without its start and end. Reading the clock for every packet would cost too much.
 */
#define MARK_DISTANCE 1024

struct mark {
	__u64 sequence;
	__u64 time; /* 0: none yet */
};

struct mark first_mark = {}; /* cleared before a run */
struct mark last_mark = {};

static __always_inline void mark_time(void)
{
	if (sequence % MARK_DISTANCE)
		return;
	last_mark.time = bpf_ktime_get_ns();
	last_mark.sequence = sequence;
	if (!first_mark.time)
		first_mark = last_mark;
}

#define CLIENT_BITS \
	16 /* of a flow's number, for the client's address; the others are for its port */
#define FIRST_CLIENT_PORT 1024
#define LOAD_TTL 64
#define VLAN_TAG 4 /* bytes of a tag (IEEE 802.1Q) */
#define DONT_FRAGMENT 0x4000

/*
 * The flow of the next packet. The sequence visits all flows, then all again in another order, so
 * that caches can't predict the next one and memory isn't accessed in the order of its allocation
 * (an odd multiplier and an exclusive or are permutations modulo a power of two).
 */
static __always_inline __u32 next_flow(void)
{
	__u64 n = sequence++;
	__u32 walk = n >> load.flow_bits;

	return ((__u32)n * 0x9e3779b1u ^ walk * 0x85ebca6bu) & ((1u << load.flow_bits) - 1);
}

/* The address number `number` after `first`. */
static __always_inline __be32 nth(__be32 first, __u32 number)
{
	return bpf_htonl(bpf_ntohl(first) + number);
}

/* One's complement sum (RFC 1071) of a 32-bit word. */
static __always_inline __u32 sum_word(__be32 word)
{
	return (word & 0xffff) + (word >> 16);
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Writes the transport header; `sum` is that of the addresses, `length` is in bytes. */
static __always_inline void write_transport(void *start, __be16 port, __u32 sum, __u32 length)
{
	__be16 size = bpf_htons(length);

	sum += bpf_htons(load.protocol) + size + port + load.port;
	if (load.protocol == IPPROTO_UDP) {
		struct udphdr *udp = start;

		udp->source = port;
		udp->dest = load.port;
		udp->len = size;
		udp->check = fold(sum + size);
	} else {
		struct tcphdr *tcp = start;
		__be32 *words = start;
		__be32 shape = load.syn ? bpf_htonl(0x5002ffff) : bpf_htonl(0x5010ffff);

		tcp->source = port;
		tcp->dest = load.port;
		tcp->seq = bpf_htonl(1);
		tcp->ack_seq = bpf_htonl(1);
		words[3] = shape; /* length of the header, flags, window */
		tcp->check = fold(sum + bpf_htons(1) + bpf_htons(1) + sum_word(shape));
		tcp->urg_ptr = 0;
	}
}

/* Writes the IPv4 header of a packet of `length` bytes. Returns the addresses' sum. */
static __always_inline __u32 write_ipv4(struct iphdr *ip, __be32 client, __be32 vip, __u32 length)
{
	__u32 addresses = sum_word(client) + sum_word(vip);

	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = 0;
	ip->tot_len = bpf_htons(length);
	ip->id = 0;
	ip->frag_off = bpf_htons(DONT_FRAGMENT);
	ip->ttl = LOAD_TTL;
	ip->protocol = load.protocol;
	ip->saddr = client;
	ip->daddr = vip;
	ip->check = fold(addresses + bpf_htons(0x4500) + bpf_htons(length) +
			 bpf_htons(DONT_FRAGMENT) + bpf_htons(LOAD_TTL << 8 | load.protocol));
	return addresses;
}

/* Writes the IPv6 header of a packet of `length` bytes. Returns the addresses' sum. */
static __always_inline __u32 write_ipv6(struct ipv6hdr *ip, __be32 client, __be32 vip, __u32 length)
{
	*(__be32 *)ip = bpf_htonl(6 << 28);
	ip->payload_len = bpf_htons(length - sizeof(*ip));
	ip->nexthdr = load.protocol;
	ip->hop_limit = LOAD_TTL;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		ip->saddr.s6_addr32[i] = load.client[i];
		ip->daddr.s6_addr32[i] = load.vip[i];
	}
	ip->saddr.s6_addr32[3] = client;
	ip->daddr.s6_addr32[3] = vip;
	return load.prefix_sum + sum_word(client) + sum_word(vip);
}

/*
 * Writes the headers of a flow's packet into a frame of `size` bytes, a tag not counted. Returns 0 if
 * they fit.
 */
static __always_inline int write_packet(struct xdp_md *ctx, __u32 flow, __u32 size)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	__be32 client = nth(load.client[3], flow & ((1 << CLIENT_BITS) - 1));
	__be16 port = bpf_htons(FIRST_CLIENT_PORT + (flow >> CLIENT_BITS));
	__be32 vip = nth(load.vip[3], flow & (load.vips - 1));
	__u32 header = load.ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u32 length = size - sizeof(*eth);
	void *ip = (void *)(eth + 1) + (load.vlan ? VLAN_TAG : 0);
	__u32 sum;

	if (ip + header + sizeof(struct tcphdr) > end)
		return -1;
#pragma unroll
	for (int i = 0; i < 3; i++)
		((__be32 *)eth)[i] = load.macs[i];
	if (load.vlan) {
		eth->h_proto = bpf_htons(ETH_P_8021Q);
		((__be16 *)ip)[-2] = load.vlan;
	}
	((__be16 *)ip)[-1] = load.ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	if (load.ipv6)
		sum = write_ipv6(ip, client, vip, length);
	else
		sum = write_ipv4(ip, client, vip, length);
	write_transport(ip + header, port, sum, length - header);
	return 0;
}
