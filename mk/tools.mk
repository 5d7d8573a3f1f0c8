# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# tools/NAME/*.c becomes $(BIN)/NAME; tools/NAME/NAME without C sources is a script, and is copied.
# examples/*.c that do not include mpi.h show libprogclient alone: $(BUILD)/examples/NAME.

TOOL_C_NAMES  := $(sort $(foreach f,$(wildcard tools/*/*.c),$(word 2,$(subst /, ,$(f)))))
TOOL_SH_NAMES := $(foreach d,$(patsubst tools/%/,%,$(wildcard tools/*/)), \
	$(if $(wildcard tools/$(d)/$(d)),$(d)))
EXAMPLE_SRCS  := $(if $(wildcard examples/*.c),$(shell grep -L 'mpi\.h' $(wildcard examples/*.c)))

# tools that need neither progd nor its libraries
TOOL_ALONE := progrun
tool_libs = $(if $(filter $(1),$(TOOL_ALONE)),,$(if $(CLIENT_SRCS),$(LIBCLIENT_A)) $(LIBPROGBASE))

define tool_rule
$(BIN)/$(1): $(call objs,$(call srcs,tools/$(1)/*.c)) $(call tool_libs,$(1))
	$$(call say,LD,$$@)
	$(Q)mkdir -p $$(@D)
	$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ $(if $(filter $(1),$(TOOL_ALONE)),,$$(CLIENT_LIBS))
endef
$(foreach t,$(TOOL_C_NAMES),$(eval $(call tool_rule,$(t))))

$(BIN)/progctl: CLIENT_LIBS += $(shell $(PKG_CONFIG) --libs jansson libnl-genl-3.0)
$(call objs,tools/progctl/pinned.c): override CPPFLAGS += $(shell $(PKG_CONFIG) --cflags libnl-genl-3.0)

define tool_copy_rule
$(BIN)/$(1): tools/$(1)/$(1)
	$$(call say,COPY,$$@)
	$(Q)mkdir -p $$(@D)
	$(Q)install -m 0755 $$< $$@
endef
$(foreach t,$(TOOL_SH_NAMES),$(eval $(call tool_copy_rule,$(t))))

$(BUILD)/examples/%: $(OBJ)/examples/%.o $(LIBCLIENT_A)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS)

USER_TARGETS += $(addprefix $(BIN)/,$(TOOL_C_NAMES) $(TOOL_SH_NAMES))
USER_TARGETS += $(patsubst %.c,$(BUILD)/%,$(EXAMPLE_SRCS))

-include $(patsubst %.o,%.d,$(call objs,$(wildcard tools/*/*.c) $(EXAMPLE_SRCS)))
