// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Fuzzer of the datatype decoder: a libFuzzer target, and with -DFUZZ_STANDALONE a program
 * of its own (any compiler) that runs the files it is given, or, without files, damaged
 * programs made from a seed: dtype_fuzz [FILE...] | dtype_fuzz -seconds=N [-seed=N].
 *
 * Whatever is accepted must encode to the same bytes, stay within the range it says it
 * touches, and give the same runs when sought as when walked.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/dtype.h>
#include <libprogbase/reduce.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define require(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort(); \
		} \
	} while (0)

static void walk(const struct dtype *dt, uint64_t count, uint64_t from)
{
	static unsigned char packed[1 << 16];
	struct prog_dtype_iter it, other;
	struct prog_dtype_run run;
	uint64_t total, pos;
	int64_t lo, hi, off;
	uint64_t len;

	if (prog_dtype_total(dt, count, &total) || prog_dtype_span(dt, count, &lo, &hi)) {
		require(prog_dtype_iter_init(&it, dt, count, 0));
		return;
	}
	pos = total ? from % total : 0;
	require(!prog_dtype_iter_init(&it, dt, count, pos));
	require(!prog_dtype_iter_init(&other, dt, count, 0));
	for (int i = 0; i < 64 && prog_dtype_iter_next_run(&it, 1 + (from >> i % 32) % 5000, &run); i++) {
		int64_t end = run.off + (int64_t)(run.count - 1) * run.stride;

		require(run.off >= lo && run.off + (int64_t)run.bytes <= hi);
		require(end >= lo && end + (int64_t)run.bytes <= hi);
		require(!prog_dtype_iter_seek(&other, pos));
		require(prog_dtype_iter_next(&other, 1, &off, &len));
		require(off == run.off && len == 1);
		pos += run.bytes * run.count;
		require(prog_dtype_iter_left(&it) == total - pos);
	}
	if (hi - lo <= (int64_t)sizeof(packed) && total && total <= sizeof(packed)) {
		/* the sanitizer watches the ends */
		unsigned char *exact = malloc(hi - lo);

		require(exact);
		memset(exact, 1, hi - lo);
		require(!prog_dtype_pack(packed, (void *)((uintptr_t)exact - (uintptr_t)lo), dt, count, 0,
					 total));
		require(!prog_dtype_unpack((void *)((uintptr_t)exact - (uintptr_t)lo), dt, count, 0, packed,
					   total));
		free(exact);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dtype *dt = NULL;
	char err[128] = "";
	uint64_t pick = size;
	int ret;

	for (size_t i = 0; i < size; i++)
		pick = pick * 31 + data[i];
	ret = prog_dtype_decode(data, size, &dt, err, sizeof(err));
	if (ret) {
		require(ret < 0 && !dt && err[0]);
		return 0;
	}
	require(prog_dtype_encoded_size(dt) == size && !memcmp(prog_dtype_encoded(dt), data, size));
	walk(dt, 1, pick);
	walk(dt, 2 + pick % 5, pick);
	walk(dt, pick, pick);
	prog_dtype_put(dt);
	return 0;
}

#ifdef FUZZ_STANDALONE
#include <time.h>

static uint64_t rng;

static uint32_t rnd(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rng >> 33) % n;
}

/* A random type, its wire form damaged in a few places. */
static void one_random(void)
{
	struct dtype *dt, *next;
	unsigned char *buf;
	size_t len;

	if (prog_dtype_new_basic(1 + rnd(PROG_TYPE_END - 1), &dt))
		return;
	for (int depth = rnd(5); depth; depth--) {
		int64_t lens[4], disps[4];

		for (int i = 0; i < 4; i++) {
			lens[i] = rnd(4);
			disps[i] = (int64_t)rnd(300) - 100;
		}
		if (rnd(2) ? prog_dtype_new_hindexed(1 + rnd(4), lens, disps, dt, &next) :
		    prog_dtype_new_hvector(1 + rnd(5), rnd(3), disps[0], dt, &next))
			break;
		prog_dtype_put(dt);
		dt = next;
	}
	len = prog_dtype_encoded_size(dt);
	buf = malloc(len);
	require(buf);
	memcpy(buf, prog_dtype_encoded(dt), len);
	prog_dtype_put(dt);
	for (int k = rnd(4); k; k--) {
		size_t at = rnd(len);

		buf[at] = rnd(2) ? rnd(256) : buf[at] ^ (1u << rnd(8));
	}
	LLVMFuzzerTestOneInput(buf, rnd(20) ? len : rnd(len + 1));
	free(buf);
}

static int one_file(const char *path)
{
	unsigned char *buf = malloc(1 << 20);
	FILE *f = fopen(path, "rb");
	size_t n;

	if (!f || !buf) {
		perror(path);
		free(buf);
		return 1;
	}
	n = fread(buf, 1, 1 << 20, f);
	fclose(f);
	/* exactly as long as it is: the sanitizer watches the end */
	unsigned char *exact = malloc(n ? n : 1);

	require(exact);
	memcpy(exact, buf, n);
	LLVMFuzzerTestOneInput(exact, n);
	free(exact);
	free(buf);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long seconds = 10, runs = 0;
	int files = 0;
	time_t end;

	rng = time(NULL);
	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "-seconds=", 9)) {
			seconds = strtoul(argv[i] + 9, NULL, 10);
		} else if (!strncmp(argv[i], "-seed=", 6)) {
			rng = strtoull(argv[i] + 6, NULL, 10);
		} else {
			files++;
			if (one_file(argv[i]))
				return 1;
		}
	}
	if (files)
		return 0;
	printf("seed %llu\n", (unsigned long long)rng);
	for (end = time(NULL) + seconds; time(NULL) < end; )
		for (int i = 0; i < 1000; i++, runs++)
			one_random();
	printf("%lu inputs\n", runs);
	return 0;
}
#endif
