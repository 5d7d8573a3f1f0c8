# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Thin on purpose: rules live in mk/*.mk, file lists are wildcards.  `make help` says what there is.

.DEFAULT_GOAL := user

# PLATFORM=RELEASE: all that is asked for is made on that Debian release
ifeq ($(filter-out $(PROG_PLATFORM),$(PLATFORM)),)

include mk/config.mk
include mk/base.mk
include mk/hooks.mk
include mk/tools.mk
include mk/kmod.mk
include mk/verbs.mk
include $(wildcard mk/selftests-*.mk)
include mk/test.mk
include mk/bench.mk
include mk/install.mk
include mk/dev.mk
include mk/help.mk

else
include mk/platforms.mk
endif
