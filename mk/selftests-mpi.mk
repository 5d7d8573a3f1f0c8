# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# MPI conformance programs: every selftests/mpi/t_*.c once for each MPI library, f_rma.F90 and f_p2p.F90 once for
# each Fortran binding, the random programs of p2p_random.c (two-sided) and rma_random.c (one-sided), and
# bench/calls.c. They use the MPI library only.

MPITEST_DIR     := selftests/mpi
MPITEST_OUT     := $(BUILD)/selftests/mpi
MPITEST_LIBS    := ompi mpich
MPITEST_CC_ompi  ?= mpicc.openmpi
MPITEST_CC_mpich ?= mpicc.mpich
MPITEST_FC_ompi  ?= mpifort.openmpi
MPITEST_FC_mpich ?= mpifort.mpich

MPITEST_C_PROGS := $(patsubst $(MPITEST_DIR)/t_%.c,%,$(sort $(wildcard $(MPITEST_DIR)/t_*.c)))
MPITEST_F_BINDINGS := mpifh mpi mpif08
MPITEST_F_PROGS := $(MPITEST_F_BINDINGS:%=f_%) $(MPITEST_F_BINDINGS:%=fp_%)
MPITEST_COMMON  := mpitest done dtmap acctypes
MPITEST_RANDOM  := random done
# MPI_STATUSES_IGNORE is (MPI_Status *)1 in one of the libraries, which gcc takes for an array
MPITEST_CFLAGS   = -O1 -g1 -std=gnu11 -pthread $(WARN) -Wno-stringop-overflow -D_GNU_SOURCE
MPITEST_SAN      = $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
# without explicit interfaces every choice buffer is an argument mismatch
MPITEST_DEF_mpifh  := -DUSE_MPIFH -fallow-argument-mismatch -w
MPITEST_DEF_mpi    := -DUSE_MPI -fallow-argument-mismatch -w
MPITEST_DEF_mpif08 := -DUSE_F08 -Wall -Werror -Wno-unused-dummy-argument
# calls of MPI 4
MPITEST_FDEF_mpich := -DMPI4

# library, prefix of the program's name, binding, source
define mpitest_fortran_rules
$(MPITEST_OUT)/$(1)/$(2)_$(3): $(MPITEST_DIR)/$(4) $(MPITEST_DIR)/f_harness.h $(MPITEST_OUT)/$(1)/obj/done.o
	$$(call say,MPIFC,$$@)
	$$(Q)mkdir -p $$(@D)/mod-$$(@F)
	$$(Q)$$(MPITEST_FC_$(1)) -O1 -g $$(MPITEST_DEF_$(3)) $$(MPITEST_FDEF_$(1)) $$(MPITEST_SAN) \
		-J$$(@D)/mod-$$(@F) -o $$@ $$< $(MPITEST_OUT)/$(1)/obj/done.o
endef

define mpitest_rules
$(MPITEST_OUT)/$(1)/obj/%.o: $(MPITEST_DIR)/%.c
	$$(call say,MPICC,$$< ($(1)))
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(MPITEST_CC_$(1)) $$(MPITEST_CFLAGS) $$(MPITEST_SAN) -MMD -MP -c -o $$@ $$<

$(addprefix $(MPITEST_OUT)/$(1)/,$(MPITEST_C_PROGS)): $(MPITEST_OUT)/$(1)/%: \
		$(MPITEST_OUT)/$(1)/obj/t_%.o $(MPITEST_COMMON:%=$(MPITEST_OUT)/$(1)/obj/%.o)
	$$(call say,MPILD,$$@)
	$$(Q)$$(MPITEST_CC_$(1)) -pthread $$(MPITEST_SAN) -o $$@ $$^ -lm

$(MPITEST_OUT)/$(1)/p2p_random: $(MPITEST_OUT)/$(1)/obj/p2p_random.o $(MPITEST_RANDOM:%=$(MPITEST_OUT)/$(1)/obj/%.o)
	$$(call say,MPILD,$$@)
	$$(Q)$$(MPITEST_CC_$(1)) -pthread $$(MPITEST_SAN) -o $$@ $$^

$(MPITEST_OUT)/$(1)/rma_random: $(MPITEST_OUT)/$(1)/obj/rma_random.o \
		$(sort $(MPITEST_RANDOM:%=$(MPITEST_OUT)/$(1)/obj/%.o) $(MPITEST_COMMON:%=$(MPITEST_OUT)/$(1)/obj/%.o))
	$$(call say,MPILD,$$@)
	$$(Q)$$(MPITEST_CC_$(1)) -pthread $$(MPITEST_SAN) -o $$@ $$^ -lm

MPITEST_PROGS_$(1) := $(addprefix $(MPITEST_OUT)/$(1)/,$(MPITEST_C_PROGS) $(MPITEST_F_PROGS) p2p_random rma_random)
-include $(wildcard $(MPITEST_OUT)/$(1)/obj/*.d)
endef
$(foreach m,$(MPITEST_LIBS),$(eval $(call mpitest_rules,$(m))))
$(foreach m,$(MPITEST_LIBS),$(foreach b,$(MPITEST_F_BINDINGS),\
	$(eval $(call mpitest_fortran_rules,$(m),f,$(b),f_rma.F90))\
	$(eval $(call mpitest_fortran_rules,$(m),fp,$(b),f_p2p.F90))))

.PHONY: selftests-mpi check-mpi check-mpi-native
selftests-mpi: $(foreach m,$(MPITEST_LIBS),$(MPITEST_PROGS_$(m)) $(BUILD)/bench/$(m)/calls)

check-mpi: selftests-mpi user
	$(Q)BUILD=$(BUILD) $(MPITEST_DIR)/run --hook

check-mpi-native: selftests-mpi
	$(Q)BUILD=$(BUILD) $(MPITEST_DIR)/run --native

# make soak-p2p or soak-rma [SOAK_PROGRAMS=5000] [SOAK_ARGS="--mpi mpich --first SEED"]
SOAK_PROGRAMS ?= 5000
.PHONY: soak-p2p soak-rma
soak-p2p soak-rma: soak-%: selftests-mpi user
	$(Q)PROG_BUILD=$(abspath $(BUILD)) $(MPITEST_DIR)/$*_test --programs $(SOAK_PROGRAMS) $(SOAK_ARGS)
