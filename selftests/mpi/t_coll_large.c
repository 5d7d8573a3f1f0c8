// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Collectives of more than 2^31 bytes, and by the large-count forms, where the library has them, of more than 2^31 elements.  The
 * buffers are address space: a few MiB of memory, which are there again and again, so that each place gets the same bytes however often.
 * What is written behind a buffer hits a page that cannot be.
 */
#include "mpitest.h"

#include <sys/mman.h>

#define PAGE	4096ul
#define PERIOD	(3ul * 1024 * 1024 + PAGE)	/* no power of two: bytes that go to a wrong place are others */
#define LONG	((1ul << 31) + 5 * PAGE)

struct area {
	unsigned char *at, *end, *next;	/* all; next: of what is not there yet */
};

static struct area area_new(size_t bytes)
{
	struct area a;

	a.at = mmap(NULL, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a.at == MAP_FAILED) {
		fprintf(stderr, "%zu bytes of address space: %m\n", bytes);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	a.end = a.at + bytes;
	a.next = a.at;
	return a;
}

/* The next @bytes of it are one period of memory, which is returned. */
static unsigned char *area_part(struct area *a, size_t bytes)
{
	int fd = memfd_create("t_coll_large", 0);
	unsigned char *first = a->next;

	if (fd < 0 || ftruncate(fd, (off_t)PERIOD)) {
		fprintf(stderr, "memory file: %m\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (size_t n; bytes; bytes -= n, a->next += n) {
		n = bytes < PERIOD ? bytes : PERIOD;
		if (mmap(a->next, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
			fprintf(stderr, "mapping: %m\n");
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
	close(fd);
	return first;
}

static void area_free(struct area *a)
{
	munmap(a->at, (size_t)(a->end - a->at) + PAGE);
}

static void expect(const char *what, const unsigned char *mem, int from, size_t n)
{
	unsigned char *want = malloc(PERIOD);

	t_fill(want, PERIOD, (uint64_t)from);
	T_BYTES(what, mem, want, n < PERIOD ? n : PERIOD);
	free(want);
}

static void bcast(void)
{
	struct area a = area_new(LONG);
	unsigned char *mem = area_part(&a, LONG);
	int root = t_size - 1;
	MPI_Request q;

	t_fill(mem, PERIOD, t_rank == root ? (uint64_t)root : 77);
	M(MPI_Ibcast(a.at, (int)(LONG / sizeof(double)), MPI_DOUBLE, root, MPI_COMM_WORLD, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	expect("bcast", mem, root, LONG);
	area_free(&a);
}

static void allgather(void)
{
	size_t each = (LONG / (size_t)t_size / PAGE + 1) * PAGE;
	struct area in = area_new(each), out = area_new(each * (size_t)t_size);
	unsigned char *part[t_size];
	MPI_Request q;

	t_fill(area_part(&in, each), PERIOD, (uint64_t)t_rank);
	for (int r = 0; r < t_size; r++)
		part[r] = area_part(&out, each);
	M(MPI_Iallgather(in.at, (int)(each / sizeof(int)), MPI_INT, out.at, (int)(each / sizeof(int)), MPI_INT, MPI_COMM_WORLD, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	for (int r = 0; r < t_size; r++)
		expect("allgather", part[r], r, each);
	area_free(&in);
	area_free(&out);
}

#define PIECES	((1 << 20) + (1 << 16))	/* of a type: more than the hooks describe */
#define PIECE	(2 * PAGE)		/* bytes from one to the next */

/* Pieces of all lengths and distances: @bytes of data. */
static MPI_Datatype pieces(size_t *bytes)
{
	int *len = malloc(PIECES * sizeof(*len));
	MPI_Aint *at = malloc(PIECES * sizeof(*at));
	struct t_rng r = t_rng_common();
	MPI_Datatype t;

	*bytes = 0;
	for (MPI_Aint i = 0; i < PIECES; i++) {
		len[i] = 1 + t_rndn(&r, PAGE / sizeof(int));
		at[i] = i * (MPI_Aint)PIECE + t_rndn(&r, PAGE);
		*bytes += (size_t)len[i] * sizeof(int);
	}
	M(MPI_Type_create_hindexed(PIECES, len, at, MPI_INT, &t));
	M(MPI_Type_commit(&t));
	free(len);
	free(at);
	return t;
}

/*
 * A type that only the library can read, and no library of all at once: nothing that the others see.  So they hear of it, and nobody
 * waits.
 */
static void pieces_bcast(void)
{
	size_t bytes;
	MPI_Datatype t = pieces(&bytes);
	struct area a = area_new((size_t)PIECES * PIECE);
	int class = MPI_SUCCESS, v = t_rank, err;
	MPI_Request q = MPI_REQUEST_NULL;
	MPI_Comm comm;

	T_OK(bytes > 1ul << 31, "%zu bytes", bytes);
	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	M(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
	t_fill(area_part(&a, (size_t)PIECES * PIECE), PERIOD, 7);
	if (t_rank)
		M(MPI_Ibcast(a.at, (int)(bytes / sizeof(int)), MPI_INT, 0, comm, &q));
	else
		M(MPI_Ibcast(a.at, 1, t, 0, comm, &q));
	err = MPI_Wait(&q, MPI_STATUS_IGNORE);
	if (err)
		MPI_Error_class(err, &class);
	T_EQ(class, t_rank ? MPI_ERR_TRUNCATE : MPI_ERR_TYPE);
	expect("what was not received", a.at, 7, PERIOD);
	M(MPI_Ibcast(&v, 1, MPI_INT, 0, comm, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_EQ(v, 0);
	M(MPI_Comm_free(&comm));
	M(MPI_Type_free(&t));
	area_free(&a);
}

#if MPI_VERSION >= 4
/* In place, and of an operation that may be done again. */
static void allreduce_c(void)
{
	struct area a = area_new(LONG);
	unsigned char *mem = area_part(&a, LONG), *own = malloc(PERIOD), *want = calloc(1, PERIOD);
	MPI_Request q;

	t_fill(mem, PERIOD, (uint64_t)t_rank);
	for (int r = 0; r < t_size; r++) {
		t_fill(own, PERIOD, (uint64_t)r);
		for (size_t i = 0; i < PERIOD; i++)
			want[i] |= own[i];
	}
	M(MPI_Iallreduce_c(MPI_IN_PLACE, a.at, (MPI_Count)LONG, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_BYTES("allreduce", mem, want, PERIOD);
	free(own);
	free(want);
	area_free(&a);
}

static void bcast_init_c(void)
{
	struct area a = area_new(LONG);
	unsigned char *mem = area_part(&a, LONG);
	MPI_Request q;

	t_fill(mem, PERIOD, t_rank ? 77 : 5);
	M(MPI_Bcast_init_c(a.at, (MPI_Count)LONG, MPI_BYTE, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &q));
	M(MPI_Start(&q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	M(MPI_Request_free(&q));
	expect("bcast_init", mem, 5, LONG);
	area_free(&a);
}
#endif

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	/* natively it is the libraries' own, which take their time */
	if (t_expect_progress) {
		T_RUN(bcast, 2);
		T_RUN(allgather, 2);
		T_RUN(pieces_bcast, 2);
#if MPI_VERSION >= 4
		T_RUN(allreduce_c, 2);
		T_RUN(bcast_init_c, 2);
#endif
	}
	return t_fini();
}
