#pragma once
static __always_inline void note_reply(const struct packet *p, struct nat_session *s, __u8 flags) { (void)p; (void)flags; s->seen = nat_time(); }
