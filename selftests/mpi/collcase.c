// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "collcase.h"

#define GUARD	64
#define BEFORE	0x5a		/* what is in memory that is not written */
#define INTS	4		/* of a unit */

const char *const coll_names[C_KINDS] = {
	"barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv",
	"alltoallw", "reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan", "neighbor_allgather",
	"neighbor_allgatherv", "neighbor_alltoall", "neighbor_alltoallv", "neighbor_alltoallw",
};

static const struct layout {
	int per;		/* ints of an instance */
	int extent;		/* ints */
	int disp[INTS];		/* ints */
} layouts[L_LAYOUTS] = {
	[L_INTS] = { 1, 1, { 0 } },
	[L_CONTIGUOUS] = { INTS, 4, { 0, 1, 2, 3 } },
	[L_VECTOR] = { INTS, 7, { 0, 1, 3, 4 } },
	[L_STRUCT] = { INTS, 4, { 3, 2, 1, 0 } },
	[L_RESIZED] = { INTS, 9, { 0, 2, 3, 5 } },
};

static uint64_t mix(uint64_t a, uint64_t b)
{
	struct t_rng r = { a * 0xd1342543de82ef95ull + b };

	return t_rnd(&r);
}

static void *room(size_t n)
{
	void *p = calloc(n ? n : 1, 1);

	if (!p)
		abort();
	return p;
}

static MPI_Datatype layout_type(enum coll_layout l)
{
	const int at[INTS] = { 0, 2, 3, 5 }, ones[INTS] = { 1, 1, 1, 1 };
	const MPI_Aint back[INTS] = { 12, 8, 4, 0 };
	const MPI_Datatype ints[INTS] = { MPI_INT, MPI_INT, MPI_INT, MPI_INT };
	MPI_Datatype t = MPI_INT, u;

	switch (l) {
	case L_CONTIGUOUS:
		M(MPI_Type_contiguous(INTS, MPI_INT, &t));
		break;
	case L_VECTOR:
		M(MPI_Type_vector(2, 2, 3, MPI_INT, &u));
		M(MPI_Type_create_resized(u, 0, 7 * sizeof(int), &t));
		M(MPI_Type_free(&u));
		break;
	case L_STRUCT:
		M(MPI_Type_create_struct(INTS, ones, back, ints, &t));
		break;
	case L_RESIZED:
		M(MPI_Type_create_indexed_block(INTS, 1, at, MPI_INT, &u));
		M(MPI_Type_create_resized(u, -8, 9 * sizeof(int), &t));
		M(MPI_Type_free(&u));
		break;
	default:
		return MPI_INT;
	}
	M(MPI_Type_commit(&t));
	return t;
}

bool coll_may_be_in_place(enum coll_kind k)
{
	return k != C_BARRIER && k != C_BCAST && k < C_PLAIN;
}

static bool has_vectors(enum coll_kind k)
{
	return k == C_GATHERV || k == C_SCATTERV || k == C_ALLGATHERV || k == C_ALLTOALLV || k == C_ALLTOALLW ||
	       k == C_NEIGHBOR_ALLGATHERV || k == C_NEIGHBOR_ALLTOALLV || k == C_NEIGHBOR_ALLTOALLW;
}

static bool by_type(enum coll_kind k)
{
	return k == C_ALLTOALLW || k == C_NEIGHBOR_ALLTOALLW;
}

static uint64_t pair(int from, int to)
{
	return (uint64_t)from << 32 | (uint32_t)to;
}

/* Nobody sends it: a neighbour that is not there. */
#define NOBODY	UINT64_MAX

/* Units of the block with this key. */
static int length(const struct coll *c, uint64_t key)
{
	uint64_t v;

	if (!has_vectors(c->kind))
		return c->units;
	/* in place what goes out is as long as what comes in */
	if (c->in_place && (c->kind == C_ALLTOALLV || c->kind == C_ALLTOALLW) && key >> 32 > (uint32_t)key)
		key = key << 32 | key >> 32;
	v = mix(c->seed, key);
	return v % 5 ? (int)(v / 5 % (2 * (uint64_t)c->units + 1)) : 0;
}

