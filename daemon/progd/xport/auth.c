/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Proof that both ends of a lane know a job's key; the computation is fixed in wire/wire.h. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "xport/lane.h"

_Static_assert(crypto_auth_hmacsha512256_KEYBYTES == PROG_JOBKEY_SIZE, "key");
_Static_assert(crypto_auth_hmacsha512256_BYTES == WIRE_MAC_SIZE, "mac");
_Static_assert(crypto_scalarmult_BYTES == WIRE_KEY_SIZE && crypto_scalarmult_SCALARBYTES == WIRE_KEY_SIZE, "key");

int auth_init(void)
{
	return sodium_init() < 0 ? -EIO : 0;
}

void auth_mac(uint8_t mac[WIRE_MAC_SIZE], char role, const struct auth_input *in,
	      const uint8_t key[PROG_JOBKEY_SIZE])
{
	uint8_t r = role, lane[2] = { in->lane & 0xff, in->lane >> 8 };
	crypto_auth_hmacsha512256_state st;

	crypto_auth_hmacsha512256_init(&st, key, PROG_JOBKEY_SIZE);
	crypto_auth_hmacsha512256_update(&st, &r, 1);
	crypto_auth_hmacsha512256_update(&st, in->jobid, WIRE_JOBID_SIZE);
	crypto_auth_hmacsha512256_update(&st, in->nonce_opener, WIRE_NONCE_SIZE);
	crypto_auth_hmacsha512256_update(&st, in->nonce_acceptor, WIRE_NONCE_SIZE);
	crypto_auth_hmacsha512256_update(&st, in->guid_opener, WIRE_GUID_SIZE);
	crypto_auth_hmacsha512256_update(&st, in->guid_acceptor, WIRE_GUID_SIZE);
	crypto_auth_hmacsha512256_update(&st, lane, sizeof(lane));
	crypto_auth_hmacsha512256_update(&st, in->greeting, WIRE_MAC_SIZE);
	crypto_auth_hmacsha512256_final(&st, mac);
	sodium_memzero(&st, sizeof(st));
}

void auth_hello(uint8_t mac[WIRE_MAC_SIZE], char role, const uint8_t hello[WIRE_HELLO_SIZE],
		const uint8_t secret[WIRE_MAC_SIZE])
{
	uint8_t r = role;
	crypto_auth_hmacsha512256_state st;

	crypto_auth_hmacsha512256_init(&st, secret, WIRE_MAC_SIZE);
	crypto_auth_hmacsha512256_update(&st, &r, 1);
	crypto_auth_hmacsha512256_update(&st, hello, WIRE_HELLO_MACED);
	crypto_auth_hmacsha512256_final(&st, mac);
	sodium_memzero(&st, sizeof(st));
}

void auth_mix(uint8_t key[PROG_JOBKEY_SIZE], const uint8_t *lane_key)
{
	if (lane_key)
		crypto_auth_hmacsha512256(key, key, PROG_JOBKEY_SIZE, lane_key);
}

bool auth_pair(uint8_t key[WIRE_KEY_SIZE], uint8_t private[WIRE_KEY_SIZE])
{
	randombytes_buf(private, WIRE_KEY_SIZE);
	return !crypto_scalarmult_base(key, private);
}

bool auth_shared(uint8_t shared[WIRE_KEY_SIZE], const uint8_t private[WIRE_KEY_SIZE], const uint8_t key[WIRE_KEY_SIZE])
{
	return !crypto_scalarmult(shared, private, key);
}

static void expand(uint8_t out[WIRE_MAC_SIZE], char role, const uint8_t root[WIRE_MAC_SIZE])
{
	uint8_t r = role;

	crypto_auth_hmacsha512256(out, &r, 1, root);
}

void auth_connection(struct auth_keys *k, const uint8_t *secret, const uint8_t *shared,
		     const uint8_t hello[WIRE_HELLO_SIZE], const uint8_t ack[WIRE_HELLO_SIZE])
{
	static const uint8_t none[WIRE_MAC_SIZE];
	crypto_auth_hmacsha512256_state st;
	uint8_t root[WIRE_MAC_SIZE];

	crypto_auth_hmacsha512256_init(&st, secret ? secret : none, WIRE_MAC_SIZE);
	if (shared)
		crypto_auth_hmacsha512256_update(&st, shared, WIRE_KEY_SIZE);
	crypto_auth_hmacsha512256_update(&st, hello, WIRE_HELLO_SIZE);
	crypto_auth_hmacsha512256_update(&st, ack, WIRE_HELLO_SIZE);
	crypto_auth_hmacsha512256_final(&st, root);
	expand(k->greeting, AUTH_GREETING, root);
	expand(k->opener, AUTH_OPENER, root);
	expand(k->acceptor, AUTH_ACCEPTOR, root);
	sodium_memzero(&st, sizeof(st));
	sodium_memzero(root, sizeof(root));
}

bool auth_equal(const uint8_t a[WIRE_MAC_SIZE], const uint8_t b[WIRE_MAC_SIZE])
{
	return !sodium_memcmp(a, b, WIRE_MAC_SIZE);
}

void auth_nonce(uint8_t nonce[WIRE_NONCE_SIZE])
{
	randombytes_buf(nonce, WIRE_NONCE_SIZE);
}

void auth_id(uint8_t id[WIRE_LANE_ID_SIZE])
{
	randombytes_buf(id, WIRE_LANE_ID_SIZE);
}

void auth_wipe(void *p, size_t len)
{
	sodium_memzero(p, len);
}
