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
KMOD_MAKE = $(MAKE) -C $(KDIR) W=1 KCFLAGS="$(WERROR)" $(if $(KMOD_SPARSE),C=1) $(KMOD_ARCH)

.PHONY: kmod kmod-sources kmod-tests modules_install
kmod-sources:
	$(Q)[ -n "$(KMOD_REL)" ] || { echo "make kmod: no kernel headers in KDIR='$(KDIR)'" >&2; exit 1; }
	$(Q)mkdir -p $(KMOD_OUT)/kmod $(KMOD_OUT)/include/uapi
	$(Q)cp -Ru --preserve=timestamps kmod/. $(KMOD_OUT)/kmod/
	$(Q)cp -Ru --preserve=timestamps include/uapi/. $(KMOD_OUT)/include/uapi/
	$(Q)cp -Ru --preserve=timestamps selftests/kmod/dmaprov $(KMOD_OUT)/

kmod: kmod-sources
	$(call say,KMOD,$(KMOD_REL))
	+$(Q)$(KMOD_MAKE) M=$(KMOD_OUT)/kmod modules

# with the DMA engine of the tests
kmod-tests: kmod
	+$(Q)$(KMOD_MAKE) M=$(KMOD_OUT)/dmaprov modules

modules_install: kmod
	+$(Q)$(KMOD_MAKE) M=$(KMOD_OUT)/kmod modules_install

# ---- selftests/kmod: run in virtual machines, see selftests/kmod/vm ----

# t_NAME.c for any kernel, d_NAME.c for the debug kernel, e_NAME.c for a real engine, b_NAME.c gives figures
KMODTEST_SRCS  := $(sort $(wildcard selftests/kmod/[tdeb]_*.c))
KMODTEST_OUT   := $(BUILD)/selftests/kmod
KMODTEST_PROGS := $(patsubst selftests/kmod/%.c,$(KMODTEST_OUT)/%,$(KMODTEST_SRCS))
# the harness comes with Debian's kernel sources only
KSELFTEST      := $(BUILD)/kmod/kselftest
KSELFTEST_TAR  ?= $(lastword $(sort $(wildcard /usr/src/linux-source-6.1.tar.xz)))
KSELFTEST_DIR  := tools/testing/selftests
# the kernels whose headers and images are here, by series
KMODTEST_RELS   = $(notdir $(patsubst %/build,%,$(wildcard $(foreach s,6.1 6.12,/lib/modules/$(s).*/build))))

$(KSELFTEST)/kselftest_harness.h:
	$(call say,UNPACK,$@)
	$(Q)[ -n "$(KSELFTEST_TAR)" ] || { echo "kselftest_harness.h: no linux-source-6.1" >&2; exit 1; }
	$(Q)mkdir -p $(@D)
	$(Q)tar -xmf $(KSELFTEST_TAR) --occurrence=1 --strip-components=4 -C $(@D) \
		linux-source-6.1/$(KSELFTEST_DIR)/kselftest.h \
		linux-source-6.1/$(KSELFTEST_DIR)/kselftest_harness.h

$(KMODTEST_OUT)/t_race: KMODTEST_LIBS = -pthread
$(KMODTEST_OUT)/t_netlink: KMODTEST_CFLAGS = $(shell $(PKG_CONFIG) --cflags libnl-genl-3.0)
$(KMODTEST_OUT)/t_netlink: KMODTEST_LIBS = $(shell $(PKG_CONFIG) --libs libnl-genl-3.0)

# the harness compares numbers of all kinds, declares nothing, and jumps
KMODTEST_FLAGS := -O2 -g -std=gnu11 -D_GNU_SOURCE $(WARN) -Wno-sign-compare -Wno-missing-prototypes -Wno-clobbered \
	-Iinclude/uapi -I$(KSELFTEST)
