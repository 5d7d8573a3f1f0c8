# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# MPI conformance programs: every selftests/mpi/t_*.c once for each MPI library, f_rma.F90, f_p2p.F90, f_coll.F90, f_team.F90 and
# f_notify.F90 once for each Fortran binding, the random programs of p2p_random.c (two-sided), rma_random.c (one-sided) and
# coll_random.c (collectives), and bench/calls.c. They use the MPI library only, and t_team.c an OpenMP runtime: GCC's code with libgomp (team) and with
# libomp (team_libomp), and Clang's (team_clang).

MPITEST_DIR     := selftests/mpi
MPITEST_OUT     := $(BUILD)/selftests/mpi
MPITEST_LIBS    := ompi mpich
MPITEST_CC_ompi  ?= mpicc.openmpi
MPITEST_CC_mpich ?= mpicc.mpich
# libraries with the standard's ABI, as far as they are installed (HOOK_ABIS): the same programs in C.  Their files have the
# same soname, so each has a directory in which it has that name.
MPITEST_ABIS     := $(if $(filter %libmpi_abi_openmpi.so.1.0.0,$(HOOK_ABIS)),abi-ompi) \
	$(if $(filter %libmpi_abi_mpich.so.1.0.0,$(HOOK_ABIS)),abi-mpich)
MPITEST_ABI_FILE_abi-ompi  = $(filter %libmpi_abi_openmpi.so.1.0.0,$(HOOK_ABIS))
MPITEST_ABI_FILE_abi-mpich = $(filter %libmpi_abi_mpich.so.1.0.0,$(HOOK_ABIS))
MPITEST_ABI_INC_abi-ompi   = $(dir $(MPITEST_ABI_FILE_abi-ompi))openmpi/include/standard_abi
MPITEST_ABI_INC_abi-mpich  = $(dir $(MPITEST_ABI_FILE_abi-mpich))mpi_abi_mpich/include
MPITEST_CC_abi-ompi        = $(CC) -DTEST_ABI -DOPEN_MPI=1 -I$(MPITEST_ABI_INC_abi-ompi)
MPITEST_CC_abi-mpich       = $(CC) -DTEST_ABI -I$(MPITEST_ABI_INC_abi-mpich)
MPITEST_FC_ompi  ?= mpifort.openmpi
MPITEST_FC_mpich ?= mpifort.mpich

