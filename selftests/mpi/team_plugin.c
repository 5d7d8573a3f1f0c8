// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* A part of a program that brings an OpenMP runtime of its own; see t_team.c. */
#include <omp.h>

void plugin_region(int n, void (*fn)(void));
void plugin_region(int n, void (*fn)(void))
{
	#pragma omp parallel num_threads(n)
	#pragma omp masked
	fn();
}
