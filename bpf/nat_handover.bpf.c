// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * NAT to backends that XDP can't send to, for example behind an overlay's tunnel device. XDP has
 * translated the packet and set its device in the metadata (struct nat_handover). The kernel
 * resolves the next hop and writes the link-layer header. The packet bypasses the rest of the
 * network stack: the node needs no forwarding, and no exception for packets with its own source
 * addresses.
 *
 * Packets with the loopback interface continue in the network stack, as if they had arrived so: to
 * sockets of this node, or through netfilter to its pods.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "core/types.h"

#define LOOPBACK_IFINDEX 1 /* in every network namespace */

/* Attached to the ingress of interfaces with XDP. */
SEC("tc")
int hand_over(struct __sk_buff *skb)
{
	struct nat_handover *handover = (void *)(long)skb->data_meta;

	if ((void *)(handover + 1) > (void *)(long)skb->data ||
	    handover->magic != NAT_HANDOVER_MAGIC || handover->ifindex == LOOPBACK_IFINDEX)
		return TC_ACT_UNSPEC;
	return bpf_redirect_neigh(handover->ifindex, NULL, 0, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