MPITEST_C_PROGS := $(patsubst $(MPITEST_DIR)/t_%.c,%,$(sort $(wildcard $(MPITEST_DIR)/t_*.c)))
MPITEST_F_BINDINGS := mpifh mpi mpif08
MPITEST_F_PROGS := $(foreach p,f fp fc ft fn,$(MPITEST_F_BINDINGS:%=$(p)_%))
# what programs compile with their own to have notified access
MPITEST_F_NOTIFY_mpifh  := include/mpi/asyncprog/asyncprog_notify.f90
MPITEST_F_NOTIFY_mpi    := $(MPITEST_F_NOTIFY_mpifh)
MPITEST_F_NOTIFY_mpif08 := $(MPITEST_F_NOTIFY_mpifh) include/mpi/asyncprog/asyncprog_notify_f08.f90
MPI_EXAMPLES    := $(shell grep -l 'mpi\.h' $(wildcard examples/*.c))
MPI_EXAMPLE_LIBS_fft := -lfftw3
MPITEST_COMMON  := mpitest done idle fault dtmap acctypes collcase
MPITEST_RANDOM  := random done idle fault
MPITEST_RMA     := $(patsubst $(MPITEST_DIR)/%.c,%,$(sort $(wildcard $(MPITEST_DIR)/rma_random_*.c)))
MPITEST_F_COMMON := done idle
# MPI_STATUSES_IGNORE is (MPI_Status *)1 in one of the libraries, which gcc takes for an array
MPITEST_CFLAGS   = -O1 -g1 -std=gnu11 -pthread $(WARN) -Wno-stringop-overflow -Wno-deprecated-declarations -D_GNU_SOURCE -Iinclude/mpi
MPITEST_SAN      = $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
# without explicit interfaces every choice buffer is an argument mismatch
MPITEST_DEF_mpifh  := -DUSE_MPIFH -fallow-argument-mismatch -w
MPITEST_DEF_mpi    := -DUSE_MPI -fallow-argument-mismatch -w
MPITEST_DEF_mpif08 := -DUSE_F08 -Wall -Werror -Wno-unused-dummy-argument
# calls of MPI 4
MPITEST_FDEF_mpich := -DMPI4

$(MPITEST_ABIS:%=$(MPITEST_OUT)/%/lib/libmpi_abi.so.1): $(MPITEST_OUT)/%/lib/libmpi_abi.so.1:
	$(Q)mkdir -p $(@D)
	$(Q)ln -sf $(MPITEST_ABI_FILE_$*) $@

# the compiler of a library's wrapper
MPITEST_BY_ompi  = OMPI_CC=$(1) $(MPITEST_CC_ompi)
MPITEST_BY_mpich = MPICH_CC=$(1) $(MPITEST_CC_mpich)

$(MPITEST_OUT)/team_plugin.so: $(MPITEST_DIR)/team_plugin.c
	$(call say,CLANG,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(MPITEST_CFLAGS) -Wno-unknown-warning-option -fopenmp -fPIC -shared -o $@ $<

# library, prefix of the program's name, binding, source, modules that it uses
define mpitest_fortran_rules
$(MPITEST_OUT)/$(1)/$(2)_$(3): $(5) $(MPITEST_DIR)/$(4) $(MPITEST_DIR)/f_harness.h $(MPITEST_F_COMMON:%=$(MPITEST_OUT)/$(1)/obj/%.o)
	$$(call say,MPIFC,$$@)
	$$(Q)mkdir -p $$(@D)/mod-$$(@F)
	$$(Q)$$(MPITEST_FC_$(1)) -O1 -g $$(MPITEST_DEF_$(3)) $$(MPITEST_FDEF_$(1)) $$(MPITEST_SAN) \
		$(if $(filter ft,$(2)),-fopenmp) -J$$(@D)/mod-$$(@F) -o $$@ $(5) $(MPITEST_DIR)/$(4) $(MPITEST_F_COMMON:%=$(MPITEST_OUT)/$(1)/obj/%.o)
endef

# library, and its file where no compiler's wrapper knows it
define mpitest_rules
$(MPITEST_OUT)/$(1)/obj/%.o: $(MPITEST_DIR)/%.c
	$$(call say,MPICC,$$< ($(1)))
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(MPITEST_CC_$(1)) $$(MPITEST_CFLAGS) $$(MPITEST_SAN) -MMD -MP -c -o $$@ $$<

$(addprefix $(MPITEST_OUT)/$(1)/,$(MPITEST_C_PROGS)): $(MPITEST_OUT)/$(1)/%: \
		$(MPITEST_OUT)/$(1)/obj/t_%.o $(MPITEST_COMMON:%=$(MPITEST_OUT)/$(1)/obj/%.o) $(2)
	$$(call say,MPILD,$$@)
	$$(Q)$$(MPITEST_CC_$(1)) -pthread $$(MPITEST_SAN) -o $$@ $$^ -lm $(if $(2),-Wl$(comma)-rpath$(comma)$(abspath $(dir $(2))))

$(MPITEST_OUT)/$(1)/obj/t_team.o $(MPITEST_OUT)/$(1)/team: private MPITEST_CFLAGS += -fopenmp
$(MPITEST_OUT)/$(1)/team: private MPITEST_SAN += -fopenmp
$(MPITEST_OUT)/$(1)/obj/t_team_clang.o: $(MPITEST_DIR)/t_team.c
	$$(call say,CLANG,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(call MPITEST_BY_$(1),$$(FUZZ_CC)) $$(MPITEST_CFLAGS) -Wno-unknown-warning-option -fopenmp -MMD -MP -c -o $$@ $$<
$(MPITEST_OUT)/$(1)/team_libomp $(MPITEST_OUT)/$(1)/team_clang: $(MPITEST_COMMON:%=$(MPITEST_OUT)/$(1)/obj/%.o)
	$$(call say,MPILD,$$@)
	$$(Q)$$(call MPITEST_BY_$(1),$$(FUZZ_CC)) -fopenmp -pthread -o $$@ $$^ -lm
$(MPITEST_OUT)/$(1)/team_libomp: $(MPITEST_OUT)/$(1)/obj/t_team.o
$(MPITEST_OUT)/$(1)/team_clang: $(MPITEST_OUT)/$(1)/obj/t_team_clang.o
$(MPITEST_OUT)/$(1)/team: | $(MPITEST_OUT)/team_plugin.so

$(MPITEST_OUT)/$(1)/obj/random.o $(addprefix $(MPITEST_OUT)/$(1)/,p2p_random rma_random coll_random): private MPITEST_SAN += -fopenmp
$(MPITEST_OUT)/$(1)/p2p_random: $(MPITEST_OUT)/$(1)/obj/p2p_random.o $(MPITEST_RANDOM:%=$(MPITEST_OUT)/$(1)/obj/%.o) $(2)
	$$(call say,MPILD,$$@)
	$$(Q)$$(MPITEST_CC_$(1)) -pthread $$(MPITEST_SAN) -o $$@ $$^ $(if $(2),-Wl$(comma)-rpath$(comma)$(abspath $(dir $(2))))

$(MPITEST_OUT)/$(1)/rma_random: $(MPITEST_RMA:%=$(MPITEST_OUT)/$(1)/obj/%.o)
$(MPITEST_OUT)/$(1)/rma_random $(MPITEST_OUT)/$(1)/coll_random: $(MPITEST_OUT)/$(1)/%: $(MPITEST_OUT)/$(1)/obj/%.o \
		$(sort $(MPITEST_RANDOM:%=$(MPITEST_OUT)/$(1)/obj/%.o) $(MPITEST_COMMON:%=$(MPITEST_OUT)/$(1)/obj/%.o)) $(2)
	$$(call say,MPILD,$$@)
	$$(Q)$$(MPITEST_CC_$(1)) -pthread $$(MPITEST_SAN) -o $$@ $$^ -lm $(if $(2),-Wl$(comma)-rpath$(comma)$(abspath $(dir $(2))))

# examples that are MPI programs
$(BUILD)/examples/$(1)/%: examples/%.c include/mpi/asyncprog/notify.h
	$$(call say,MPICC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(MPITEST_CC_$(1)) $$(MPITEST_CFLAGS) $$(MPITEST_SAN) -o $$@ $$< $(2) $(if $(2),-Wl$(comma)-rpath$(comma)$(abspath $(dir $(2)))) \
		$$(MPI_EXAMPLE_LIBS_$$*) -lm

MPITEST_PROGS_$(1) := $(addprefix $(MPITEST_OUT)/$(1)/,$(MPITEST_C_PROGS) $(if $(2),,$(MPITEST_F_PROGS)) p2p_random rma_random coll_random \
	$(if $(2)$(SAN),,team_libomp team_clang)) \
	$(patsubst examples/%.c,$(BUILD)/examples/$(1)/%,$(MPI_EXAMPLES))
-include $(wildcard $(MPITEST_OUT)/$(1)/obj/*.d)
endef
$(foreach m,$(MPITEST_LIBS),$(eval $(call mpitest_rules,$(m))))
$(foreach m,$(MPITEST_ABIS),$(eval $(call mpitest_rules,$(m),$(MPITEST_OUT)/$(m)/lib/libmpi_abi.so.1)))
$(foreach m,$(MPITEST_LIBS),$(foreach b,$(MPITEST_F_BINDINGS),\
	$(eval $(call mpitest_fortran_rules,$(m),f,$(b),f_rma.F90))\
	$(eval $(call mpitest_fortran_rules,$(m),fp,$(b),f_p2p.F90))\
	$(eval $(call mpitest_fortran_rules,$(m),fc,$(b),f_coll.F90))\
	$(eval $(call mpitest_fortran_rules,$(m),ft,$(b),f_team.F90))\
	$(eval $(call mpitest_fortran_rules,$(m),fn,$(b),f_notify.F90,$(MPITEST_F_NOTIFY_$(b))))))

.PHONY: selftests-mpi check-mpi check-mpi-native check-mpi-copied
selftests-mpi: $(foreach m,$(MPITEST_LIBS),$(MPITEST_PROGS_$(m)) $(BUILD)/bench/$(m)/calls) $(foreach m,$(MPITEST_ABIS),$(MPITEST_PROGS_$(m)))

check-mpi: selftests-mpi user
	$(Q)BUILD=$(BUILD) $(MPITEST_DIR)/run --hook

# the same with the hook libraries of another build, as if they had been copied: make check-mpi-copied HOOKS_OF=build PLATFORM=trixie
check-mpi-copied: selftests-mpi user
	$(Q)mkdir -p $(BUILD)/copied
	$(Q)ln -sfn $(abspath $(BIN)) $(BUILD)/copied/bin
	$(Q)ln -sfn $(abspath $(HOOKS_OF)/lib) $(BUILD)/copied/lib
	$(Q)ls $(BUILD)/copied/lib/libprogmpi-ompi.so $(BUILD)/copied/lib/libprogmpi-mpich.so >/dev/null
	$(Q)BUILD=$(BUILD) PROG_BUILD=$(abspath $(BUILD)/copied) $(MPITEST_DIR)/run --hook

check-mpi-native: selftests-mpi
	$(Q)BUILD=$(BUILD) $(MPITEST_DIR)/run --native

# make soak-p2p, soak-rma or soak-coll [SOAK_PROGRAMS=5000] [SOAK_ARGS="--mpi mpich --first SEED"]
SOAK_PROGRAMS ?= 5000
.PHONY: soak-p2p soak-rma soak-coll
soak-p2p soak-rma soak-coll: soak-%: selftests-mpi user
	$(Q)PROG_BUILD=$(abspath $(BUILD)) $(MPITEST_DIR)/$*_test --programs $(SOAK_PROGRAMS) $(SOAK_ARGS)
