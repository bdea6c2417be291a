/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Load-time configuration: read-only data, which the verifier treats as constants.
 */
#pragma once

#include <linux/types.h>

#include "core/types.h"

/*
 * Seed of the flow hash; the same on all nodes of a cluster, so that they pick the same backends.
 */
const volatile __u64 hash_seed = 0;

/* Secrets of this node: the keys of recorded flows, sessions and clients depend on them. */
const volatile __u64 key_seed = 0;
const volatile __u64 key_secrets[2][KEY_WORDS] = {};

/*
 * Minimum interval in ns between new records of a processor: all processors together fill
 * `flows_pending` in some seconds.
 */
const volatile __u64 record_interval = 20000;

/* The same for new clients: all processors together fill `clients` in a minute. */
const volatile __u64 client_interval = 2000000;

/* The VIP table has 2^(32 - vip_shift) places; vip_mask is one less. */
const volatile __u32 vip_mask = 0;
const volatile __u32 vip_shift = 32;

/* How many elements tables have, those of `backend_count` one for each backend. */
const volatile __u32 service_count = 1;
const volatile __u32 ring_count = 1;
const volatile __u32 backend_count = 1;
const volatile __u32 egress_count = 1;

/* Secrets of this node: the places of VIPs depend on them. */
const volatile __u64 vip_secrets[6] = {};

/*
 * The same for places of sessions (nat/places.h), and how many places of each table keys select.
 */
const volatile __u64 place_secret_low = 0;
const volatile __u64 place_secret_high = 0;
const volatile __u32 session_places = 1;
const volatile __u32 pending_places = 1;

/*
 * Source ports of NAT sessions, and the number of SNAT addresses of each family; 0: the source
 * address of the route to the backend.
 */
const volatile __u32 nat_first_port = 1024;
const volatile __u32 nat_ports = 31744;
const volatile __u32 nat_ipv4_addresses = 0;
const volatile __u32 nat_ipv6_addresses = 0;

/* Set in the instance for `fairlead trace` (pick/trace.h), which doesn't write to shared tables. */
const volatile __u8 tracing = 0;

/*
 * Features. The verifier removes the code of features that are 0: the program contains only what
 * the configuration needs.
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
const volatile __u8 feature_dsr = 1; /* with NAT: a service has VIEW_DSR */
const volatile __u8 feature_clients = 1; /* a service has VIEW_REMEMBER_CLIENTS */
const volatile __u8 feature_peers =
	1; /* this node is a backend itself, or shares services with peers */

/* Never read: they keep the types in the BTF, from which Go types are generated. */
const enum forward *const btf_forward = 0;
const enum segment_type *const btf_segment_type = 0;
const enum view_flag *const btf_view_flag = 0;
const enum vip_number *const btf_vip_number = 0;
const enum address_flag *const btf_address_flag = 0;
const enum backend_flag *const btf_backend_flag = 0;
const enum peer *const btf_peer = 0;
const enum limit_time *const btf_limit_time = 0;
const enum peer_lookup_limit *const btf_peer_lookup_limit = 0;
const enum flow_open *const btf_flow_open = 0;
const enum nat_state *const btf_nat_state = 0;
const enum nat_flag *const btf_nat_flag = 0;
const enum nat_seconds *const btf_nat_seconds = 0;
const struct nat_refusal *const btf_nat_refusal = 0;
const enum ring_few *const btf_ring_few = 0;
const enum place_window *const btf_place_window = 0;
const enum place_key *const btf_place_key = 0;
