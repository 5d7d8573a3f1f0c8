# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Tests.  Documentation/testing.md says how to add one.
#
#   NAME_test.c beside a module, or in selftests/{unit,daemon,client,hostile_users}/  -> $(BUILD)/test/.../NAME_test
#   NAME_fuzz.c (LLVMFuzzerTestOneInput)                                -> $(BUILD)-fuzz/fuzz/.../NAME_fuzz
#   selftests/GROUP/NAME_test, executable                               script, run as it is
# Other fragments add what their tests need to TEST_TARGETS.

TEST_SRCS := $(sort $(wildcard lib/*/*_test.c daemon/progd/*/*_test.c tools/*/*_test.c \
	$(addprefix selftests/,unit/*_test.c daemon/*_test.c client/*_test.c hostile_users/*_test.c)))
TEST_BINS := $(patsubst %.c,$(BUILD)/test/%,$(TEST_SRCS))
FUZZ_SRCS := $(sort $(wildcard lib/*/*_fuzz.c daemon/progd/*/*_fuzz.c daemon/supervisor/*_fuzz.c selftests/fuzz/*_fuzz.c))
FUZZ_BINS := $(patsubst %.c,$(BUILD)/fuzz/%,$(FUZZ_SRCS))

TEST_LIBDEPS := $(if $(PROGD_SRCS),$(LIBPROGCORE)) $(if $(CLIENT_SRCS),$(LIBCLIENT_A)) $(LIBPROGBASE)
TEST_TARGETS += $(TEST_BINS)

# what tests in C have in common
KIT_SRCS := $(sort $(wildcard selftests/kit/*.c))
LIBKIT   := $(LIB)/libprogkit.a
$(LIBKIT): $(call objs,$(KIT_SRCS))
$(call objs,$(KIT_SRCS) $(TEST_SRCS) $(FUZZ_SRCS)): override CPPFLAGS += -Iselftests
# Optimizing takes twice to three times as long, and tests are no faster for it; those that are watched for races are,
# and fuzzers.
ifeq ($(filter-out address$(comma)undefined,$(SAN)),)
$(call objs,$(KIT_SRCS) $(TEST_SRCS)): override CFLAGS += -O0 -g1
endif

$(TEST_BINS): $(BUILD)/test/%: $(OBJ)/%.o $(LIBVERBS) $(LIBKIT) $(TEST_LIBDEPS)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) \
		$(shell $(PKG_CONFIG) --libs cmocka) $(DAEMON_LIBS)

# tests that let allocations fail have the allocator to themselves
$(BUILD)/test/%/oom_test: override LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc

$(FUZZ_BINS): $(BUILD)/fuzz/%: $(OBJ)/%.o $(LIBKIT) $(TEST_LIBDEPS)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(filter %.a,$^) \
		$(shell $(PKG_CONFIG) --libs cmocka) $(DAEMON_LIBS)

# processes, records and ports are the fuzzer's own
$(BUILD)/fuzz/daemon/supervisor/engines_fuzz: $(call objs,$(addprefix daemon/supervisor/,engines.c fair.c cgroup.c subuid.c))

-include $(patsubst %.o,%.d,$(call objs,$(KIT_SRCS) $(TEST_SRCS) $(FUZZ_SRCS)))

# that of packaging/deps.list
FUZZ_CC ?= $(firstword $(foreach c,clang-14 clang-19 clang,$(if $(shell command -v $(c)),$(c))) clang-14)
SAN_BUILDS := address,undefined thread
san_dir = $(BUILD)-$(subst $(comma),-,$(1))
MPITEST_ALL = $(if $(MPITEST_C_PROGS),selftests-mpi)
CHECK_GROUPS ?= unit daemon client hostile_users kmod mpi chaos fuzz sanitizers

HOOKS_SAN := undefined

.PHONY: tests san-tests san-hooks fuzzers build-fuzz fuzz check check-quick build-check dep-check thread-check
tests: user $(TEST_TARGETS)
# what a sanitizer build's tests need: no MPI program runs in it, so not the hooks, a fifth of all objects; these have a
# build of their own, as a sanitizer of memory or threads would not know what the MPI library does
san-tests: $(filter-out $(LIB)/libprogmpi-%.so,$(USER_TARGETS)) $(TEST_TARGETS)
san-hooks: $(filter-out $(LIB)/libprogmpi-abi.so,$(filter $(LIB)/libprogmpi-%.so,$(USER_TARGETS)))
fuzzers: $(FUZZ_BINS)

build-fuzz:
	$(Q)$(MAKE) CC=$(FUZZ_CC) SAN=fuzzer-no-link,address,undefined BUILD=$(BUILD)-fuzz WERROR= fuzzers

# make fuzz [FUZZ_SECONDS=60]: every fuzzer for that long
FUZZ_SECONDS ?= 60
fuzz:
	$(Q)$(MAKE) deps
	$(Q)$(MAKE) build-fuzz
	$(Q)FUZZ_SECONDS=$(FUZZ_SECONDS) BUDGET_fuzz=86400 selftests/run --build $(BUILD) fuzz

# what they start from: grown for FUZZ_SECONDS each, and as few inputs as reach the same code
.PHONY: fuzz-corpus
fuzz-corpus:
	$(Q)$(MAKE) build-fuzz
	$(Q)FUZZ_SECONDS=$(FUZZ_SECONDS) selftests/fuzz/grow $(patsubst $(BUILD)/%,$(BUILD)-fuzz/%,$(FUZZ_BINS))

# The runner's groups follow what is built: a sanitizer build runs the groups that make sense in it.
ifeq ($(SAN),)
# Beside each other, as each of them has a time in which it waits for the network, links, or compiles the last file.
CHECK_BUILDS := $(if $(filter kmod,$(CHECK_GROUPS)),build-kernels) build-programs \
	$(if $(filter sanitizers,$(CHECK_GROUPS)),$(addprefix build-san-,$(SAN_BUILDS)) build-san-hooks) \
	$(if $(filter kmod,$(CHECK_GROUPS)),build-kmod) $(if $(filter fuzz,$(CHECK_GROUPS)),build-fuzz)
.PHONY: build-programs build-kernels build-kmod build-san-hooks $(addprefix build-san-,$(SAN_BUILDS))
build-check: $(CHECK_BUILDS)
build-programs:
	$(Q)$(MAKE) tests $(if $(filter mpi kmod sanitizers,$(CHECK_GROUPS)),$(MPITEST_ALL))
$(addprefix build-san-,$(SAN_BUILDS)): build-san-%:
	$(Q)$(MAKE) SAN=$* BUILD=$(call san_dir,$*) san-tests
build-san-hooks:
	$(Q)$(MAKE) SAN=$(HOOKS_SAN) BUILD=$(call san_dir,$(HOOKS_SAN)) san-hooks
	$(Q)ln -sfn $(abspath $(BIN)) $(call san_dir,$(HOOKS_SAN))/bin
build-kernels:
	$(Q)$(MAKE) kmod-kernels
build-kmod: build-kernels build-programs
	$(Q)$(MAKE) selftests-kmod

check:
	$(Q)$(MAKE) deps
	$(Q)$(MAKE) build-check
	$(Q)selftests/run --build $(BUILD) $(CHECK_GROUPS)
else
check:
	$(Q)$(MAKE) deps
	$(Q)$(MAKE) san-tests
	$(Q)selftests/run --build $(BUILD) unit daemon client
endif

# what to run between changes: the tests of single modules and of the daemon, some of the conformance programs
check-quick:
	$(Q)$(MAKE) tests $(MPITEST_ALL)
	$(Q)selftests/run --build $(BUILD) quick

# make check-platforms [PLATFORMS="trixie"]: all of it built on other Debian releases, and the conformance programs there, with
# the hook libraries of that release and with those of this machine; and what libraries are that they are not made for
PLATFORMS ?= trixie
.PHONY: check-platforms
check-platforms:
	$(Q)$(MAKE) deps
	$(Q)$(MAKE) user
	$(Q)$(foreach p,$(PLATFORMS),$(MAKE) PLATFORM=$(p) tests selftests-mpi && $(MAKE) PLATFORM=$(p) check-mpi && \
		$(MAKE) PLATFORM=$(p) check-mpi-copied HOOKS_OF=$(BUILD) && \
		$(MAKE) PLATFORM=$(p) check-mpi-families &&) true

.PHONY: check-mpi-families
check-mpi-families: user
	$(Q)PROG_BUILD=$(abspath $(BUILD)) prove $(addprefix selftests/mpi/,abi_test families_test hooks_preload_test)

# make check-apps: programs of Debian packages, natively and hooked
.PHONY: check-apps
check-apps:
	$(Q)$(MAKE) deps
	$(Q)packaging/install-deps packaging/deps-apps.list
	$(Q)$(MAKE) user selftests-chaos
	$(Q)selftests/run --build $(BUILD) apps

# clang's analysis of locks, see lib/libprogbase/guard.h
THREAD_CHECK_SRCS = $(filter-out %_fuzz.c,$(BASE_SRCS) $(CLIENT_SRCS) $(PROGD_SRCS) $(VERBS_SRCS))
THREAD_CHECK = $(FUZZ_CC) -fsyntax-only -Wthread-safety -Wno-gcc-compat -Werror -std=gnu11 $(CPPFLAGS) \
	-include selftests/thread-check.h
thread-check:
	$(Q)$(MAKE) deps
	$(Q)printf '%s\n' $(THREAD_CHECK_SRCS) | xargs -P $(JOBS) -n 8 $(THREAD_CHECK)
	@echo 'thread-check: $(words $(THREAD_CHECK_SRCS)) files, 0 offenders'

# make soak-sanitizers: what `make check` leaves out of the sanitizer builds
.PHONY: soak-sanitizers
soak-sanitizers:
	$(Q)$(MAKE) deps
	$(Q)$(MAKE) build-programs $(addprefix build-san-,$(SAN_BUILDS)) build-san-hooks CHECK_GROUPS=sanitizers
	$(Q)selftests/run --build $(BUILD) soak

# make soak-cuts [CUTS="1 10 60 300"]: the network is cut for so many seconds under jobs of both libraries
CUTS ?= 1 10 60 300
.PHONY: soak-cuts
soak-cuts:
	$(Q)$(MAKE) deps
	$(Q)$(MAKE) user selftests-chaos
	$(Q)CUTS='$(CUTS)' PROG_BUILD=$(abspath $(BUILD)) selftests/chaos/cut_test

# make soak-hostile [HOSTILE_ROUNDS=11] [HOSTILE_MOST=5] [ATTACK="greeting"]: what each attack of one user costs another, in %
HOSTILE_ROUNDS ?= 11
HOSTILE_MOST ?= 5
.PHONY: soak-hostile
soak-hostile:
	$(Q)$(MAKE) tests
	$(Q)for t in hostile_users tricks; do \
		PROG_BUILD=$(abspath $(BUILD)) HOSTILE_ROUNDS=$(HOSTILE_ROUNDS) HOSTILE_MOST=$(HOSTILE_MOST) \
			$(BUILD)/test/selftests/hostile_users/$${t}_test "$(or $(ATTACK),*)" || st=1; \
	done; exit $${st:-0}

# make soak-restarts [RESTARTS=100] [STARTED=100]: supervisors are restarted under jobs, and while jobs start
RESTARTS ?= 100
STARTED ?= 100
.PHONY: soak-restarts
soak-restarts:
	$(Q)$(MAKE) deps
	$(Q)$(MAKE) user selftests-chaos
	$(Q)RESTARTS=$(RESTARTS) STARTED=$(STARTED) PROG_BUILD=$(abspath $(BUILD)) selftests/chaos/restarts_test

# make soak-suite [SUITE="--mpi mpich --nodes 2 rma pt2pt"]: MPICH's test programs, from Debian's source package
.PHONY: soak-suite
soak-suite:
	$(Q)$(MAKE) deps
	$(Q)packaging/install-deps packaging/deps-apps.list
	$(Q)$(MAKE) user selftests-chaos
	$(Q)PROG_BUILD=$(abspath $(BUILD)) selftests/apps/mpich_suite $(SUITE)

dep-check: user
	$(Q)CC='$(CC)' selftests/dep-check $(filter -I% -D%,$(CPPFLAGS)) -Iselftests
	$(Q)selftests/call-check --build $(BUILD)
