# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# The kernel modules, built outside of the tree: one copy of the sources per kernel, in $(BUILD)/kmod/RELEASE.
#
#   make kmod [KDIR=/lib/modules/RELEASE/build] [KARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-]
#   make kmod KMOD_SPARSE=1    with sparse (W=1 always)
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
# what sparse says stops the build as what the compiler says does
KMOD_MAKE = $(MAKE) -C $(KDIR) W=1 KCFLAGS="$(WERROR)" \
	$(if $(KMOD_SPARSE),C=1 CF="$(if $(WERROR),-Wsparse-error)") $(KMOD_ARCH)

.PHONY: kmod kmod-sources kmod-tests modules_install
kmod-sources:
	$(Q)[ -n "$(KMOD_REL)" ] || { echo "make kmod: no kernel headers in KDIR='$(KDIR)'" >&2; exit 1; }
	$(Q)mkdir -p $(KMOD_OUT)/kmod $(KMOD_OUT)/include/uapi
	$(Q)cp -Ru --preserve=timestamps kmod/. $(KMOD_OUT)/kmod/
	$(Q)cp -Ru --preserve=timestamps include/uapi/. $(KMOD_OUT)/include/uapi/
	$(Q)cp -Ru --preserve=timestamps selftests/kmod/dmaprov selftests/kmod/dmaimp $(KMOD_OUT)/

kmod: kmod-sources
	$(call say,KMOD,$(KMOD_REL))
	+$(Q)$(KMOD_MAKE) M=$(KMOD_OUT)/kmod modules

# with the DMA engine of the tests, and their importer of dma-bufs
kmod-tests: kmod
	+$(Q)$(KMOD_MAKE) M=$(KMOD_OUT)/dmaprov modules
	+$(Q)$(KMOD_MAKE) M=$(KMOD_OUT)/dmaimp modules

modules_install: kmod
	+$(Q)$(KMOD_MAKE) M=$(KMOD_OUT)/kmod modules_install

# ---- selftests/kmod: run in virtual machines, see selftests/kmod/vm ----

# t_NAME.c for any kernel, d_NAME.c for the debug kernel, e_NAME.c for a real engine, b_NAME.c gives figures
KMODTEST_SRCS  := $(sort $(wildcard selftests/kmod/[tdeb]_*.c))
KMODTEST_OUT   := $(BUILD)/selftests/kmod
KMODTEST_PROGS := $(patsubst selftests/kmod/%.c,$(KMODTEST_OUT)/%,$(KMODTEST_SRCS))

# Of Debian's kernel sources: the harness, checkpatch, and the driver of Xilinx's ZDMA, which Debian's kernel leaves out
# (that of 6.1 builds for 6.12 so).  All in one go: it takes seconds to get through the archive.
KMOD_SOURCE     := $(BUILD)/kmod/source
KMOD_SOURCE_TAR ?= $(lastword $(sort $(wildcard /usr/src/linux-source-6.1.tar.xz)))
KMOD_SOURCES    := tools/testing/selftests/kselftest.h tools/testing/selftests/kselftest_harness.h \
	scripts/checkpatch.pl scripts/spelling.txt scripts/const_structs.checkpatch \
	drivers/dma/dmaengine.h drivers/dma/xilinx/zynqmp_dma.c
KSELFTEST       := $(KMOD_SOURCE)/tools/testing/selftests

$(KMOD_SOURCE)/stamp: mk/kmod.mk
	$(call say,UNPACK,$(@D))
	$(Q)[ -n "$(KMOD_SOURCE_TAR)" ] || { echo "selftests-kmod: no linux-source-6.1" >&2; exit 1; }
	$(Q)mkdir -p $(@D)
	$(Q)tar -xmf $(KMOD_SOURCE_TAR) --occurrence=1 --strip-components=1 -C $(@D) \
		$(addprefix linux-source-6.1/,$(KMOD_SOURCES))
	$(Q)sed -i -e 's,"../dmaengine.h","dmaengine.h",' -e 's,\.remove = ,&(void *),' \
		-e '0,/^#include/s,,#include <linux/platform_device.h>\n&,' $(@D)/drivers/dma/xilinx/zynqmp_dma.c
	$(Q)touch $@

