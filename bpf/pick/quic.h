/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * QUIC connections keep their server when the client's address changes: servers encode a server ID
 * in the connection IDs that they issue (draft-ietf-quic-load-balancers, plaintext algorithm).
 *
 *   connection ID:  config rotation (3 bits), length or random (5 bits), server ID, nonce
 */
#pragma once

#include <linux/bpf.h>
#include <linux/udp.h>

#include <bpf/bpf_helpers.h>

#include "core/maps.h"
#include "core/packet.h"
#include "core/types.h"
#include "pick/ring.h"
#include "pick/trace.h"

/*
 * RFC 8999, section 5: a long header starts with a byte of flags, version and connection ID length.
 */
#define QUIC_LONG_HEADER 0x80
#define QUIC_LONG_LENGTH 6
#define QUIC_SHORT_LENGTH 1
#define QUIC_CONFIG_MASK 0xe0

/*
 * Returns the offset of the server ID in the frame, or 0 if the connection ID isn't of the
 * service's configuration. Clients choose their first connection ID: if it looks like a server's,
 * all packets with it go to the same backend until the client uses the server's.
 */
static __always_inline __u32 quic_server_id(struct xdp_md *ctx, const struct packet *p,
					    const struct quic *quic)
{
	__u32 start = packet_offset(p);
	__u32 at = start + p->header + sizeof(struct udphdr), end = start + p->length;
	__u32 length = 1 + quic->server_length + quic->nonce_length;
	__u8 head[QUIC_LONG_LENGTH + 1], config;

	if (at + sizeof(head) > end || bpf_xdp_load_bytes(ctx, at, head, sizeof(head)))
		return 0;
	if (head[0] & QUIC_LONG_HEADER) {
		if (head[QUIC_LONG_LENGTH - 1] < length)
			return 0;
		config = head[QUIC_LONG_LENGTH];
		at += QUIC_LONG_LENGTH;
	} else {
		config = head[QUIC_SHORT_LENGTH];
		at += QUIC_SHORT_LENGTH;
	}
	if ((config & QUIC_CONFIG_MASK) != quic->config || at + length > end)
		return 0;
	return at + 1;
}

/* The backend of the packet's connection ID, or NULL: then the five-tuple decides. */
static __noinline struct backend *quic_backend(struct xdp_md *ctx, const struct packet *p,
					       const struct view *view, const struct quic *quic,
					       __u32 number)
{
	struct server_key key = { .service = number };
	/* Unchanged, but in a form whose bounds the verifier of Linux 6.1 understands. */
	__u32 length = ((quic->server_length - 1) & (sizeof(key.id) - 1)) + 1;
	__u32 at = quic_server_id(ctx, p, quic);
	struct backend *backend;
	struct server *server;
	__u32 ref;

	if (!at || bpf_xdp_load_bytes(ctx, at, key.id, length))
		return NULL;
	key.length = length;
	server = bpf_map_lookup_elem(&servers, &key);
	/* Elements can be reused for another key while they are read. */
	if (!server || server->service != number)
		return NULL;
	ref = *(volatile __u32 *)&server->backend;
	backend = usable_backend(view, ref);
	if (backend)
		trace_slot(ref & 0xffff, TRACE_SERVER);
	return backend;
}
