// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Records that are sealed; the form is fixed in wire/wire.h. */
#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "xport/seal.h"

_Static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == SEAL_KEY, "key");
_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == WIRE_RECORD_TAG, "tag");
_Static_assert(SEAL_IN >= 2 * (WIRE_RECORD_MAX + SEAL_OVERHEAD), "room behind a part of a record");

int seal_begin(struct seal *s, const uint8_t key_out[SEAL_KEY], const uint8_t key_in[SEAL_KEY])
{
	if (!s->out)
		s->out = malloc(SEAL_OUT);
	if (!s->in)
		s->in = malloc(SEAL_IN);
	if (!s->out || !s->in)
		return -ENOMEM;
	memcpy(s->key_out, key_out, SEAL_KEY);
	memcpy(s->key_in, key_in, SEAL_KEY);
	s->n_out = s->n_in = 0;
	s->start = s->end = 0;
	s->plain = s->plain_end = 0;
	s->on = true;
	return 0;
}

void seal_fini(struct seal *s)
{
	free(s->out);
	free(s->in);
	sodium_memzero(s, sizeof(*s));
}

static void number(uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES], uint64_t *n)
{
	uint64_t le = htole64((*n)++);

	memset(nonce, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
	memcpy(nonce, &le, sizeof(le));
}

/* A record of @len bytes from @from, which may be where they go; behind what is there. */
static void put(struct seal *s, const uint8_t *from, uint32_t len)
{
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
	uint8_t *rec = s->out + s->sent.iov_len;
	uint32_t le = htole32(len);

	memcpy(rec, &le, sizeof(le));
	number(nonce, &s->n_out);
	crypto_aead_chacha20poly1305_ietf_encrypt(rec + WIRE_RECORD_HDR, NULL, from, len, rec, WIRE_RECORD_HDR, NULL,
						  nonce, s->key_out);
	s->sent.iov_len += SEAL_OVERHEAD + len;
}

/* What was gathered behind the last record. */
static void put_gathered(struct seal *s, uint32_t *len)
{
	if (*len)
		put(s, s->out + s->sent.iov_len + WIRE_RECORD_HDR, *len);
	*len = 0;
}

static void wrap_part(struct seal *s, const uint8_t *p, size_t left, uint32_t *gathered)
{
	uint32_t part;

	for (; left; p += part, left -= part) {
		if (left >= SEAL_APART) {
			put_gathered(s, gathered);
			part = left < WIRE_RECORD_MAX ? left : WIRE_RECORD_MAX;
			put(s, p, part);
			continue;
		}
		part = left < WIRE_RECORD_MAX - *gathered ? left : WIRE_RECORD_MAX - *gathered;
		memcpy(s->out + s->sent.iov_len + WIRE_RECORD_HDR + *gathered, p, part);
		*gathered += part;
		if (*gathered == WIRE_RECORD_MAX)
			put_gathered(s, gathered);
	}
}

int seal_wrap(struct seal *s, const struct iovec *iov, int n, struct iovec **out)
{
	uint32_t gathered = 0;

	s->sent = (struct iovec){ .iov_base = s->out };
	for (int i = 0; i < n; i++)
		wrap_part(s, iov[i].iov_base, iov[i].iov_len, &gathered);
	put_gathered(s, &gathered);
	*out = &s->sent;
	return 1;
}

int seal_room(struct seal *s, struct iovec **iov)
{
	if (s->start == s->end) {
		s->start = s->end = 0;
	} else if (SEAL_IN - s->start < WIRE_RECORD_MAX + SEAL_OVERHEAD) {
		memmove(s->in, s->in + s->start, s->end - s->start);
		s->end -= s->start;
		s->start = 0;
	}
	s->room = (struct iovec){ s->in + s->end, SEAL_IN - s->end };
	*iov = &s->room;
	return 1;
}

void seal_came(struct seal *s, uint32_t n)
{
	s->end += n;
}

/* The bytes of the record at start; 0: not known yet; UINT32_MAX: it cannot be one. */
static uint32_t record_len(const struct seal *s)
{
	uint32_t le;

	if (s->end - s->start < WIRE_RECORD_HDR)
		return 0;
	memcpy(&le, s->in + s->start, sizeof(le));
	le = le32toh(le);
	return le && le <= WIRE_RECORD_MAX ? le + SEAL_OVERHEAD : UINT32_MAX;
}

uint32_t seal_missing(const struct seal *s, uint32_t want)
{
	uint32_t len = record_len(s), have = s->end - s->start;

	if (len < want)
		len = want;
	return len > have ? len - have : 0;
}

/* The rest of an opened record. */
static ssize_t take(struct seal *s, const struct iovec *iov, int n)
{
	size_t part, sum = 0;

	for (int i = 0; i < n && s->plain != s->plain_end; i++) {
		part = s->plain_end - s->plain;
		if (part > iov[i].iov_len)
			part = iov[i].iov_len;
		memcpy(iov[i].iov_base, s->in + s->plain, part);
		s->plain += part;
		sum += part;
	}
	return sum;
}

ssize_t seal_next(struct seal *s, const struct iovec *iov, int n)
{
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
	uint8_t *rec = s->in + s->start, *to = rec + WIRE_RECORD_HDR;
	uint32_t all, len;

	if (s->plain != s->plain_end)
		return take(s, iov, n);
	all = record_len(s);
	if (!all)
		return 0;
	if (all == UINT32_MAX)
		return -EBADMSG;
	len = all - SEAL_OVERHEAD;
	if (s->end - s->start < all)
		return 0;
	if (iov[0].iov_len >= len)
		to = iov[0].iov_base;
	number(nonce, &s->n_in);
	if (crypto_aead_chacha20poly1305_ietf_decrypt(to, NULL, NULL, rec + WIRE_RECORD_HDR, len + WIRE_RECORD_TAG, rec,
						      WIRE_RECORD_HDR, nonce, s->key_in))
		return -EBADMSG;
	s->start += all;
	if (to == iov[0].iov_base)
		return len;
	s->plain = to - s->in;
	s->plain_end = s->plain + len;
	return take(s, iov, n);
}