$(KMODTEST_OUT)/t_dmabuf $(KMODTEST_OUT)/t_race $(KMODTEST_OUT)/t_region: KMODTEST_LIBS = -pthread
$(KMODTEST_OUT)/t_netlink: KMODTEST_CFLAGS = $(shell $(PKG_CONFIG) --cflags libnl-genl-3.0)
$(KMODTEST_OUT)/t_netlink: KMODTEST_LIBS = $(shell $(PKG_CONFIG) --libs libnl-genl-3.0)

# with the daemon's own code
$(KMODTEST_OUT)/b_put: KMODTEST_CFLAGS = -Iinclude -Ilib -Idaemon/progd
$(KMODTEST_OUT)/b_put: KMODTEST_LIBS = $(LIBPROGCORE) $(LIBPROGBASE) $(DAEMON_LIBS) -pthread
$(KMODTEST_OUT)/b_put: $(LIBPROGCORE) $(LIBPROGBASE)

# the harness compares numbers of all kinds, declares nothing, and jumps
KMODTEST_FLAGS := -O2 -g -std=gnu11 -D_GNU_SOURCE $(WARN) -Wno-sign-compare -Wno-missing-prototypes -Wno-clobbered \
	-Iinclude/uapi -I$(KSELFTEST)
$(KMODTEST_PROGS): $(KMODTEST_OUT)/%: selftests/kmod/%.c selftests/kmod/kmodtest.h selftests/kmod/dmaimp/dmaimp.h \
		$(wildcard include/uapi/asyncprog/*.h) mk/kmod.mk | $(KMOD_SOURCE)/stamp
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(KMODTEST_FLAGS) $(KMODTEST_CFLAGS) -o $@ $< $(KMODTEST_LIBS)

# Debian's kernels, below KMOD_KERNELS; one that cannot be got has no folder kdir, and its tests are skipped
KMOD_KERNELS      ?= $(abspath $(BUILD))/kmod/kernel
KMOD_SERIES       ?= 6.1 6.12
KMOD_ARM64_SERIES ?= 6.1
export KMOD_KERNELS

.PHONY: selftests-kmod check-kmod check-kmod-debug check-service kmod-kernels kmod-test-programs
kmod-test-programs: $(KMODTEST_PROGS)
kmod-kernels:
	$(call say,GET,kernels for virtual machines: $(KMOD_SERIES) (amd64) $(KMOD_ARM64_SERIES) (arm64))
	$(Q)$(foreach s,$(KMOD_SERIES),selftests/kmod/kernel amd64 $(s) $(KMOD_KERNELS) &&) \
		$(foreach s,$(KMOD_ARM64_SERIES),selftests/kmod/kernel arm64 $(s) $(KMOD_KERNELS) &&) true

# $(call with_kernel,ARCH-SERIES,TARGETS and variables)
with_kernel = if [ -e $(KMOD_KERNELS)/$(1)/kdir ]; then $(MAKE) KDIR=$(KMOD_KERNELS)/$(1)/kdir $(2); fi

KMOD_ARM64_CROSS ?= aarch64-linux-gnu-
selftests-kmod: $(KMODTEST_PROGS) | kmod-kernels
	+$(Q)$(foreach s,$(KMOD_SERIES),$(call with_kernel,amd64-$(s),kmod-tests \
		KMOD_SPARSE=$(if $(shell command -v sparse),1)) &&) true
	+$(Q)$(if $(shell command -v $(KMOD_ARM64_CROSS)gcc),$(foreach s,$(KMOD_ARM64_SERIES),$(call \
		with_kernel,arm64-$(s),selftests-kmod-arm64 KARCH=arm64 CROSS_COMPILE=$(KMOD_ARM64_CROSS)) &&)) true

# ---- arm64: cross-built, when there is a compiler; shell and libnl come from Debian's arm64 packages, too ----

KMODTEST_ARM64       := $(BUILD)/selftests/kmod-arm64
KMODTEST_ARM64_PROGS := $(patsubst selftests/kmod/%.c,$(KMODTEST_ARM64)/%,$(filter-out %/b_put.c,$(KMODTEST_SRCS)))

$(KMODTEST_ARM64)/t_dmabuf $(KMODTEST_ARM64)/t_race $(KMODTEST_ARM64)/t_region: KMODTEST_LIBS = -pthread
$(KMODTEST_ARM64)/t_netlink: KMODTEST_CFLAGS = $(shell $(PKG_CONFIG) --cflags libnl-genl-3.0)
$(KMODTEST_ARM64)/t_netlink: KMODTEST_LIBS = $(KMOD_KERNELS)/arm64/lib/libnl-genl-3.a $(KMOD_KERNELS)/arm64/lib/libnl-3.a -pthread
$(KMODTEST_ARM64_PROGS): $(KMODTEST_ARM64)/%: selftests/kmod/%.c selftests/kmod/kmodtest.h selftests/kmod/dmaimp/dmaimp.h \
		$(wildcard include/uapi/asyncprog/*.h) mk/kmod.mk | $(KMOD_SOURCE)/stamp
	$(call say,CC arm64,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(KMOD_ARM64_CROSS)gcc -static -Wl,--no-warnings $(KMODTEST_FLAGS) $(KMODTEST_CFLAGS) -o $@ $< $(KMODTEST_LIBS)

.PHONY: kmod-zdma selftests-kmod-arm64
kmod-zdma: kmod-sources $(KMOD_SOURCE)/stamp
	$(Q)mkdir -p $(KMOD_OUT)/zdma
	$(Q)cp -u --preserve=timestamps $(KMOD_SOURCE)/drivers/dma/dmaengine.h \
		$(KMOD_SOURCE)/drivers/dma/xilinx/zynqmp_dma.c $(KMOD_OUT)/zdma/
	$(Q)echo 'obj-m := zynqmp_dma.o' >$(KMOD_OUT)/zdma/Kbuild
	+$(Q)$(MAKE) -C $(KDIR) $(KMOD_ARCH) M=$(KMOD_OUT)/zdma modules

# by selftests-kmod, for one kernel
selftests-kmod-arm64: $(KMODTEST_ARM64_PROGS) kmod-tests kmod-zdma

check-kmod: selftests-kmod tests selftests-mpi
	$(Q)selftests/run --build $(BUILD) kmod

# KASAN, lockdep, kmemleak, fault injection, a machine per program, 2 to 10 minutes each; the kernel is built when it is
# not in KMOD_DEBUG (5 to 20 minutes).  KMOD_DEBUG_TESTS=selftests/kmod/t_dma.c runs some.
KMOD_DEBUG       ?= $(abspath $(BUILD))/kmod/debug
KMOD_DEBUG_TESTS ?= $(filter selftests/kmod/t_%.c selftests/kmod/d_%.c,$(KMODTEST_SRCS))
check-kmod-debug:
	$(Q)$(MAKE) deps
	$(Q)packaging/install-deps packaging/deps-debug.list
	$(Q)selftests/kmod/debug-kernel $(KMOD_DEBUG)
	$(Q)$(MAKE) kmod-test-programs
	$(Q)$(MAKE) kmod-tests KDIR=$(KMOD_DEBUG)/kbuild
	$(Q)PROG_BUILD=$(abspath $(BUILD)) KMOD_DEBUG=$(KMOD_DEBUG) prove --timer --merge \
		--exec 'selftests/kmod/run debug' $(KMOD_DEBUG_TESTS)

# the service under systemd, in a virtual machine: four minutes
check-service:
	$(Q)$(MAKE) deps
	$(Q)$(MAKE) kmod-kernels user selftests-mpi
	$(Q)PROG_BUILD=$(abspath $(BUILD)) prove --timer --merge --exec '' selftests/kmod/run-service

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
