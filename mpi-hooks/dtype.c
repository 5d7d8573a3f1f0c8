/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * MPI datatypes, looked up.  A derived type is decoded once and kept as an attribute of the type, whose delete function
 * frees it.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "htype.h"

static int attr_keyval = MPI_KEYVAL_INVALID;
/* counts types freed, so that the threads' caches notice */
atomic_uint htype_generation = 1;
_Thread_local struct htype_last htype_last;

static void htype_free(struct htype *t)
{
	prog_dtype_put(t->dt);
	free(t->speed);
	free(t);
}

static int attr_deleted(MPI_Datatype type, int keyval, void *val, void *extra)
{
	atomic_fetch_add(&htype_generation, 1);
	htype_free(val);
	return MPI_SUCCESS;
}

int htype_init(void)
{
	int rc = htype_basic_init();

	if (rc)
		return rc;
	if (PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, attr_deleted, &attr_keyval, NULL))
		return -EIO;
	return 0;
}

/*
 * There is no query for that: a send to nobody checks it, where the library does (with a
 * count above 0).  Done once for each type, as a committed type stays so.
 */
bool htype_committed(MPI_Datatype type)
{
	char nothing = 0;

	return PMPI_Send(&nothing, 1, type, MPI_PROC_NULL, 0, hooks.self) == MPI_SUCCESS;
}

static int htype_make(MPI_Datatype type, const struct htype **out)
{
	struct htype *t;
	int rc;

	if (!htype_committed(type))
		return MPI_ERR_TYPE;
	t = calloc(1, sizeof(*t));
	if (!t)
		return MPI_ERR_NO_MEM;
	rc = htype_decode(type, &t->dt, &t->ldouble);
	if (!rc) {
		t->speed = calloc(2, sizeof(*t->speed));
		rc = t->speed ? 0 : -ENOMEM;
	}
	if (rc)
		prog_log_limited(PROG_LOG_WARN, "datatype: cannot be flattened: %s", strerror(-rc));
	if (rc == -ENOMEM) {
		htype_free(t);
		return MPI_ERR_NO_MEM;
	}
	if (!rc)
		htype_fill(t);
	/*
	 * One that cannot be flattened is kept, too, without dt: of millions of pieces it takes a second to find that out, and each call
	 * asks several times.  Two threads may do this at once; the second's replaces and frees the first's.
	 */
	if (PMPI_Type_set_attr(type, attr_keyval, t)) {
		htype_free(t);
		return MPI_ERR_TYPE;
	}
	*out = t;
	return t->dt ? MPI_SUCCESS : MPI_ERR_TYPE;
}

static pthread_mutex_t make_lock = PTHREAD_MUTEX_INITIALIZER;

static int htype_lookup(MPI_Datatype type, const struct htype **out)
{
	void *val;
	int flag, rc;

	if (type == MPI_DATATYPE_NULL)
		return MPI_ERR_TYPE;
	*out = htype_predefined(type);
	if (*out)
		return MPI_SUCCESS;
	hooks_lock(&make_lock);
	if (PMPI_Type_get_attr(type, attr_keyval, &val, &flag)) {
		rc = MPI_ERR_TYPE;
	} else if (flag) {
		*out = val;
		rc = (*out)->dt ? MPI_SUCCESS : MPI_ERR_TYPE;
	} else {
		rc = htype_make(type, out);
	}
	hooks_unlock(&make_lock);
	return rc;
}

int htype_get(MPI_Datatype type, const struct htype **out)
{
	static __thread struct {
		MPI_Datatype type;
		unsigned int gen;
		const struct htype *t;
	} cache[16];
	unsigned int gen = atomic_load_explicit(&htype_generation, memory_order_acquire);
	unsigned int i = (unsigned int)((HMAP_KEY(type) * 0x9e3779b97f4a7c15ull) >> 60);
	int rc;

	if (likely(cache[i].t && cache[i].type == type && cache[i].gen == gen)) {
		*out = cache[i].t;
		return MPI_SUCCESS;
	}
	rc = htype_lookup(type, out);
	if (!rc) {
		cache[i].type = type;
		cache[i].gen = gen;
		cache[i].t = *out;
	}
	return rc;
}

int htype_bytes(uint64_t bytes, MPI_Count *count, MPI_Datatype *type)
{
#if MPI_VERSION < 4
	if (unlikely(bytes > INT_MAX)) {
		const int block = 1 << 30;
		int n[2] = { (int)(bytes / block), (int)(bytes % block) }, rc;
		MPI_Aint at[2] = { 0, (MPI_Aint)n[0] * block };
		MPI_Datatype part[2] = { MPI_BYTE, MPI_BYTE }, all;

		rc = PMPI_Type_contiguous(block, MPI_BYTE, &part[0]);
		if (rc)
			return rc;
		rc = PMPI_Type_create_struct(2, n, at, part, &all);
		PMPI_Type_free(&part[0]);
		if (rc)
			return rc;
		rc = PMPI_Type_commit(&all);
		if (rc) {
			PMPI_Type_free(&all);
			return rc;
		}
		*count = 1;
		*type = all;
		return MPI_SUCCESS;
	}
#endif
	*count = (MPI_Count)bytes;
	*type = MPI_BYTE;
	return MPI_SUCCESS;
}

void htype_bytes_free(MPI_Datatype *type)
{
	if (unlikely(*type != MPI_BYTE))
		PMPI_Type_free(type);
}

unsigned int hop_get(MPI_Op op)
{
	static struct {
		MPI_Op op;
		unsigned int prog;
	} const ops[] = {
		{ MPI_SUM, PROG_OP_SUM },	{ MPI_REPLACE, PROG_OP_REPLACE },
		{ MPI_NO_OP, PROG_OP_NO_OP },	{ MPI_MIN, PROG_OP_MIN },
		{ MPI_MAX, PROG_OP_MAX },	{ MPI_PROD, PROG_OP_PROD },
		{ MPI_BAND, PROG_OP_BAND },	{ MPI_BOR, PROG_OP_BOR },
		{ MPI_BXOR, PROG_OP_BXOR },	{ MPI_LAND, PROG_OP_LAND },
		{ MPI_LOR, PROG_OP_LOR },	{ MPI_LXOR, PROG_OP_LXOR },
		{ MPI_MINLOC, PROG_OP_MINLOC },	{ MPI_MAXLOC, PROG_OP_MAXLOC },
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (ops[i].op == op)
			return ops[i].prog;
	return 0;
}
