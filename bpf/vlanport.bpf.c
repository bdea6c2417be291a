// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * An access port of a VLAN, for machines whose kernel has no VLAN devices: frames that leave get the
 * tag, frames that arrive with it lose it, all others are dropped.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define VLAN_ID_MASK 0x0fff

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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
