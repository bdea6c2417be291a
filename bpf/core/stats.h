/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters of exits, backends and new flows.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "core/exit.h"
#include "core/types.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTER_COUNT);
	__type(key, enum counter);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* set at load time: one for each backend of each service */
	__type(key, __u32);
	__type(value, struct traffic_chunk);
} backend_stats SEC(".maps");

/* Separate from backend_stats, which every packet writes: these are written once per flow. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* as many as backend_stats has */
	__type(key, __u32);
	__type(value, struct new_flows_chunk);
} new_flows SEC(".maps");

static __always_inline int is_forward(enum counter exit)
{
	return exit >= COUNTER_FORWARD_L2DSR && exit <= COUNTER_FORWARD_NAT_REPLY;
}

/* Counts the packet and returns the verdict. */
static __always_inline int exit_with(enum counter exit, int verdict)
{
	__u64 *count = bpf_map_lookup_elem(&counters, &exit);

	if (count)
		*count += 1;
	return verdict;
}

/* Exits with the verdict that the exit implies. Packets that are forwarded need exit_with(). */
static __always_inline int exit_default(enum counter exit)
{
	if (exit >= COUNTER_ANSWER_ECHO)
		return exit_with(exit, XDP_TX);
	return exit_with(exit, exit >= COUNTER_DROP_NO_BACKEND ? XDP_DROP : XDP_PASS);
}

static __always_inline void count_backend(__u32 counter, __u64 bytes)
{
	__u32 key = counter / TRAFFIC_CHUNK;
	struct traffic_chunk *chunk = bpf_map_lookup_elem(&backend_stats, &key);
	struct traffic *t;

	if (!chunk)
		return;
	t = &chunk->entry[counter % TRAFFIC_CHUNK];
	t->packets += 1;
	t->bytes += bytes;
}

static __always_inline void count_new_flow(__u32 counter)
{
	__u32 key = counter / TRAFFIC_CHUNK;
	struct new_flows_chunk *chunk = bpf_map_lookup_elem(&new_flows, &key);

	if (chunk)
		chunk->entry[counter % TRAFFIC_CHUNK] += 1;
}
