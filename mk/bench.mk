# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Benchmarks and demo programs: each source is compiled once per MPI library, into
# $(BUILD)/bench/{ompi,mpich}/NAME. The very same file is run natively and under the hooks.

BENCH       := $(BUILD)/bench
BENCH_C     := $(filter-out bench/bench.c,$(sort $(wildcard bench/*.c bench/demo/*.c)))
BENCH_F90   := $(sort $(wildcard bench/demo/*.f90))
BENCH_PROGS := $(foreach m,ompi mpich,$(addprefix $(BENCH)/$(m)/,\
	$(basename $(notdir $(BENCH_C) $(BENCH_F90)))))
BENCH_CFLAGS = -O2 -g -std=gnu11 -D_GNU_SOURCE -Ibench -Iinclude/mpi $(WARN)

MPICC_ompi  ?= mpicc.openmpi
MPICC_mpich ?= mpicc.mpich
CAF_ompi    := caf-openmpi
CAF_mpich   := caf-mpich
FC_BENCH    ?= gfortran

# bench_c MPI,SOURCE and bench_f90 MPI,SOURCE: one program each
define bench_c
$(BENCH)/$(1)/$(basename $(notdir $(2))): $(2) bench/bench.c bench/bench.h include/mpi/asyncprog/notify.h
	$$(call say,MPICC,$$@)
	$(Q)mkdir -p $$(@D)
	$(Q)$$(MPICC_$(1)) $$(BENCH_CFLAGS) $(if $(filter bench/threads.c,$(2)),-fopenmp) -o $$@ $(2) bench/bench.c
endef

# linked with Debian's OpenCoarrays runtime, as any coarray program would be
define bench_f90
$(BENCH)/$(1)/$(basename $(notdir $(2))): $(2)
	$$(call say,CAF,$$@)
	$(Q)mkdir -p $$(@D)
	$(Q)$$(FC_BENCH) -O2 -g -std=f2018 -Wall -Wextra -Werror -fcoarray=lib -o $$@ $(2) \
		$$(shell $$(PKG_CONFIG) --libs $$(CAF_$(1)))
endef

$(BENCH)/ompi/radix $(BENCH)/mpich/radix: examples/radix.c

$(foreach m,ompi mpich,$(foreach s,$(BENCH_C),$(eval $(call bench_c,$(m),$(s)))))
$(foreach m,ompi mpich,$(foreach s,$(BENCH_F90),$(eval $(call bench_f90,$(m),$(s)))))

.PHONY: bench bench-programs
bench-programs: $(BENCH_PROGS)

# make bench BENCH_ARGS="--quick --case passive"
bench: user bench-programs
	$(Q)PROG_BUILD=$(abspath $(BUILD)) bench/run $(BENCH_ARGS)