static void side_new(struct coll_side *s, int n)
{
	s->n = n;
	s->len = room((size_t)n * sizeof(*s->len));
	s->counts = room((size_t)n * sizeof(*s->counts));
	s->displs = room((size_t)n * sizeof(*s->displs));
	s->wide = room((size_t)n * sizeof(*s->wide));
	s->key = room((size_t)n * sizeof(*s->key));
	s->lay = room((size_t)n * sizeof(*s->lay));
	s->types = room((size_t)n * sizeof(MPI_Datatype));
}

static void side_memory(struct coll_side *s, size_t bytes)
{
	s->bytes = bytes + 2 * GUARD;
	s->mem = room(s->bytes);
	s->want = room(s->bytes);
	s->base = s->mem + GUARD;
}

/* Places the blocks; with vectors in another order than that of the ranks, and apart from each other. */
static void side_place(const struct coll *c, struct coll_side *s, int salt)
{
	MPI_Datatype all = MPI_DATATYPE_NULL;
	bool w = by_type(c->kind), v = has_vectors(c->kind);
	int turn = s->n ? (int)(mix(c->seed, 77) % (uint64_t)s->n) : 0;
	size_t at = 0;

	for (int i = 0; i < s->n; i++) {
		int b = v ? (turn + i) % s->n : i, ext;

		s->lay[b] = c->layout != L_ANY ? c->layout :
			mix(c->seed, 1000 + (uint64_t)(salt * 100 + c->rank + (w ? 10000 * (b + 1) : 0))) % L_LAYOUTS;
		if (w || all == MPI_DATATYPE_NULL)
			all = layout_type(s->lay[b]);
		s->types[b] = all;
		s->counts[b] = s->len[b] * INTS / layouts[s->lay[b]].per;
		ext = layouts[s->lay[b]].extent;
		s->displs[b] = (int)(at / (w ? 1 : (size_t)ext * sizeof(int)));
		s->wide[b] = s->displs[b];
		at += (size_t)(s->counts[b] + v) * (size_t)ext * sizeof(int);
	}
	side_memory(s, at);
}

static unsigned char *block_at(const struct coll *c, const struct coll_side *s, int b)
{
	size_t unit = by_type(c->kind) ? 1 : (size_t)layouts[s->lay[b]].extent * sizeof(int);

	return s->base + (size_t)s->displs[b] * unit;
}

/* Block @b has the values of @key, in memory that begins at @mem instead of s->mem. */
static void put_block(const struct coll *c, const struct coll_side *s, int b, uint64_t key, uint64_t run, unsigned char *mem)
{
	const struct layout *l = &layouts[s->lay[b]];
	unsigned char *to = mem + (block_at(c, s, b) - s->mem);
	struct t_rng r = { mix(mix(c->seed, run), key) };

	for (int e = 0; key != NOBODY && e < s->len[b] * INTS; e++) {
		int v = (int)t_rnd(&r);

		memcpy(to + (size_t)(e / l->per * l->extent + l->disp[e % l->per]) * sizeof(int), &v, sizeof(v));
	}
}

/* ---- neighbours ---- */

/* Who @n edges lead to or come from; of graphs the k-th edge between two members has number k, of grids it has that of its sender. */
static void keys_of_edges(const struct coll *c, struct coll_side *s, const int *who, bool out, bool grid)
{
	bool gathers = c->kind == C_NEIGHBOR_ALLGATHER || c->kind == C_NEIGHBOR_ALLGATHERV;

	for (int i = 0; i < s->n; i++) {
		int seen = 0, from = out ? c->rank : who[i], to = out ? who[i] : c->rank;

		for (int j = 0; j < i; j++)
			seen += who[j] == who[i];
		if (who[i] == MPI_PROC_NULL)
			s->key[i] = NOBODY;
		else if (gathers)
			s->key[i] = pair(from, 0);
		else
			s->key[i] = pair(from, grid ? 100000 + (out ? i : i ^ 1) : to * 100 + seen);
	}
}

