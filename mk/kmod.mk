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

# t_NAME.c for any kernel, d_NAME.c for the debug kernel, b_NAME.c gives figures
KMODTEST_SRCS  := $(sort $(wildcard selftests/kmod/[tdb]_*.c))
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
$(KMODTEST_PROGS): $(KMODTEST_OUT)/%: selftests/kmod/%.c selftests/kmod/kmodtest.h \
		$(wildcard include/uapi/asyncprog/*.h) mk/kmod.mk | $(KSELFTEST)/kselftest_harness.h
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -O2 -g -std=gnu11 -D_GNU_SOURCE $(WARN) -Wno-sign-compare -Wno-missing-prototypes -Wno-clobbered -Iinclude/uapi -I$(KSELFTEST) \
		$(KMODTEST_CFLAGS) -o $@ $< $(KMODTEST_LIBS)

.PHONY: selftests-kmod check-kmod check-kmod-debug
selftests-kmod: $(KMODTEST_PROGS)
	$(Q)$(foreach r,$(KMODTEST_RELS),$(MAKE) kmod-tests KDIR=/lib/modules/$(r)/build &&) true

check-kmod: selftests-kmod
	$(Q)selftests/run --build $(BUILD) kmod

# KASAN, lockdep, kmemleak, fault injection; the kernel is built when it is not there (10 to 20 minutes)
KMOD_DEBUG ?= $(abspath $(BUILD))/kmod/debug
check-kmod-debug: $(KMODTEST_PROGS)
	$(Q)selftests/kmod/debug-kernel $(KMOD_DEBUG)
	$(Q)$(MAKE) kmod-tests KDIR=$(KMOD_DEBUG)/kbuild
	$(Q)PROG_BUILD=$(abspath $(BUILD)) KMOD_DEBUG=$(KMOD_DEBUG) selftests/kmod/run debug

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
