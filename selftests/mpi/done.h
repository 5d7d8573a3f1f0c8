/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef MPITEST_DONE_H
#define MPITEST_DONE_H

/*
 * To be called just before MPI_Finalize.  With TEST_DONE_FILE in the environment that file appears once every
 * rank is inside the MPI library's own MPI_Finalize, behind what hooks do there: who does not come back
 * from there (MPICH between nodes, now and then) has hung in the library.  Needs a folder that all ranks see.
 */
void done_arm(void);
void done_arm_(void);	/* for Fortran */

#endif
