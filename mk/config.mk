# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Compilers, flags, directories and the pattern rules everybody uses.
#
#   BUILD=DIR                            where everything goes (default: build)
#   PLATFORM=RELEASE                     on that Debian release, in build-RELEASE; Documentation/platforms.md
#   SAN=address,undefined | SAN=thread   sanitizer build, in a build directory of its own
#   WERROR=                              warnings do not stop the build
#   V=1                                  show commands
#   JOBS=N                               parallel jobs (default: the number of processors)

VERSION := 0.1.0

SAN ?=
comma := ,
BUILD ?= build$(addprefix -,$(PROG_PLATFORM))$(if $(SAN),-$(subst $(comma),-,$(SAN)))

ifeq ($(V),1)
Q :=
else
Q := @
endif
say = @printf '  %-7s %s\n' '$(1)' '$(2)'

JOBS ?= $(shell nproc)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS)
endif
MAKEFLAGS += --no-print-directory --no-builtin-rules

ifeq ($(origin CC),default)
CC := gcc
endif
PKG_CONFIG ?= pkg-config

# what only a sanitizer's build warns of comes of the code that it adds
WERROR ?= $(if $(SAN),,-Werror)
WARN := -Wall -Wextra $(WERROR) -Wmissing-prototypes -Wstrict-prototypes -Wno-unused-parameter
# a sanitizer's code is half as long to compile with -O1, and its reports need no more than lines
CFLAGS ?= $(if $(SAN),-O1 -g1,-O2 -g)
override CPPFLAGS += -D_GNU_SOURCE -DPROG_VERSION='"$(VERSION)"' \
	-DPROG_NO_OLD_NAMES -Iinclude -Iinclude/uapi -Iinclude/mpi -Ilib -Ilib/libprogclient -Idaemon/progd
override CFLAGS += -std=gnu11 -fno-strict-aliasing -fPIC -fvisibility=hidden -pthread $(WARN)
override LDFLAGS += -pthread
ifneq ($(SAN),)
override CFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
override LDFLAGS += -fsanitize=$(SAN)
# assertions that cost something: WORKER_ASSERT, LOOP_ASSERT, rec_transition(), xfer_transition(), ts_set_state()
override CPPFLAGS += -DPROG_CHECKS
endif
ifeq ($(SAN),thread)
# fences order only atomics in our code; that the sanitizer does not model them is no error
override CFLAGS += -Wno-tsan
endif

OBJ := $(BUILD)/obj
BIN := $(BUILD)/bin
LIB := $(BUILD)/lib

# object list of the sources $(1), compiled once for everything but the MPI hooks
objs = $(patsubst %.c,$(OBJ)/%.o,$(1))

$(OBJ)/%.o: %.c mk/config.mk
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

%.a:
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

.DELETE_ON_ERROR:
.SECONDARY:
