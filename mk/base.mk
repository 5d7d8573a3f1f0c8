# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# libprogbase, libprogclient, progd.

# sources matching the patterns $(1), without tests and fuzzers
srcs = $(filter-out %_test.c %_fuzz.c,$(sort $(wildcard $(1))))

BASE_SRCS   := $(call srcs,lib/libprogbase/*.c)
CLIENT_SRCS := $(call srcs,lib/libprogclient/*.c)
PROGD_SRCS  := $(call srcs,daemon/progd/*/*.c)
SUPER_SRCS  := $(call srcs,daemon/supervisor/*.c)
VERBS_SRCS  := $(call srcs,daemon/verbs/*.c)

LIBPROGBASE  := $(LIB)/libprogbase.a
LIBPROGCORE  := $(LIB)/libprogdcore.a
LIBCLIENT_A  := $(LIB)/libprogclient.a
LIBCLIENT_SO := $(LIB)/libprogclient.so
LIBVERBS     := $(LIB)/libprogverbs.a
VERBS_SO     := $(LIB)/progd-verbs.so

DAEMON_PKGS := liburing libsodium hwloc libsystemd jansson libseccomp
# evaluated by the recipes that link, so that `make deps` and `make help` need no pkg-config
DAEMON_LIBS  = $(shell $(PKG_CONFIG) --libs $(DAEMON_PKGS)) -lm
VERBS_LIBS   = $(shell $(PKG_CONFIG) --libs libibverbs)
CLIENT_LIBS  = $(shell $(PKG_CONFIG) --libs libsodium) -lm

$(LIBPROGBASE): $(call objs,$(BASE_SRCS))
$(LIBPROGCORE): $(call objs,$(PROGD_SRCS))
$(LIBCLIENT_A): $(call objs,$(CLIENT_SRCS) $(BASE_SRCS))

$(LIBCLIENT_SO): $(call objs,$(CLIENT_SRCS) $(BASE_SRCS)) lib/libprogclient/libprogclient.map \
		lib/libprogclient/oldnames.ld
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -shared -Wl,-soname,libprogclient.so.0 $(if $(SAN),,-Wl,-z$(comma)defs) \
		-Wl,--version-script=lib/libprogclient/libprogclient.map \
		$(LDFLAGS) -o $@ $(filter %.o %.ld,$^) $(CLIENT_LIBS)
	$(Q)ln -sf $(@F) $@.0

# progd's plug-in: all that is linked to libibverbs.  Tests take its objects, with a double of that library.
$(LIBVERBS): $(call objs,$(VERBS_SRCS))
$(VERBS_SO): $(call objs,$(VERBS_SRCS))
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -shared $(if $(SAN),,-Wl,-z$(comma)defs) $(LDFLAGS) -o $@ $^ $(VERBS_LIBS)

$(BIN)/progd: $(OBJ)/daemon/progd/main.o $(LIBPROGCORE) $(LIBPROGBASE)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(DAEMON_LIBS)

# of the libraries it takes the event loop and the configuration
$(BIN)/progd-supervisor: $(call objs,$(SUPER_SRCS)) $(LIBPROGCORE) $(LIBPROGBASE)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $^ $(DAEMON_LIBS)

USER_TARGETS += $(LIBPROGBASE)
USER_TARGETS += $(if $(CLIENT_SRCS),$(LIBCLIENT_A))
USER_TARGETS += $(if $(wildcard lib/libprogclient/libprogclient.map),$(LIBCLIENT_SO))
USER_TARGETS += $(if $(wildcard daemon/progd/main.c),$(BIN)/progd)
USER_TARGETS += $(BIN)/progd-supervisor
USER_TARGETS += $(VERBS_SO)

-include $(patsubst %.o,%.d,$(call objs,$(BASE_SRCS) $(CLIENT_SRCS) $(PROGD_SRCS) $(SUPER_SRCS) $(VERBS_SRCS) daemon/progd/main.c))
