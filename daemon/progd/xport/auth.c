/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Proof that both ends of a lane know a job's key; the computation is fixed in wire/wire.h. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "xport/lane.h"

_Static_assert(crypto_auth_hmacsha512256_KEYBYTES == PROG_JOBKEY_SIZE, "key");
_Static_assert(crypto_auth_hmacsha512256_BYTES == WIRE_MAC_SIZE, "mac");

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
	crypto_auth_hmacsha512256_final(&st, mac);
	sodium_memzero(&st, sizeof(st));
}

bool auth_equal(const uint8_t a[WIRE_MAC_SIZE], const uint8_t b[WIRE_MAC_SIZE])
{
	return !sodium_memcmp(a, b, WIRE_MAC_SIZE);
}

void auth_nonce(uint8_t nonce[WIRE_NONCE_SIZE])
{
	randombytes_buf(nonce, WIRE_NONCE_SIZE);
}

void auth_wipe(void *p, size_t len)
{
	sodium_memzero(p, len);
}
