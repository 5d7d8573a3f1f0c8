// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Parallel HDF5: datasets that are written and read collectively in interleaved columns, so that the ranks exchange
 * what they have, with a filter, so that the ranks hand each other parts of chunks, and independently.  Each
 * rank reads what another one wrote, and checks every number.  Ends with "all numbers are right".
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <hdf5.h>

#define ROWS 300
#define COLS 256

static int rank, ranks;
static long wrong;

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: %s failed\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The columns that rank @r writes, of @file: every @ranks-th block of 4 columns */
static void select_columns(hid_t file, int r)
{
	const hsize_t start[2] = { 0, 4 * (hsize_t)r }, stride[2] = { 1, 4 * (hsize_t)ranks };
	const hsize_t count[2] = { 1, COLS / 4 / (hsize_t)ranks }, block[2] = { ROWS, 4 };

	check(H5Sselect_hyperslab(file, H5S_SELECT_SET, start, stride, count, block) >= 0, "H5Sselect_hyperslab");
}

static double value(int r, size_t i)
{
	return r + 1 + 0.001 * (double)i;
}

/* Writes a dataset, and reads the columns of the next rank; @read before any rank writes */
static void dataset(hid_t f, const char *name, hid_t create, hid_t transfer, bool read)
{
	const hsize_t dims[2] = { ROWS, COLS }, mine = ROWS * COLS / (hsize_t)ranks;
	hid_t file = H5Screate_simple(2, dims, NULL), mem = H5Screate_simple(1, &mine, NULL);
	hid_t set = read ? H5Dopen2(f, name, H5P_DEFAULT) :
			   H5Dcreate2(f, name, H5T_NATIVE_DOUBLE, file, H5P_DEFAULT, create, H5P_DEFAULT);
	double *buf = malloc(mine * sizeof(*buf));
	int other = (rank + 1) % ranks;

	check(set >= 0 && buf, name);
	for (size_t i = 0; i < mine; i++)
		buf[i] = read ? -1 : value(rank, i);
	select_columns(file, read ? other : rank);
	if (read) {
		check(H5Dread(set, H5T_NATIVE_DOUBLE, mem, file, transfer, buf) >= 0, "H5Dread");
		for (size_t i = 0; i < mine; i++)
			wrong += buf[i] != value(other, i);
	} else {
		check(H5Dwrite(set, H5T_NATIVE_DOUBLE, mem, file, transfer, buf) >= 0, "H5Dwrite");
	}
	free(buf);
	H5Dclose(set);
	H5Sclose(mem);
	H5Sclose(file);
}

int main(int argc, char **argv)
{
	const hsize_t chunk[2] = { 64, 50 };
	hid_t access, plain, packed, together, alone, f;
	long all;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	check(argc == 2 && COLS / 4 % ranks == 0, "usage: hdf5 FILE, 1, 2, 4 .. ranks");
	access = H5Pcreate(H5P_FILE_ACCESS);
	H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
	plain = H5Pcreate(H5P_DATASET_CREATE);
	/* the file says no time, so that runs can be compared */
	H5Pset_obj_track_times(plain, 0);
	packed = H5Pcopy(plain);
	H5Pset_chunk(packed, 2, chunk);
	H5Pset_deflate(packed, 3);
	together = H5Pcreate(H5P_DATASET_XFER);
	H5Pset_dxpl_mpio(together, H5FD_MPIO_COLLECTIVE);
	alone = H5Pcreate(H5P_DATASET_XFER);
	H5Pset_dxpl_mpio(alone, H5FD_MPIO_INDEPENDENT);

	f = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
	check(f >= 0, "H5Fcreate");
	dataset(f, "together", plain, together, false);
	dataset(f, "packed", packed, together, false);
	dataset(f, "alone", plain, alone, false);
	H5Fclose(f);

	f = H5Fopen(argv[1], H5F_ACC_RDONLY, access);
	check(f >= 0, "H5Fopen");
	dataset(f, "together", plain, together, true);
	dataset(f, "packed", packed, together, true);
	dataset(f, "alone", plain, together, true);
	H5Fclose(f);
	H5Pclose(alone);
	H5Pclose(together);
	H5Pclose(packed);
	H5Pclose(plain);
	H5Pclose(access);

	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf(all ? "%ld numbers are wrong\n" : "all numbers are right\n", all);
	fflush(stdout);
	MPI_Finalize();
	return wrong != 0;
}
