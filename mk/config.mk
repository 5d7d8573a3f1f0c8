# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Compilers, flags, directories and the pattern rules everybody uses.

VERSION := 0.1.0

SAN ?=
comma := ,
BUILD ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))

ifeq ($(V),1)
Q :=
else
Q := @
endif
say = @printf '  %-7s %s\n' '$(1)' '$(2)'

CC ?= gcc
AR ?= ar
PKG_CONFIG ?= pkg-config

WARN := -Wall -Wextra -Werror -Wmissing-prototypes -Wstrict-prototypes -Wno-unused-parameter
CPPFLAGS += -D_GNU_SOURCE -DPROG_VERSION='"$(VERSION)"' \
	-Iinclude -Iinclude/uapi -Ilib -Ilib/libprogclient -Idaemon/progd
CFLAGS ?= -O2 -g
CFLAGS += -std=gnu11 -fPIC -fvisibility=hidden -pthread $(WARN)
LDFLAGS += -pthread
ifneq ($(SAN),)
CFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDFLAGS += -fsanitize=$(SAN)
endif

OBJ := $(BUILD)/obj
BIN := $(BUILD)/bin
LIB := $(BUILD)/lib

# object list of the sources $(1), compiled once for everything but the MPI hooks
objs = $(patsubst %.c,$(OBJ)/%.o,$(1))

$(OBJ)/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

%.a:
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^
