/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The path of packets to the client. With NAT it is the reverse of the path of the client's
 * packets. With DSR a peer may have relayed those, so replies follow this node's routes.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/address.h"
#include "core/packet.h"
#include "core/types.h"

#define FAMILY_IPV4 2 /* AF_INET, whose header isn't usable in BPF programs */
#define FAMILY_IPV6 10

/*
 * Looks up the route of a packet that arrived through interface `fib->ifindex`; `fib` has the
 * protocol and the ports, too. Returns a BPF_FIB_LKUP_RET_*, or < 0.
 */
static __always_inline long find_route(void *ctx, const __u8 source[16], const __u8 destination[16],
				       struct bpf_fib_lookup *fib)
{
	if (is_mapped(destination)) {
		fib->family = FAMILY_IPV4;
		fib->ipv4_src = unmap_ipv4(source);
		fib->ipv4_dst = unmap_ipv4(destination);
	} else {
		fib->family = FAMILY_IPV6;
		__builtin_memcpy(fib->ipv6_src, source, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, destination, sizeof(fib->ipv6_dst));
	}
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

/* Looks up the route from a VIP to a client. Returns a BPF_FIB_LKUP_RET_*, or < 0. */
static __always_inline long find_client_route(void *ctx, const struct vip_key *vip,
					      const __u8 client[16], __be16 client_port,
					      __u32 ingress, struct bpf_fib_lookup *fib)
{
	fib->l4_protocol = vip->protocol;
	fib->sport = vip->port;
	fib->dport = client_port;
	fib->ifindex = ingress;
	return find_route(ctx, vip->address, client, fib);
}

/* Egress interface and link-layer header of packets to the client. The addresses are aligned. */
struct path {
	__u8 destination[ETH_ALEN];
	__u16 vlan; /* id, host order; 0: untagged */
	__u8 source[ETH_ALEN];
	__u16 pad;
	__u32 ifindex;
};

/* The reverse of the path of the client's packets. */
static __always_inline void reverse_path(const struct nat_session *s, struct path *path)
{
	copy_mac(path->destination, s->router_mac);
	copy_mac(path->source, s->local_mac);
	path->vlan = s->vlan;
	path->ifindex = s->ifindex;
}

/* Stores the path of a client's packet, for replies. */
static __always_inline int read_path(struct xdp_md *ctx, const struct packet *p,
				     struct nat_session *s)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return -1;
	copy_mac(s->router_mac, eth->h_source);
	copy_mac(s->local_mac, eth->h_dest);
	s->vlan = bpf_ntohs(p->tci) & VLAN_ID_MASK;
	s->ifindex = ctx->ingress_ifindex;
	return 0;
}

/* Whether a client's packet took another path than the previous ones. */
static __always_inline int is_rerouted(struct xdp_md *ctx, const struct packet *p,
				       const struct nat_session *s)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	return !same_mac(s->router_mac, eth->h_source) ||
	       s->vlan != (bpf_ntohs(p->tci) & VLAN_ID_MASK) || s->ifindex != ctx->ingress_ifindex;
}
