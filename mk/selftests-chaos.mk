# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# The MPI program of the fault tests, once for each MPI library.

CHAOS_OUT := $(BUILD)/selftests/chaos
CHAOS_MPICC_ompi  ?= mpicc.openmpi
CHAOS_MPICC_mpich ?= mpicc.mpich

define chaos_rule
$(CHAOS_OUT)/$(1)/chaos: selftests/chaos/chaos.c include/mpi/asyncprog/notify.h mk/selftests-chaos.mk
	$$(call say,MPICC,$$@)
	$(Q)mkdir -p $$(@D)
	$(Q)$$(CHAOS_MPICC_$(1)) -O2 -g -std=gnu11 -D_GNU_SOURCE -Iinclude/mpi $$(WARN) -o $$@ $$<
endef
$(foreach m,ompi mpich,$(eval $(call chaos_rule,$(m))))

CHAOS_PROGS := $(foreach m,ompi mpich,$(CHAOS_OUT)/$(m)/chaos)
# the sanitizer builds do not run this group
TEST_TARGETS += $(if $(SAN),,$(CHAOS_PROGS))

.PHONY: selftests-chaos
selftests-chaos: $(CHAOS_PROGS)