$(KMODTEST_PROGS): $(KMODTEST_OUT)/%: selftests/kmod/%.c selftests/kmod/kmodtest.h \
		$(wildcard include/uapi/asyncprog/*.h) mk/kmod.mk | $(KSELFTEST)/kselftest_harness.h
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(KMODTEST_FLAGS) $(KMODTEST_CFLAGS) -o $@ $< $(KMODTEST_LIBS)

.PHONY: selftests-kmod check-kmod check-kmod-debug
# without a cross compiler the arm64 tests say that they are skipped
KMOD_ARM64_CROSS ?= aarch64-linux-gnu-
selftests-kmod: $(KMODTEST_PROGS) $(if $(shell command -v $(KMOD_ARM64_CROSS)gcc),selftests-kmod-arm64)
	$(Q)$(foreach r,$(KMODTEST_RELS),$(MAKE) kmod-tests KDIR=/lib/modules/$(r)/build &&) true

# ---- arm64: cross-built; kernel, shell and libnl come from Debian's arm64 packages, into KMOD_ARM64 ----

KMOD_ARM64        ?= $(abspath $(BUILD))/kmod/arm64
KMOD_ARM64_SERIES ?= 6.1
KMODTEST_ARM64    := $(BUILD)/selftests/kmod-arm64
KMODTEST_ARM64_PROGS := $(patsubst selftests/kmod/%.c,$(KMODTEST_ARM64)/%,$(KMODTEST_SRCS))
ZDMA_SRC          := linux-source-6.1/drivers/dma

$(KMODTEST_ARM64)/t_race: KMODTEST_LIBS = -pthread
$(KMODTEST_ARM64)/t_netlink: KMODTEST_CFLAGS = $(shell $(PKG_CONFIG) --cflags libnl-genl-3.0)
$(KMODTEST_ARM64)/t_netlink: KMODTEST_LIBS = $(KMOD_ARM64)/lib/libnl-genl-3.a $(KMOD_ARM64)/lib/libnl-3.a -pthread
$(KMODTEST_ARM64_PROGS): $(KMODTEST_ARM64)/%: selftests/kmod/%.c selftests/kmod/kmodtest.h \
		$(wildcard include/uapi/asyncprog/*.h) mk/kmod.mk | $(KSELFTEST)/kselftest_harness.h kmod-arm64-kernels
	$(call say,CC arm64,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(KMOD_ARM64_CROSS)gcc -static -Wl,--no-warnings $(KMODTEST_FLAGS) $(KMODTEST_CFLAGS) -o $@ $< $(KMODTEST_LIBS)

.PHONY: kmod-arm64-kernels kmod-zdma selftests-kmod-arm64
kmod-arm64-kernels:
	$(Q)$(foreach s,$(KMOD_ARM64_SERIES),selftests/kmod/arm64-kernel $(s) $(KMOD_ARM64) &&) true

# the driver of Xilinx's ZDMA, which Debian's kernel leaves out; that of 6.1 builds for 6.12 so
kmod-zdma: kmod-sources
	$(Q)mkdir -p $(KMOD_OUT)/zdma
	$(Q)tar -xmf $(KSELFTEST_TAR) --occurrence=1 --transform 's,.*/,,' -C $(KMOD_OUT)/zdma \
		$(ZDMA_SRC)/dmaengine.h $(ZDMA_SRC)/xilinx/zynqmp_dma.c
	$(Q)sed -i -e 's,"../dmaengine.h","dmaengine.h",' -e 's,\.remove = ,&(void *),' \
		-e '0,/^#include/s,,#include <linux/platform_device.h>\n&,' $(KMOD_OUT)/zdma/zynqmp_dma.c
	$(Q)echo 'obj-m := zynqmp_dma.o' >$(KMOD_OUT)/zdma/Kbuild
	+$(Q)$(MAKE) -C $(KDIR) $(KMOD_ARCH) M=$(KMOD_OUT)/zdma modules

selftests-kmod-arm64: $(KMODTEST_ARM64_PROGS) | kmod-arm64-kernels
	$(Q)$(foreach s,$(KMOD_ARM64_SERIES),$(MAKE) kmod-tests kmod-zdma KDIR=$(KMOD_ARM64)/$(s)/kdir \
		KARCH=arm64 CROSS_COMPILE=$(KMOD_ARM64_CROSS) &&) true

check-kmod: selftests-kmod
	$(Q)selftests/run --build $(BUILD) kmod

# KASAN, lockdep, kmemleak, fault injection, a machine per program; the kernel is built when it is not there (10
# to 20 minutes)
KMOD_DEBUG ?= $(abspath $(BUILD))/kmod/debug
check-kmod-debug: $(KMODTEST_PROGS)
	$(Q)selftests/kmod/debug-kernel $(KMOD_DEBUG)
	$(Q)$(MAKE) kmod-tests KDIR=$(KMOD_DEBUG)/kbuild
	$(Q)PROG_BUILD=$(abspath $(BUILD)) KMOD_DEBUG=$(KMOD_DEBUG) prove --timer --merge \
		--exec 'selftests/kmod/run debug' $(filter selftests/kmod/t_%.c selftests/kmod/d_%.c,$(KMODTEST_SRCS))

# ---- installation beside `make install`: DKMS sources, udev rule, configuration ----

MODPROBEDIR ?= /etc/modprobe.d
UDEVDIR     ?= /usr/lib/udev/rules.d
MODLOADDIR  ?= /usr/lib/modules-load.d
DKMS_DEST    = $(DESTDIR)/usr/src/asyncprog-$(VERSION)

.PHONY: install-kmod-conf install-dkms
install-kmod-conf:
	$(Q)install -d $(DESTDIR)$(UDEVDIR) $(DESTDIR)$(MODPROBEDIR) $(DESTDIR)$(MODLOADDIR)
	$(Q)install -m 0644 packaging/kmod/60-asyncprog.rules $(DESTDIR)$(UDEVDIR)/
	$(Q)[ -e $(DESTDIR)$(MODPROBEDIR)/asyncprog.conf ] || \
		install -m 0644 packaging/kmod/asyncprog.modprobe $(DESTDIR)$(MODPROBEDIR)/asyncprog.conf
	$(Q)install -m 0644 packaging/kmod/asyncprog.modules-load $(DESTDIR)$(MODLOADDIR)/asyncprog.conf

# dkms add asyncprog/$(VERSION); dkms install asyncprog/$(VERSION)
install-dkms: install-kmod-conf
	$(Q)install -d $(DKMS_DEST)/kmod $(DKMS_DEST)/include/uapi
	$(Q)cp -R kmod/. $(DKMS_DEST)/kmod/
	$(Q)cp -R include/uapi/. $(DKMS_DEST)/include/uapi/
	$(Q)sed 's/@VERSION@/$(VERSION)/' packaging/kmod/dkms.conf.in >$(DKMS_DEST)/dkms.conf
