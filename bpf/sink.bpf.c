// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Counts frames and drops them: the end of the wire in measurements.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct received {
	__u64 frames;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct received);
} received SEC(".maps");

SEC("xdp")
int swallow(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct received *r = bpf_map_lookup_elem(&received, &key);

	if (r) {
		r->frames += 1;
		r->bytes += ctx->data_end - ctx->data;
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