static int *neighbours(const struct coll *c, bool out, int *n, bool *grid)
{
	int kind, dims, *who;

	MPI_Topo_test(c->comm, &kind);
	*grid = kind == MPI_CART;
	if (kind == MPI_CART) {
		MPI_Cartdim_get(c->comm, &dims);
		*n = 2 * dims;
		who = room((size_t)*n * sizeof(*who));
		for (int d = 0; d < dims; d++)
			MPI_Cart_shift(c->comm, d, 1, &who[2 * d], &who[2 * d + 1]);
	} else if (kind == MPI_GRAPH) {
		MPI_Graph_neighbors_count(c->comm, c->rank, n);
		who = room((size_t)*n * sizeof(*who));
		MPI_Graph_neighbors(c->comm, c->rank, *n, who);
	} else {
		int nin, nout, weighted, *in, *to, *weights;

		MPI_Dist_graph_neighbors_count(c->comm, &nin, &nout, &weighted);
		in = room((size_t)nin * sizeof(*in));
		to = room((size_t)nout * sizeof(*to));
		weights = room((size_t)(nin + nout) * sizeof(*weights));
		MPI_Dist_graph_neighbors(c->comm, nin, in, weights, nout, to, weights + nin);
		free(weights);
		*n = out ? nout : nin;
		who = out ? to : in;
		free(out ? in : to);
	}
	return who;
}

static void make_neighbours(struct coll *c)
{
	bool gathers = c->kind == C_NEIGHBOR_ALLGATHER || c->kind == C_NEIGHBOR_ALLGATHERV, grid;
	int n, *who = neighbours(c, false, &n, &grid);

	side_new(&c->in, n);
	keys_of_edges(c, &c->in, who, false, grid);
	free(who);
	who = neighbours(c, true, &n, &grid);
	side_new(&c->out, gathers ? 1 : n);
	if (gathers)
		c->out.key[0] = pair(c->rank, 0);
	else
		keys_of_edges(c, &c->out, who, true, grid);
	free(who);
}

/* ---- what each member sends and gets ---- */

static void make_blocks(struct coll *c)
{
	bool root = c->rank == c->root;
	struct coll_side *o = &c->out, *in = &c->in;

	switch (c->kind) {
	case C_BCAST:
		side_new(root ? o : in, 1);
		break;
	case C_GATHER:
	case C_GATHERV:
		side_new(o, !(root && c->in_place));
		side_new(in, root ? c->size : 0);
		break;
	case C_SCATTER:
	case C_SCATTERV:
		side_new(o, root ? c->size : 0);
		side_new(in, !(root && c->in_place));
		break;
	case C_ALLGATHER:
	case C_ALLGATHERV:
		side_new(o, !c->in_place);
		side_new(in, c->size);
		break;
	case C_ALLTOALL:
	case C_ALLTOALLV:
	case C_ALLTOALLW:
		side_new(o, c->in_place ? 0 : c->size);
		side_new(in, c->size);
		for (int i = 0; i < c->size; i++) {
			if (o->n)
				o->key[i] = pair(c->rank, i);
			in->key[i] = pair(i, c->rank);
		}
		return;
	default:
		make_neighbours(c);
		return;
	}
	/* one sender of each block, whoever gets it */
	for (int i = 0; i < o->n; i++)
		o->key[i] = pair(o->n == c->size && o->n > 1 ? i : c->kind == C_BCAST ? 0 : c->rank, 0);
	for (int i = 0; i < in->n; i++)
		in->key[i] = pair(in->n == c->size && in->n > 1 ? i : c->kind == C_BCAST ? 0 : c->rank, 0);
}

/* Elements that a reduction takes of each member. */
static int elements(const struct coll *c)
{
	int n = 0;

	if (c->kind == C_REDUCE_SCATTER_BLOCK)
		return c->units * c->size;
	if (c->kind != C_REDUCE_SCATTER)
		return c->units;
	for (int i = 0; i < c->size; i++)
		n += c->rcounts[i];
	return n;
}

static void make_reduction(struct coll *c)
{
	bool root = c->kind != C_REDUCE || c->rank == c->root;
	size_t n;

	c->rcounts = room((size_t)c->size * sizeof(int));
	for (int i = 0; i < c->size; i++)
		c->rcounts[i] = c->kind == C_REDUCE_SCATTER ? (int)(mix(c->seed, (uint64_t)i) % (2 * (uint64_t)c->units + 1)) :
			c->units;
	n = (size_t)elements(c) * (size_t)c->type->size;
	if (!c->in_place || !root)
		side_memory(&c->out, n);
	if (root)
		side_memory(&c->in, c->in_place ? n : (size_t)c->rcounts[c->rank] * (size_t)c->type->size);
}

