// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * PETSc: Laplacians in two and three dimensions, solved by conjugate gradients as they are in books, whose dot products everybody
 * waits for, and by two pipelined ones (KSPPIPECG, KSPPIPELCG), which compute while theirs are under way (MPI_Iallreduce).
 * The solution is known.  Prints iterations, and to stderr how long each took; ends with "all solutions are right".
 *
 *     petsc [POINTS-IN-2D [POINTS-IN-3D]]		along each edge
 */
#include <stdlib.h>

#include <petscksp.h>

#define TOLERANCE	1e-9		/* of the residual, as part of the first one */
#define ERROR_MOST	1e-5		/* of each number of the solution, which are 1 to 2 */

struct grid {
	PetscInt dims, edge;
};

/* The row of point @row: 2 * dims, and -1 for each neighbour. */
static PetscErrorCode set_row(Mat a, const struct grid *g, PetscInt row)
{
	PetscInt cols[7] = { row }, n = 1, stride = 1;
	PetscScalar values[7] = { 2 * g->dims };

	for (PetscInt d = 0; d < g->dims; d++, stride *= g->edge) {
		PetscInt at = row / stride % g->edge;

		if (at > 0) {
			values[n] = -1;
			cols[n++] = row - stride;
		}
		if (at < g->edge - 1) {
			values[n] = -1;
			cols[n++] = row + stride;
		}
	}
	PetscCall(MatSetValues(a, 1, &row, n, cols, values, INSERT_VALUES));
	return 0;
}

static PetscErrorCode laplacian(const struct grid *g, Mat *a)
{
	PetscInt n = 1, first, end;

	for (PetscInt d = 0; d < g->dims; d++)
		n *= g->edge;
	PetscCall(MatCreateAIJ(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, n, n, 7, NULL, 6, NULL, a));
	PetscCall(MatGetOwnershipRange(*a, &first, &end));
	for (PetscInt row = first; row < end; row++)
		PetscCall(set_row(*a, g, row));
	PetscCall(MatAssemblyBegin(*a, MAT_FINAL_ASSEMBLY));
	PetscCall(MatAssemblyEnd(*a, MAT_FINAL_ASSEMBLY));
	return 0;
}

static PetscErrorCode solve(const struct grid *g, Mat a, const char *type, PetscBool *right)
{
	KSPConvergedReason why;
	PetscLogDouble start, end;
	PetscInt first, last, its;
	Vec want, b, x;
	PetscReal off;
	KSP ksp;
	PC pc;

	PetscCall(MatCreateVecs(a, &x, &b));
	PetscCall(VecDuplicate(x, &want));
	PetscCall(VecGetOwnershipRange(want, &first, &last));
	for (PetscInt i = first; i < last; i++)
		PetscCall(VecSetValue(want, i, 1 + (PetscScalar)(i * 7919 % 1000) / 1000, INSERT_VALUES));
	PetscCall(VecAssemblyBegin(want));
	PetscCall(VecAssemblyEnd(want));
	PetscCall(MatMult(a, want, b));

	PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
	PetscCall(KSPSetOperators(ksp, a, a));
	PetscCall(KSPSetType(ksp, type));
	PetscCall(KSPGetPC(ksp, &pc));
	PetscCall(PCSetType(pc, PCJACOBI));
	PetscCall(KSPSetTolerances(ksp, TOLERANCE, PETSC_DEFAULT, PETSC_DEFAULT, 2000));
	PetscCall(KSPSetFromOptions(ksp));
	PetscCall(PetscTime(&start));
	PetscCall(KSPSolve(ksp, b, x));
	PetscCall(PetscTime(&end));
	PetscCall(KSPGetConvergedReason(ksp, &why));
	PetscCall(KSPGetIterationNumber(ksp, &its));
	PetscCall(VecAXPY(x, -1, want));
	PetscCall(VecNorm(x, NORM_INFINITY, &off));
	*right = *right && why > 0 && off < ERROR_MOST;
	PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%d-D, %s: %d iterations, %s\n", (int)g->dims, type, (int)its,
			      why > 0 && off < ERROR_MOST ? "solved" : "not solved"));
	PetscCall(PetscFPrintf(PETSC_COMM_WORLD, stderr, "%d-D, %s: %.1f us each\n", (int)g->dims, type,
			       1e6 * (end - start) / (its ? its : 1)));
	PetscCall(KSPDestroy(&ksp));
	PetscCall(VecDestroy(&x));
	PetscCall(VecDestroy(&b));
	PetscCall(VecDestroy(&want));
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const types[] = { KSPCG, KSPPIPECG, KSPPIPELCG };
	struct grid grids[] = { { 2, argc > 1 ? atoi(argv[1]) : 60 }, { 3, argc > 2 ? atoi(argv[2]) : 16 } };
	PetscBool right = PETSC_TRUE;

	PetscCall(PetscInitialize(NULL, NULL, NULL, NULL));
	/* eigenvalues, as the diagonal is scaled to 1: what KSPPIPELCG wants to know */
	PetscCall(PetscOptionsSetValue(NULL, "-ksp_pipelcg_lmin", "0"));
	PetscCall(PetscOptionsSetValue(NULL, "-ksp_pipelcg_lmax", "2"));
	for (int i = 0; i < 2; i++) {
		Mat a;

		PetscCall(laplacian(&grids[i], &a));
		for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
			PetscCall(solve(&grids[i], a, types[t], &right));
		PetscCall(MatDestroy(&a));
	}
	if (right)
		PetscCall(PetscPrintf(PETSC_COMM_WORLD, "all solutions are right\n"));
	PetscCall(PetscFinalize());
	return right ? 0 : 1;
}
