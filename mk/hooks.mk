# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# libprogmpi-ompi.so, libprogmpi-mpich.so and libprogmpi-abi.so: the same sources, compiled for each family of MPI libraries.
# That of the standard's ABI has a header of its own here, as the ABI is the same everywhere.
#
# The objects and libprogclient are linked into one relocatable object, in which every undefined symbol of
# the MPI library is made weak; the shared library names no MPI library.  So it loads into
# any process, also with LD_BIND_NOW=1, and uses the MPI library that the program brings.  Names of the library's
# functions that the hooks have, too (PMPI_*), are changed before.

HOOK_LIBS  := ompi mpich abi
HOOK_DIR   := mpi-hooks
HOOK_NAMES := $(filter-out %_test.c,$(sort $(notdir $(wildcard $(HOOK_DIR)/*.c))))
HOOK_GEN   := $(BUILD)/gen/mpi-hooks
HOOK_TABLES := $(HOOK_DIR)/hooks.def $(HOOK_DIR)/symbols
HOOK_DEF   := $(HOOK_TABLES) $(HOOK_DIR)/genhooks
OBJCOPY    ?= objcopy
NM         ?= nm
# undefined symbols that come from the MPI library
HOOK_FOREIGN := ^(real_|P?MPI_|MPIR_|OMPI_|ompi_|mpi_|pmpi_|pmpir_)

# what every small message pays for: calls of the MPI library without a detour; the libraries are preloaded, so
# that their few thread-local variables have a place known at the start
HOOK_FAST := -fno-plt -ftls-model=initial-exec
# what newer headers call deprecated is what older libraries have
HOOK_OLD  := -Wno-deprecated-declarations

HOOK_PKG_ompi  := ompi-c
HOOK_PKG_mpich := mpich
# as in the table: ompi-5.0
HOOK_VERSION    = $(1)-$(shell $(PKG_CONFIG) --modversion $(HOOK_PKG_$(1)) | cut -d. -f1,2)
HOOK_VERSION_ompi  = $(call HOOK_VERSION,ompi)
HOOK_VERSION_mpich = $(call HOOK_VERSION,mpich)
HOOK_LIBDIR     = $(shell $(CC) -print-file-name=$(1))
HOOK_FILES_ompi  = $(foreach l,libmpi.so libmpi_mpifh.so libmpi_usempif08.so,$(call HOOK_LIBDIR,$(l)))
HOOK_FILES_mpich = $(foreach l,libmpich.so libmpichfort.so,$(call HOOK_LIBDIR,$(l)))
# those that are installed, of which each is one
HOOK_ABIS = $(wildcard $(dir $(call HOOK_LIBDIR,libc.so.6))libmpi_abi_*.so.1.*)
HOOK_HEADER_ompi  = $(shell $(PKG_CONFIG) --cflags $(HOOK_PKG_ompi))
HOOK_HEADER_mpich = $(shell $(PKG_CONFIG) --cflags $(HOOK_PKG_mpich))
HOOK_HEADER_abi   = -DHOOK_ABI -I$(HOOK_DIR)/abi
HOOK_INSTALLED_ompi  = $(HOOK_VERSION_ompi) $(HOOK_FILES_ompi)
HOOK_INSTALLED_mpich = $(HOOK_VERSION_mpich) $(HOOK_FILES_mpich)

$(HOOK_GEN)/hooks_gen.h: $(HOOK_DEF)
	$(call say,GEN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(HOOK_DIR)/genhooks header $(HOOK_TABLES) >$@
$(HOOK_GEN)/entry.c: $(HOOK_DEF)
	$(call say,GEN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(HOOK_DIR)/genhooks c $(HOOK_TABLES) >$@
$(HOOK_GEN)/entry_f.c: $(HOOK_DEF)
	$(call say,GEN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(HOOK_DIR)/genhooks fortran $(HOOK_TABLES) >$@
$(HOOK_GEN)/names: $(HOOK_DEF)
	$(call say,GEN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(HOOK_DIR)/genhooks names $(HOOK_TABLES) >$@

define hook_rules
HOOK_CFLAGS_$(1)   = $$(HOOK_HEADER_$(1)) $(HOOK_FAST) $(HOOK_OLD)
HOOK_OBJS_$(1)    := $(HOOK_NAMES:%.c=$(OBJ)/hooks-$(1)/%.o) $(OBJ)/hooks-$(1)/entry.o \
			$(OBJ)/hooks-$(1)/entry_f.o

# the list against all versions that are known, and what is known of this one against the library: a new one-sided call of a
# newer MPI library stops the build here
$(HOOK_GEN)/checked-$(1): $(HOOK_DEF)
	$$(call say,CHECK,$$< ($(1)))
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(HOOK_DIR)/genhooks check $(HOOK_TABLES)
	$$(Q)$(if $(filter abi,$(1)),$$(foreach f,$$(HOOK_ABIS),$(HOOK_DIR)/genhooks installed $(HOOK_TABLES) abi-1.0 $$(f) &&) true,\
		$(HOOK_DIR)/genhooks installed $(HOOK_TABLES) $$(HOOK_INSTALLED_$(1)))
	$$(Q)touch $$@

$(OBJ)/hooks-$(1)/%.o: $(HOOK_DIR)/%.c $(HOOK_GEN)/hooks_gen.h mk/config.mk mk/hooks.mk
	$$(call say,MPICC,$$< ($(1)))
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(CC) $$(CPPFLAGS) -I$(HOOK_GEN) -I$(HOOK_DIR) $$(HOOK_CFLAGS_$(1)) $(CFLAGS) \
		-MMD -MP -c -o $$@ $$<
$(OBJ)/hooks-$(1)/entry.o $(OBJ)/hooks-$(1)/entry_f.o: $(OBJ)/hooks-$(1)/%.o: $(HOOK_GEN)/%.c \
		$(HOOK_GEN)/hooks_gen.h mk/config.mk
	$$(call say,MPICC,$$< ($(1)))
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(CC) $$(CPPFLAGS) -I$(HOOK_GEN) -I$(HOOK_DIR) $$(HOOK_CFLAGS_$(1)) $(CFLAGS) \
		-MMD -MP -c -o $$@ $$<
$(OBJ)/hooks-$(1)/all.o: $$(HOOK_OBJS_$(1)) $(LIBCLIENT_A) $(HOOK_GEN)/names $(HOOK_GEN)/checked-$(1)
	$$(call say,LD,$$@)
	$$(Q)$(LD) -r -o $$@.tmp $$(filter %.o,$$^) $(LIBCLIENT_A)
	$$(Q)$(OBJCOPY) --redefine-syms=$(HOOK_GEN)/names $$@.tmp
	$$(Q)$(NM) -u $$@.tmp | awk '$$$$NF ~ /$(HOOK_FOREIGN)/ { print $$$$NF }' | sort -u >$$@.weak
	$$(Q)$(OBJCOPY) --weaken-symbols=$$@.weak $$@.tmp $$@
	$$(Q)rm -f $$@.tmp

$(LIB)/libprogmpi-$(1).so: $(OBJ)/hooks-$(1)/all.o $(HOOK_DIR)/hooks.map
	$$(call say,LD,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(CC) -shared -Wl,-soname,$$(@F) -Wl,-Bsymbolic-functions $(if $(SAN),,-Wl,-z$(comma)defs) \
		-Wl,--version-script=$(HOOK_DIR)/hooks.map $(LDFLAGS) -o $$@ $$< $$(CLIENT_LIBS)

USER_TARGETS += $(if $(wildcard lib/libprogclient/libprogclient.map),$(LIB)/libprogmpi-$(1).so)
-include $$(HOOK_OBJS_$(1):.o=.d)
endef
$(foreach m,$(HOOK_LIBS),$(eval $(call hook_rules,$(m))))

# what tests in C have in common, mk/test.mk; without it: dtype_test
HOOK_KIT := $(LIB)/libprogkit.a
$(OBJ)/$(HOOK_DIR)/%_test.o $(OBJ)/hooks-mpich/%_test.o $(OBJ)/hooks-checked/%_test.o: override CPPFLAGS += -Iselftests

# Tests of single files: MPI programs of one process, once for each MPI library.
define hook_test_rules
HOOK_TEST_$(1) := $(BUILD)/test/mpi-hooks/dtype_$(1)
$$(HOOK_TEST_$(1)): $(addprefix $(OBJ)/hooks-$(1)/,dtype_test.o dtype.o dtype_basic.o dtype_decode.o table.o) \
		$(LIBPROGBASE)
	$$(call say,MPILD,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ $$(shell $(PKG_CONFIG) --libs $$(HOOK_PKG_$(1))) -lm
TEST_TARGETS += $(if $(SAN),,$$(HOOK_TEST_$(1)))
endef
$(foreach m,$(filter-out abi,$(HOOK_LIBS)),$(eval $(call hook_test_rules,$(m))))

# Those that call no function of an MPI library, and include its header.
HOOK_FAMILY_TEST := $(BUILD)/test/$(HOOK_DIR)/win_family_test
$(HOOK_FAMILY_TEST): $(OBJ)/hooks-mpich/win_family_test.o $(OBJ)/hooks-mpich/win_family.o $(HOOK_KIT)
	$(call say,MPILD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(shell $(PKG_CONFIG) --libs cmocka mpich)
TEST_TARGETS += $(if $(SAN),,$(HOOK_FAMILY_TEST))

# Those that have nothing to do with an MPI library.
HOOK_CHAN := $(BUILD)/test/$(HOOK_DIR)/chan_test $(BUILD)/test/$(HOOK_DIR)/chan_threads_test
HOOK_VOTE := $(BUILD)/test/$(HOOK_DIR)/coll_vote_test
HOOK_UNIT := $(HOOK_CHAN) $(HOOK_VOTE)
$(HOOK_CHAN): $(OBJ)/$(HOOK_DIR)/chan.o $(OBJ)/$(HOOK_DIR)/chan_table.o
$(HOOK_VOTE): $(OBJ)/$(HOOK_DIR)/coll_vote.o
$(HOOK_UNIT): $(BUILD)/test/%: $(OBJ)/%.o $(HOOK_KIT)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(shell $(PKG_CONFIG) --libs cmocka)
$(BUILD)/test/$(HOOK_DIR)/chan_test: override LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc
TEST_TARGETS += $(HOOK_UNIT)
-include $(HOOK_UNIT:$(BUILD)/test/%=$(OBJ)/%.d) $(OBJ)/$(HOOK_DIR)/chan.d $(OBJ)/$(HOOK_DIR)/chan_table.d \
	$(OBJ)/$(HOOK_DIR)/coll_vote.d

# Checks that test builds have; of the MPI library this takes the names of types only.
HOOK_CHECKED := $(BUILD)/test/$(HOOK_DIR)/rec_check_test
$(OBJ)/hooks-checked/%.o: $(HOOK_DIR)/%.c $(HOOK_GEN)/hooks_gen.h mk/config.mk mk/hooks.mk
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -DPROG_CHECKS -I$(HOOK_DIR) $(HOOK_CFLAGS_ompi) $(CFLAGS) -MMD -MP -c -o $@ $<
$(HOOK_CHECKED): $(OBJ)/hooks-checked/rec_check_test.o $(OBJ)/hooks-checked/rec_check.o $(HOOK_KIT) $(LIBPROGBASE)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(shell $(PKG_CONFIG) --libs cmocka)
TEST_TARGETS += $(HOOK_CHECKED)
-include $(wildcard $(OBJ)/hooks-checked/*.d)