void coll_make(struct coll *c)
{
	MPI_Comm_rank(c->comm, &c->rank);
	MPI_Comm_size(c->comm, &c->size);
	memset(&c->out, 0, sizeof(c->out));
	memset(&c->in, 0, sizeof(c->in));
	c->rcounts = NULL;
	c->own_types = false;
	if (c->kind == C_BARRIER)
		return;
	if (coll_reduces(c->kind)) {
		make_reduction(c);
		return;
	}
	make_blocks(c);
	for (int i = 0; i < c->out.n; i++)
		c->out.len[i] = c->out.key[i] == NOBODY ? c->units : length(c, c->out.key[i]);
	for (int i = 0; i < c->in.n; i++)
		c->in.len[i] = c->in.key[i] == NOBODY ? c->units : length(c, c->in.key[i]);
	c->own_types = true;
	side_place(c, &c->out, 1);
	side_place(c, &c->in, 2);
}

/* What MPICH or Open MPI compute wrong. */
static bool wrong_natively(const struct acc_type *t)
{
	return t->kind == K_U8 || t->kind == K_F128 || t->kind == K_C128 || t->type == MPI_OFFSET;
}

void coll_choose(struct coll *c, struct t_rng *r, MPI_Comm comm, int units, bool natively)
{
	const struct acc_type *types;
	int n = acc_types(&types), size, most = 1 << t_rndn(r, 18);

	MPI_Comm_size(comm, &size);
	memset(c, 0, sizeof(*c));
	c->comm = comm;
	c->kind = t_rndn(r, C_PLAIN);
	c->seed = t_rnd(r);
	c->units = t_rndn(r, 8) ? t_rndn(r, (most < units ? most : units) + 1) : 0;
	c->root = t_rndn(r, size);
	c->in_place = coll_may_be_in_place(c->kind) && !t_rndn(r, 3);
	if (natively && (c->kind == C_ALLTOALLV || c->kind == C_ALLTOALLW))
		c->in_place = false;
	c->layout = t_rndn(r, 3) ? L_ANY : t_rndn(r, L_LAYOUTS);
	do {
		c->type = &types[t_rndn(r, n)];
		c->op = t_rndn(r, O_OPS);
	} while (!acc_standard(c->type, c->op) || (natively && wrong_natively(c->type)));
}

/* ---- values ---- */

/* Element @e of member @r. */
static void element(const struct coll *c, uint64_t run, int r, int e, void *to)
{
	struct t_rng rng = { mix(mix(c->seed, run), pair(r, e)) };

	acc_value(c->type, c->op, &rng, to);
	if (c->fractions && c->type->kind == K_F64) {
		double v = (double)(int64_t)t_rnd(&rng) / 1e12;

		memcpy(to, &v, sizeof(v));
	} else if (c->fractions && c->type->kind == K_F32) {
		float v = (float)(int64_t)t_rnd(&rng) / 1e12f;

		memcpy(to, &v, sizeof(v));
	}
}

/* What all of the members @from to @to give for element @e: the lower rank is the left operand. */
static void reduced(const struct coll *c, uint64_t run, int from, int to, int e, unsigned char *out)
{
	unsigned char v[64], w[64];

	element(c, run, from, e, v);
	for (int r = from + 1; r < to; r++) {
		element(c, run, r, e, w);
		acc_apply(c->type, c->op, v, w);
	}
	memcpy(out, v, (size_t)c->type->size);
}

static void fill_reduction(struct coll *c, uint64_t run)
{
	size_t size = (size_t)c->type->size;
	int last = c->kind == C_SCAN ? c->rank + 1 : c->kind == C_EXSCAN ? c->rank : c->size, first = 0;
	struct coll_side *from = c->out.mem ? &c->out : &c->in;

	for (int e = 0; e < elements(c); e++)
		element(c, run, c->rank, e, from->base + (size_t)e * size);
	if (c->out.mem)
		memcpy(c->out.want, c->out.mem, c->out.bytes);
	if (!c->in.mem)
		return;
	memcpy(c->in.want, c->in.mem, c->in.bytes);
	for (int i = 0; i < c->rank && (c->kind == C_REDUCE_SCATTER || c->kind == C_REDUCE_SCATTER_BLOCK); i++)
		first += c->rcounts[i];
	for (int e = 0; last && !c->fractions && e < c->rcounts[c->rank]; e++)
		reduced(c, run, 0, last, first + e, c->in.want + GUARD + (size_t)e * size);
}

