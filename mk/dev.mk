# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# For who works on the code; CONTRIBUTING.md.  What these need is in packaging/deps-dev.list.

.PHONY: deps-dev format-check format-diff compdb tags tidy coverage
deps-dev:
	$(Q)packaging/install-deps packaging/deps-dev.list

format-check:
	$(Q)selftests/format-check

# what clang-format would do to the lines that were changed since BASE: advice, as it does not know our tables
BASE ?= origin/main
format-diff:
	$(Q)$(MAKE) deps-dev
	$(Q)git clang-format-14 --diff -q $(BASE) -- '*.c' '*.h'

# compile_commands.json, for clangd and clang-tidy
compdb:
	$(Q)$(MAKE) user
	$(Q)$(MAKE) -Bn V=1 user tests 2>/dev/null | mk/compdb '$(CURDIR)' >compile_commands.json
	$(call say,GEN,compile_commands.json)

tags:
	$(Q)$(MAKE) deps-dev
	$(Q)ctags -R --languages=C,Python,Perl,Sh --exclude='build*' --exclude=results -f tags .
	$(call say,GEN,tags)

# TIDY_FILES='daemon/progd/rma/*.c': some minutes for all that is installed
TIDY_FILES ?= $(BASE_SRCS) $(CLIENT_SRCS) $(PROGD_SRCS) $(SUPER_SRCS) $(VERBS_SRCS) daemon/progd/main.c \
	$(addprefix $(HOOK_DIR)/,$(HOOK_NAMES)) $(wildcard tools/*/*.c)
tidy:
	$(Q)$(MAKE) deps-dev compdb
	$(Q)printf '%s\n' $(TIDY_FILES) | xargs -P $(JOBS) -n 1 clang-tidy-14 -p . --quiet

# Lines that tests reach: build-coverage/coverage/all/index.html, and hooks-FAMILY/ where MPI programs ran; tables by file
# and by folder
COVERAGE_GROUPS ?= unit daemon client
COVERAGE_BUILD  := $(BUILD)-coverage
coverage:
	$(Q)$(MAKE) deps deps-dev
	$(Q)$(MAKE) BUILD=$(COVERAGE_BUILD) CFLAGS='-O1 -g --coverage -fprofile-update=atomic' LDFLAGS=--coverage tests \
		$(if $(filter mpi,$(COVERAGE_GROUPS)),$(MPITEST_ALL))
	$(Q)mk/coverage prepare $(COVERAGE_BUILD)
	$(Q)selftests/run --build $(COVERAGE_BUILD) $(COVERAGE_GROUPS) || echo 'coverage: tests failed: see above' >&2
	$(Q)mk/coverage report $(COVERAGE_BUILD)
