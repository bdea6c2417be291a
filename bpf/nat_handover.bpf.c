// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The kernel's side of NAT towards backends that XDP can't send to: those behind an overlay's or another
 * tunnel's device. XDP has translated the packet and says in front of it where it goes (struct
 * nat_handover); what is missing is the link layer, which the kernel's routes and neighbours know. The
 * packet never meets the rest of the network stack: the node needs no forwarding, and no filter of its
 * own addresses as sources.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "types.h"

/* At the interfaces on which XDP runs, for packets that come in. */
SEC("tc")
int hand_over(struct __sk_buff *skb)
{
	struct nat_handover *handover = (void *)(long)skb->data_meta;

	if ((void *)(handover + 1) > (void *)(long)skb->data ||
	    handover->magic != NAT_HANDOVER_MAGIC)
		return TC_ACT_UNSPEC;
	return bpf_redirect_neigh(handover->ifindex, NULL, 0, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