static void fill_blocks(struct coll *c, uint64_t run)
{
	struct coll_side *o = &c->out, *in = &c->in;
	bool all = c->kind == C_ALLTOALL || c->kind == C_ALLTOALLV || c->kind == C_ALLTOALLW;
	bool gathers = c->kind == C_ALLGATHER || c->kind == C_ALLGATHERV ||
		       ((c->kind == C_GATHER || c->kind == C_GATHERV) && c->rank == c->root);

	for (int i = 0; i < o->n; i++)
		put_block(c, o, i, o->key[i], run, o->mem);
	memcpy(o->want, o->mem, o->bytes);
	for (int i = 0; c->in_place && i < in->n; i++) {
		if (all)
			put_block(c, in, i, pair(c->rank, i), run, in->mem);
		else if (gathers && i == c->rank)
			put_block(c, in, i, in->key[i], run, in->mem);
	}
	memcpy(in->want, in->mem, in->bytes);
	for (int i = 0; i < in->n; i++)
		put_block(c, in, i, in->key[i], run, in->want);
}

void coll_fill(struct coll *c, uint64_t run)
{
	if (c->kind == C_BARRIER)
		return;
	if (c->out.mem)
		memset(c->out.mem, BEFORE, c->out.bytes);
	if (c->in.mem)
		memset(c->in.mem, BEFORE, c->in.bytes);
	if (coll_reduces(c->kind))
		fill_reduction(c, run);
	else
		fill_blocks(c, run);
}

/* ---- calls ---- */

/* What a side is for a call that has one block at most, or all blocks alike. */
struct arg {
	void *buf;
	int count;
	MPI_Datatype type;
};

static struct arg arg_of(const struct coll *c, const struct coll_side *s)
{
	/* who has no neighbours on one side says the same as the others */
	if (!s->n)
		return (struct arg){ NULL, c->units * INTS, MPI_INT };
	return (struct arg){ s->base, s->counts[0], s->types[0] };
}

