/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way to the client of packets from the server. With NAT it is the one by which the client's packets
 * come. With DNAT those may have come from another balancer, which has no more to do with the connection:
 * answers take the way that this node's routes say.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

#include "address.h"
#include "nat_state.h"
#include "types.h"

#define FAMILY_IPV4 2 /* AF_INET, which has no header for programs */
#define FAMILY_IPV6 10

/* Asks this node's routes for the way from a VIP to its client. Returns a BPF_FIB_LKUP_RET_*, or < 0. */
static __always_inline long find_route(void *ctx, const struct vip_key *vip, const __u8 client[16],
				       __be16 client_port, __u32 ingress,
				       struct bpf_fib_lookup *fib)
{
	fib->l4_protocol = vip->protocol;
	fib->sport = vip->port;
	fib->dport = client_port;
	fib->ifindex = ingress;
	if (is_mapped(client)) {
		fib->family = FAMILY_IPV4;
		fib->ipv4_src = unmap_ipv4(vip->address);
		fib->ipv4_dst = unmap_ipv4(client);
	} else {
		fib->family = FAMILY_IPV6;
		__builtin_memcpy(fib->ipv6_src, vip->address, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, client, sizeof(fib->ipv6_dst));
	}
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

/* The link layer of a packet to the client. */
struct way {
	__u8 destination[ETH_ALEN];
	__u8 source[ETH_ALEN];
	__u16 vlan; /* id, host order; 0: untagged */
	__u16 pad;
	__u32 ifindex;
};

/* The way by which the client's packets come, back. */
static __always_inline void way_back(const struct nat_session *s, struct way *way)
{
	__builtin_memcpy(way->destination, s->router, ETH_ALEN);
	__builtin_memcpy(way->source, s->own, ETH_ALEN);
	way->vlan = s->vlan;
	way->ifindex = s->ifindex;
}
