# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""
h5py and mpi4py, which load the MPI library as a part of a Python module: collective writes whose pieces are interleaved,
arrays and pickled objects between the ranks, and a window.  Each rank checks what it gets; ends with "all is right".
"""
import sys

import h5py
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
N = 200


def piece(r):
    return numpy.arange(N * N, dtype='d').reshape(N, N) * 0.001 + r


with h5py.File(sys.argv[1], 'w', driver='mpio', comm=comm) as f:
    assert h5py.get_config().mpi, 'h5py was built without MPI'
    d = f.create_dataset('d', (N, N * ranks), dtype='d')
    with d.collective:
        d[:, rank::ranks] = piece(rank)
    f.attrs['ranks'] = ranks

nxt, before = (rank + 1) % ranks, (rank - 1) % ranks
with h5py.File(sys.argv[1], 'r', driver='mpio', comm=comm) as f:
    with f['d'].collective:
        assert (f['d'][:, nxt::ranks] == piece(nxt)).all()
    assert f.attrs['ranks'] == ranks

got = numpy.empty((N, N))
comm.Sendrecv(piece(rank), nxt, 1, got, before, 1)
assert (got == piece(before)).all()
obj = comm.sendrecv({'from': rank, 'list': list(range(5000))}, nxt, 2, None, before, 2)
assert obj == {'from': before, 'list': list(range(5000))}

win = MPI.Win.Allocate(8 * N * N, 8, comm=comm)
mem = numpy.frombuffer(win, dtype='d')
win.Fence()
win.Put(piece(rank), nxt)
win.Fence()
assert (mem == piece(before).ravel()).all()
del mem
win.Free()

total = comm.allreduce(float(got.sum()))
if rank == 0:
    print('sum %.17g' % total)
    print('all is right')
