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

# Lines that tests reach: build-coverage/coverage/index.html, and tables by file and by folder
COVERAGE_GROUPS ?= unit daemon client
COVERAGE_BUILD  := $(BUILD)-coverage
coverage:
	$(Q)$(MAKE) deps deps-dev
	$(Q)$(MAKE) BUILD=$(COVERAGE_BUILD) CFLAGS='-O1 -g --coverage -fprofile-update=atomic' LDFLAGS=--coverage tests
	$(Q)find $(COVERAGE_BUILD) -name '*.gcda' -delete
	$(Q)selftests/run --build $(COVERAGE_BUILD) $(COVERAGE_GROUPS) || echo 'coverage: tests failed: see above' >&2
	$(Q)mkdir -p $(COVERAGE_BUILD)/coverage
	$(Q)gcovr --root . --object-directory $(COVERAGE_BUILD) --filter 'lib/' --filter 'daemon/' --exclude '.*_test\.c' --exclude '.*/test_kit\.h' \
		--html-details $(COVERAGE_BUILD)/coverage/index.html --txt $(COVERAGE_BUILD)/coverage/table \
		--csv $(COVERAGE_BUILD)/coverage/table.csv
	$(Q)cat $(COVERAGE_BUILD)/coverage/table
	$(Q)awk -F, 'NR > 1 { sub("/[^/]*$$", "", $$1); n[$$1] += $$2; hit[$$1] += $$3 } \
		END { for (d in n) if (n[d]) printf "%-30s %6d lines %6.1f %%\n", d, n[d], 100 * hit[d] / n[d] }' \
		$(COVERAGE_BUILD)/coverage/table.csv | sort
