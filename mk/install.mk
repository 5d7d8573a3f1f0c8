# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# make install [DESTDIR=] [PREFIX=/usr]; installs what `make user` built.

PREFIX     ?= /usr
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DOCDIR     ?= $(PREFIX)/share/doc/asyncprog
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR    ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d

# $(call put,MODE,FILES,DIR): nothing to do for an empty list
put = $(if $(strip $(2)),install -d $(DESTDIR)$(3) && install -m $(1) $(2) $(DESTDIR)$(3)/,true)

INSTALL_BINS = $(filter $(BIN)/%,$(USER_TARGETS))
INSTALL_SOS  = $(filter-out $(VERBS_SO),$(filter $(LIB)/%.so,$(USER_TARGETS)))
# where progd looks, beside its own directory
PLUGINDIR   := $(PREFIX)/lib/asyncprog
# the default configuration comes from the table in progd itself; an administrator's file stays
CONF_DEST   := $(DESTDIR)$(SYSCONFDIR)/progd/progd.conf
DOC_FILES   := $(wildcard README.md Documentation/*.md)

.PHONY: install
install: user
	$(Q)$(call put,0755,$(filter-out $(BIN)/progd,$(INSTALL_BINS)),$(BINDIR))
	@# an engine is its user's process: a program that its user cannot read cannot be traced from its first instruction on
	$(Q)$(call put,0711,$(filter $(BIN)/progd,$(INSTALL_BINS)),$(BINDIR))
	$(Q)$(call put,0755,$(INSTALL_SOS),$(LIBDIR))
	$(Q)$(call put,0755,$(filter $(VERBS_SO),$(USER_TARGETS)),$(PLUGINDIR))
	$(Q)$(if $(filter $(LIBCLIENT_SO),$(INSTALL_SOS)), \
		mv $(DESTDIR)$(LIBDIR)/libprogclient.so $(DESTDIR)$(LIBDIR)/libprogclient.so.0 && \
		ln -sf libprogclient.so.0 $(DESTDIR)$(LIBDIR)/libprogclient.so,true)
	$(Q)$(call put,0644,$(filter $(LIBCLIENT_A),$(USER_TARGETS)),$(LIBDIR))
	$(Q)$(call put,0644,$(wildcard lib/libprogclient/progclient.h lib/libprogclient/progcoll.h),$(INCLUDEDIR))
	$(Q)$(call put,0644,$(wildcard include/uapi/asyncprog/*.h),$(INCLUDEDIR)/asyncprog)
	$(Q)$(call put,0644,$(wildcard include/mpi/asyncprog/*),$(INCLUDEDIR)/asyncprog)
	$(Q)$(call put,0644,include/wire/dtype.h include/wire/optype.h,$(INCLUDEDIR)/asyncprog/wire)
	$(Q)$(call put,0644,lib/libprogbase/dtype.h,$(INCLUDEDIR)/asyncprog/libprogbase)
	$(Q)install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	$(Q)sed -e 's#@LIBDIR@#$(LIBDIR)#;s#@INCLUDEDIR@#$(INCLUDEDIR)#;s#@VERSION@#$(VERSION)#' \
		packaging/libprogclient.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/libprogclient.pc
	$(Q)install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSUSERSDIR)
	$(Q)for unit in progd.service progd.socket progd-engines.service; do \
		sed -e 's#/usr/bin/progd#$(BINDIR)/progd#;s#/etc/progd/#$(SYSCONFDIR)/progd/#' \
		-e 's#/usr/share/doc/asyncprog#$(DOCDIR)#' packaging/systemd/$$unit >$(DESTDIR)$(UNITDIR)/$$unit || exit 1; done
	$(Q)install -m 0644 packaging/systemd/progd.sysusers $(DESTDIR)$(SYSUSERSDIR)/progd.conf
	$(Q)install -d $(dir $(CONF_DEST)) && { [ -e $(CONF_DEST) ] || \
		$(BIN)/progd --print-config >$(CONF_DEST); }
	$(Q)$(call put,0644,$(DOC_FILES),$(DOCDIR))
	$(Q)$(call put,0755,tools/trace/way,$(DOCDIR)/trace)
	$(Q)$(call put,0644,tools/trace/way.bt,$(DOCDIR)/trace)
	$(Q)$(call put,0644,$(wildcard Documentation/man/*.8),$(PREFIX)/share/man/man8)
	$(Q)$(call put,0644,$(wildcard Documentation/man/*.1),$(PREFIX)/share/man/man1)
	$(Q)$(call put,0644,$(wildcard Documentation/man/*.4),$(PREFIX)/share/man/man4)
	$(Q)$(call put,0644,$(wildcard LICENSES/*),$(DOCDIR)/LICENSES)
	@echo "installed in $(DESTDIR)$(PREFIX)"