/* What follows is there twice, as MPI_Iname(.., q) and as MPI_Name_init(.., info, q). */
#define MOVES(I, T) do { \
	switch (c->kind) { \
	case C_BARRIER: rc = I(barrier, Barrier)(c->comm T, q); break; \
	case C_BCAST: \
		a = arg_of(c, c->rank == c->root ? o : in); \
		rc = I(bcast, Bcast)(a.buf, a.count, a.type, c->root, c->comm T, q); break; \
	case C_GATHER: rc = I(gather, Gather)(s, a.count, a.type, in->base, b.count, b.type, c->root, c->comm T, q); break; \
	case C_GATHERV: rc = I(gatherv, Gatherv)(s, a.count, a.type, in->base, in->counts, in->displs, b.type, c->root, \
						 c->comm T, q); break; \
	case C_SCATTER: rc = I(scatter, Scatter)(o->base, a.count, a.type, r, b.count, b.type, c->root, c->comm T, q); break; \
	case C_SCATTERV: rc = I(scatterv, Scatterv)(o->base, o->counts, o->displs, a.type, r, b.count, b.type, c->root, \
						    c->comm T, q); break; \
	case C_ALLGATHER: rc = I(allgather, Allgather)(s, a.count, a.type, in->base, b.count, b.type, c->comm T, q); break; \
	case C_ALLGATHERV: rc = I(allgatherv, Allgatherv)(s, a.count, a.type, in->base, in->counts, in->displs, b.type, \
							  c->comm T, q); break; \
	case C_ALLTOALL: rc = I(alltoall, Alltoall)(s, a.count, a.type, in->base, b.count, b.type, c->comm T, q); break; \
	case C_ALLTOALLV: rc = I(alltoallv, Alltoallv)(s, o->counts, o->displs, a.type, in->base, in->counts, in->displs, \
						       b.type, c->comm T, q); break; \
	case C_ALLTOALLW: rc = I(alltoallw, Alltoallw)(s, o->counts, o->displs, o->types, in->base, in->counts, in->displs, \
						       in->types, c->comm T, q); break; \
	case C_NEIGHBOR_ALLGATHER: rc = I(neighbor_allgather, Neighbor_allgather)(s, a.count, a.type, in->base, b.count, \
						b.type, c->comm T, q); break; \
	case C_NEIGHBOR_ALLGATHERV: rc = I(neighbor_allgatherv, Neighbor_allgatherv)(s, a.count, a.type, in->base, \
						in->counts, in->displs, b.type, c->comm T, q); break; \
	case C_NEIGHBOR_ALLTOALL: rc = I(neighbor_alltoall, Neighbor_alltoall)(s, a.count, a.type, in->base, b.count, \
						b.type, c->comm T, q); break; \
	case C_NEIGHBOR_ALLTOALLV: rc = I(neighbor_alltoallv, Neighbor_alltoallv)(s, o->counts, o->displs, a.type, in->base, \
						in->counts, in->displs, b.type, c->comm T, q); break; \
	case C_NEIGHBOR_ALLTOALLW: rc = I(neighbor_alltoallw, Neighbor_alltoallw)(s, o->counts, o->wide, o->types, in->base, \
						in->counts, in->wide, in->types, c->comm T, q); break; \
	case C_REDUCE: rc = I(reduce, Reduce)(s, in->base, n, t, op, c->root, c->comm T, q); break; \
	case C_ALLREDUCE: rc = I(allreduce, Allreduce)(s, in->base, n, t, op, c->comm T, q); break; \
	case C_REDUCE_SCATTER: rc = I(reduce_scatter, Reduce_scatter)(s, in->base, c->rcounts, t, op, c->comm T, q); break; \
	case C_REDUCE_SCATTER_BLOCK: rc = I(reduce_scatter_block, Reduce_scatter_block)(s, in->base, n, t, op, \
											c->comm T, q); break; \
	case C_SCAN: rc = I(scan, Scan)(s, in->base, n, t, op, c->comm T, q); break; \
	case C_EXSCAN: rc = I(exscan, Exscan)(s, in->base, n, t, op, c->comm T, q); break; \
	default: rc = MPI_ERR_OTHER; \
	} \
} while (0)
#define NON_BLOCKING(i, p)	MPI_I##i
#define PERSISTENT(i, p)	MPI_##p##_init
#define NO_INFO
#define WITH_INFO		, MPI_INFO_NULL

static int call(struct coll *c, MPI_Request *q, bool persistent)
{
	struct coll_side *o = &c->out, *in = &c->in;
	bool reduces = coll_reduces(c->kind), scatters = c->kind == C_SCATTER || c->kind == C_SCATTERV;
	struct arg a = arg_of(c, o), b = arg_of(c, in);
	MPI_Datatype t = reduces ? c->type->type : MPI_INT;
	MPI_Op op = reduces ? acc_op(c->op) : MPI_SUM;
	void *s = o->base, *r = in->base;
	int n = c->units, rc;

	if (c->in_place && scatters && c->rank == c->root)
		r = MPI_IN_PLACE;
	else if (c->in_place && !scatters && (reduces ? !o->mem : !o->n))
		s = MPI_IN_PLACE;
#if T_HAS_COLL_INIT
	if (persistent) {
		MOVES(PERSISTENT, WITH_INFO);
		return rc;
	}
#else
	(void)persistent;
#endif
	MOVES(NON_BLOCKING, NO_INFO);
	return rc;
}

int coll_start(struct coll *c, MPI_Request *q)
{
	return call(c, q, false);
}

#if T_HAS_COLL_INIT
int coll_init(struct coll *c, MPI_Request *q)
{
	return call(c, q, true);
}
#endif

static void side_types_free(const struct coll *c, struct coll_side *s)
{
	for (int i = 0; i < (by_type(c->kind) ? s->n : s->n > 0); i++)
		if (s->lay[i] != L_INTS)
			M(MPI_Type_free(&s->types[i]));
}

void coll_free_types(struct coll *c)
{
	if (!c->own_types)
		return;
	side_types_free(c, &c->out);
	side_types_free(c, &c->in);
	c->own_types = false;
}

/* ---- results ---- */

