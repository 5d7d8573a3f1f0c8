# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# make TARGET PLATFORM=RELEASE: the targets and variables of the command line, by tools/platforms/platform.

PLATFORM_GOALS := $(or $(MAKECMDGOALS),user)
.PHONY: $(PLATFORM_GOALS) on-platform
$(PLATFORM_GOALS): on-platform
	@:
# the variables are quoted as make does it
on-platform:
	@tools/platforms/platform make '$(PLATFORM)' $(PLATFORM_GOALS) $(MAKEOVERRIDES)
