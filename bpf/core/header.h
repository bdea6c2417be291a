/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Wire formats that Linux's headers don't define for BPF programs: VLAN tags, IPv4 fragment bits,
 * and tunnels over UDP.
 */
#pragma once

#include <linux/types.h>

#define VLAN_ID_MASK 0x0fff

struct vlan_tag {
	__be16 tci; /* priority (4 bits, with the drop eligible bit) and id (12) */
	__be16 proto;
};

#define IP_FRAGMENT_MASK 0x3fff /* "more fragments" and the offset (RFC 791, section 3.1) */
#define IP_FRAGMENT_OFFSET 0x1fff

#define GUE_PORT 6080 /* draft-ietf-intarea-gue, section 9 */
#define VXLAN_PORT 4789 /* RFC 7348, section 5 */
#define GENEVE_PORT 6081 /* RFC 8926, section 3.3 */

/* Generic UDP Encapsulation without optional fields (draft-ietf-intarea-gue, section 3.1). */
struct gue_header {
	__u8 form; /* version (2 bits), control (1), length of optional fields (5): all 0 */
	__u8 proto; /* IP protocol number of what follows */
	__be16 flags;
};
_Static_assert(sizeof(struct gue_header) == 4, "gue_header is as on the wire");

/* RFC 7348, section 5. */
struct vxlan_header {
	__be32 flags;
	__be32 vni; /* identifier << 8 */
};
_Static_assert(sizeof(struct vxlan_header) == 8, "vxlan_header is as on the wire");

#define VXLAN_HAS_VNI 0x08000000 /* the only flag of RFC 7348 */

/* RFC 8926, section 3.4. */
struct geneve_header {
	__u8 form; /* version (2 bits), length of the options in units of 4 bytes (6) */
	__u8 flags; /* control packet, critical options, 6 reserved bits */
	__be16 proto; /* Ethertype of what follows */
	__be32 vni; /* identifier << 8 */
};
_Static_assert(sizeof(struct geneve_header) == 8, "geneve_header is as on the wire");

#define GENEVE_VERSION 0xc0
#define GENEVE_LENGTH 0x3f
#define GENEVE_NOT_DATA 0xc0 /* a control packet, or options that may not be ignored */
#define GENEVE_ETHERNET 0x6558 /* Ethertype of Ethernet frames: Trans Ether Bridging */
