/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Descriptors: the 240 bytes that travel in place of a payload.  Fields are as the processor has them: the
 * processes of a job have the same.  The magic number is made of the job's key as well, so that nearly every other
 * message of this length is told apart by one comparison.
 */
#include <sodium.h>
#include <string.h>

#include "hooks_gen.h"

static struct {
	uint8_t hash[crypto_shorthash_siphashx24_KEYBYTES];
	uint64_t magic;
} keys;

_Static_assert(sizeof(struct desc) == DESC_SIZE, "struct desc");
_Static_assert(sizeof(((struct desc *)0)->hash) == crypto_shorthash_siphashx24_BYTES, "desc.hash");

int desc_init(void)
{
	static const uint8_t what[] = "asyncprog two-sided descriptor";

	if (sodium_init() < 0 ||
	    crypto_generichash((uint8_t *)&keys, sizeof(keys), hooks.jobkey, sizeof(hooks.jobkey),
			       what, sizeof(what)))
		return -EIO;
	return 0;
}

static void desc_hash(const struct desc *d, uint64_t comm, uint32_t dst,
		      uint8_t hash[crypto_shorthash_siphashx24_BYTES])
{
	struct {
		uint8_t contents[offsetof(struct desc, hash)];
		uint64_t comm;
		uint64_t dst;
	} in;

	memcpy(in.contents, d, sizeof(in.contents));
	in.comm = comm;
	in.dst = dst;
	crypto_shorthash_siphashx24(hash, (const uint8_t *)&in, sizeof(in), keys.hash);
}

void desc_make(struct desc *d, const struct hcomm *c, uint32_t dst, const struct prog_msg_id *name,
	       const struct chan_pos *pos)
{
	memset(d, 0, sizeof(*d));
	d->magic = keys.magic;
	d->len = name->len;
	d->ord = pos->ord;
	d->gen = pos->gen;
	d->src = name->src;
	d->slot = name->slot;
	d->serial = name->serial;
	d->addr = name->addr;
	desc_hash(d, c->id, dst, d->hash);
}

bool desc_check(const void *bytes, const struct hcomm *c, struct desc_says *says)
{
	uint8_t hash[crypto_shorthash_siphashx24_BYTES];
	struct desc d;

	memcpy(&d.magic, bytes, sizeof(d.magic));
	if (likely(d.magic != keys.magic))
		return false;
	memcpy(&d, bytes, sizeof(d));
	desc_hash(&d, c->id, (uint32_t)hooks.world_rank, hash);
	if (memcmp(hash, d.hash, sizeof(hash)))
		return false;
	for (size_t i = 0; i < sizeof(d.rest); i++)
		if (d.rest[i])
			return false;
	says->name = (struct prog_msg_id){
		.src = d.src, .slot = d.slot, .serial = d.serial, .len = d.len, .addr = d.addr,
	};
	says->pos = (struct chan_pos){ .gen = d.gen, .ord = d.ord };
	return true;
}