/* The same value; the sign of a zero in a complex product depends on what was multiplied first. */
static bool same(const struct acc_type *t, const void *a, const void *b)
{
#define EQUAL(T) ({ \
	T x[4]; \
	memcpy(x, a, sizeof(T) * 2); \
	memcpy(x + 2, b, sizeof(T) * 2); \
	x[0] == x[2] && x[1] == x[3]; \
})
	switch (t->kind) {
	case K_C32: return EQUAL(float);
	case K_C64: return EQUAL(double);
	case K_CLD: return EQUAL(long double);
	case K_C128: return EQUAL(__float128);
	default: return acc_equal(t, a, b);
	}
}

/* The elements that have to be right, and the bytes around them; those of a reduction in place that it does not say are left out. */
static const char *wrong_result(const struct coll *c, char *say, size_t room_for)
{
	size_t size = (size_t)c->type->size, n = (size_t)c->rcounts[c->rank];
	const unsigned char *want = c->in.want + GUARD;

	for (size_t e = 0; e < n && !c->fractions && !(c->kind == C_EXSCAN && c->rank == 0); e++) {
		const unsigned char *g = c->in.base + e * size, *w = want + e * size;

		if (same(c->type, g, w))
			continue;
		snprintf(say, room_for, "%s %s of %s: element %zu of %zu is %02x%02x.., expected %02x%02x..", coll_names[c->kind],
			 acc_op_names[c->op], c->type->name, e, n, g[0], g[size > 1], w[0], w[size > 1]);
		return say;
	}
	if (memcmp(c->in.mem, c->in.want, GUARD) ||
	    memcmp(c->in.mem + c->in.bytes - GUARD, c->in.want + c->in.bytes - GUARD, GUARD)) {
		snprintf(say, room_for, "%s: memory beside the result was written", coll_names[c->kind]);
		return say;
	}
	return NULL;
}

const char *coll_wrong(struct coll *c)
{
	static __thread char say[200];
	const struct coll_side *side[2] = { &c->out, &c->in };

	for (int i = 0; i < 2; i++) {
		const struct coll_side *s = side[i];
		size_t at = 0, bad = 0;

		if (!s->mem)
			continue;
		if (i && coll_reduces(c->kind))
			return wrong_result(c, say, sizeof(say));
		for (size_t k = 0; k < s->bytes; k++)
			if (s->mem[k] != s->want[k] && !bad++)
				at = k;
		if (!bad)
			continue;
		snprintf(say, sizeof(say), "%s%s, rank %d of %d, %d units, layout %d: %zu of %zu bytes of the %s buffer differ, the first at %zd",
			 coll_names[c->kind], c->in_place ? " in place" : "", c->rank, c->size, c->units,
			 s->n ? (int)s->lay[0] : -1, bad, s->bytes, i ? "receive" : "send", (ssize_t)at - GUARD);
		return say;
	}
	return NULL;
}

size_t coll_missing(const struct coll *c)
{
	volatile const unsigned char *mem = c->in.mem;
	size_t n = c->in.bytes, missing = 0;

	if (coll_reduces(c->kind) && n)
		n = GUARD + (size_t)c->rcounts[c->rank] * (size_t)c->type->size;
	for (size_t i = 0; i < n; i++)
		missing += mem[i] != c->in.want[i];
	return missing;
}

uint64_t coll_digest(const struct coll *c)
{
	uint64_t h = (uint64_t)c->kind;
	size_t n = c->in.bytes;

	/* what is behind the result of a reduction in place is not said to be anything, nor is an exscan's first result */
	if (c->in.mem && coll_reduces(c->kind))
		n = c->kind == C_EXSCAN && !c->rank ? 0 : GUARD + (size_t)c->rcounts[c->rank] * (size_t)c->type->size;
	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = 0;

		memcpy(&v, c->in.mem + i, n - i < 8 ? n - i : 8);
		h = mix(h, v);
	}
	return h;
}

static void side_free(struct coll_side *s)
{
	free(s->len);
	free(s->counts);
	free(s->displs);
	free(s->wide);
	free(s->key);
	free(s->lay);
	free(s->types);
	free(s->mem);
	free(s->want);
}

void coll_free(struct coll *c)
{
	coll_free_types(c);
	side_free(&c->out);
	side_free(&c->in);
	free(c->rcounts);
}
