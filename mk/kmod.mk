# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# The kernel modules, built outside of the tree: one copy of the sources per kernel, in $(BUILD)/kmod/RELEASE.
#
#   make kmod [KDIR=/lib/modules/RELEASE/build] [KARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-]
#   make kmod KMOD_SPARSE=1    with sparse
#   make modules_install [KDIR=] [INSTALL_MOD_PATH=]

# without KDIR: the kernel that runs, or the newest one whose headers are here
KDIR ?= $(or $(wildcard /lib/modules/$(shell uname -r)/build), \
	$(shell ls -dv /lib/modules/*/build 2>/dev/null | tail -n 1))
KARCH ?=
KMOD_SPARSE ?=

KMOD_REL  = $(shell sed -n 's/.*UTS_RELEASE "\(.*\)".*/\1/p' \
	$(KDIR)/include/generated/utsrelease.h 2>/dev/null)
KMOD_OUT  = $(abspath $(BUILD))/kmod/$(KMOD_REL)
# Debian's headers build for the architecture of the machine unless told these two
KMOD_ARCH = $(if $(KARCH),ARCH=$(KARCH) CROSS_COMPILE=$(CROSS_COMPILE) DEB_BUILD_ARCH=x DEB_HOST_ARCH=x)
KMOD_MAKE = $(MAKE) -C $(KDIR) M=$(KMOD_OUT)/kmod W=1 KCFLAGS="$(WERROR)" \
	$(if $(KMOD_SPARSE),C=1) $(KMOD_ARCH)

.PHONY: kmod kmod-sources modules_install
kmod-sources:
	$(Q)[ -n "$(KMOD_REL)" ] || { echo "make kmod: no kernel headers in KDIR='$(KDIR)'" >&2; exit 1; }
	$(Q)mkdir -p $(KMOD_OUT)/kmod $(KMOD_OUT)/include/uapi
	$(Q)cp -Ru --preserve=timestamps kmod/. $(KMOD_OUT)/kmod/
	$(Q)cp -Ru --preserve=timestamps include/uapi/. $(KMOD_OUT)/include/uapi/

kmod: kmod-sources
	$(call say,KMOD,$(KMOD_REL))
	+$(Q)$(KMOD_MAKE) modules

modules_install: kmod
	+$(Q)$(KMOD_MAKE) modules_install
