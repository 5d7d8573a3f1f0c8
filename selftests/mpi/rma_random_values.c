// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Random one-sided programs: types and values. */
#include "rma_random.h"

static bool is_pair(const struct acc_type *t)
{
	return t->class == A_PAIR;
}

/* a hole between the members or behind them */
bool has_hole(const struct acc_type *t)
{
	int size;

	if (!is_pair(t))
		return false;
	MPI_Type_size(t->type, &size);
	return size != t->size;
}

/* bytes of an element that are none of its value */
bool padded(const struct acc_type *t)
{
	return has_hole(t) || t->kind == K_LD || t->kind == K_CLD;
}

/* typemap entries of an element */
int entries(const struct acc_type *t)
{
	return has_hole(t) ? 2 : 1;
}

struct dtmap basic_map(const struct acc_type *t)
{
	struct dtmap m = dt_basic(t->type, t->size, t->name);
	int size;

	if (!has_hole(t))
		return m;
	MPI_Type_size(t->type, &size);
	free(m.e);
	m.e = xalloc(2 * sizeof(*m.e));
	m.n = 2;
	m.e[0] = (struct dt_elem){ 0, size - 4 };
	m.e[1] = (struct dt_elem){ t->off2, 4 };
	return m;
}

/* byte offset of element @k of many instances of @m */
MPI_Aint elem_at(const struct dtmap *m, const struct acc_type *t, long k)
{
	long i = k * entries(t);

	return i / m->n * m->extent + m->e[i % m->n].disp;
}

/* copies the value, not what is between */
void copy_elem(const struct acc_type *t, void *dst, const void *src)
{
	int size;

	if (!has_hole(t)) {
		memcpy(dst, src, (size_t)t->size);
		return;
	}
	MPI_Type_size(t->type, &size);
	memcpy(dst, src, (size_t)size - 4);
	memcpy((char *)dst + t->off2, (const char *)src + t->off2, 4);
}

/* @op is applied to a value made for it, or replaces one */
unsigned char *make_values(const struct acc_type *t, enum acc_op op, uint64_t seed)
{
	unsigned char *v = xalloc((size_t)VALUES * t->size);
	struct t_rng r = { seed };

	for (int i = 0; i < VALUES; i++) {
		unsigned char *x = v + (size_t)i * t->size;

		acc_value(t, op, &r, x);
		/* the same bytes on all ranks: of 16 bytes of a long double 10 count */
		if (t->kind == K_LD || t->kind == K_CLD)
			memset(x + 10, 0, 6);
		if (t->kind == K_CLD)
			memset(x + 26, 0, 6);
	}
	return v;
}

static const unsigned char *nth_value(const struct acc_type *t, const unsigned char *v, long k)
{
	return v + (size_t)((k * 7 + k / VALUES) % VALUES) * t->size;
}

const unsigned char *op_value(struct rop *p, long k)
{
	if (!p->vals)
		p->vals = make_values(p->t, p->op, p->seed);
	return nth_value(p->t, p->vals, k);
}

void fill_slot(const struct slot *s, unsigned char *mem, uint64_t seed)
{
	unsigned char *v = make_values(s->t, O_REPLACE, seed);

	for (long k = 0; k < s->nel; k++)
		memcpy(mem + k * s->t->size, nth_value(s->t, v, k), (size_t)s->t->size);
	free(v);
}
