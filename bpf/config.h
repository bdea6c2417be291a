/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is fixed when the program is loaded: read-only data, which the verifier treats as constants.
 */
#pragma once

#include <linux/types.h>

#include "types.h"

/* Seed of the flow hash; the same on all nodes of a cluster, so that they decide alike. */
const volatile __u64 hash_seed = 0;

/* One less than the size of the VIP table. */
const volatile __u32 vip_mask = 0;

/* Ports of NAT sessions on the servers' side, and how many SNAT addresses there are of each family:
 * without any, it is the one that the route to the backend prefers. */
const volatile __u32 nat_first_port = 1024;
const volatile __u32 nat_ports = 31744;
const volatile __u32 nat_ipv4_addresses = 0;
const volatile __u32 nat_ipv6_addresses = 0;

/* Set in the instance that answers `fairlead trace` (trace.h), which changes no live table. */
const volatile __u8 tracing = 0;

/*
 * Features: the verifier removes the code of those that are 0, so that a program contains only what
 * the configuration needs. The agent sets them (features.go).
 */
const volatile __u8 feature_l2dsr = 1;
const volatile __u8 feature_ipip = 1;
const volatile __u8 feature_gue = 1;
const volatile __u8 feature_vxlan = 1;
const volatile __u8 feature_geneve = 1;
const volatile __u8 feature_overlay = 1; /* services inside VXLAN or Geneve segments */
const volatile __u8 feature_sources = 1;
const volatile __u8 feature_limits = 1;
const volatile __u8 feature_quic = 1;
const volatile __u8 feature_reject = 1; /* a service has VIEW_REJECT */
const volatile __u8 feature_nat = 1;
const volatile __u8 feature_dnat = 1; /* with NAT: a service has VIEW_DNAT */
const volatile __u8 feature_clients = 1; /* a service has VIEW_REMEMBER_CLIENTS */
const volatile __u8 feature_member = 1; /* this node is itself a backend, or shares a service */

/* Never read: they keep the enumerations in the BTF, where Go takes them from. */
const enum forward *const btf_forward = 0;
const enum segment_type *const btf_segment_type = 0;
const enum view_flag *const btf_view_flag = 0;
const enum vip_number *const btf_vip_number = 0;
const enum address_flag *const btf_address_flag = 0;
const enum backend_flag *const btf_backend_flag = 0;
const enum member *const btf_member = 0;
const enum limit_time *const btf_limit_time = 0;
const enum round_limit *const btf_round_limit = 0;
const enum nat_state *const btf_nat_state = 0;
const enum nat_flag *const btf_nat_flag = 0;
const enum nat_seconds *const btf_nat_seconds = 0;
const struct nat_refusal *const btf_nat_refusal = 0;
