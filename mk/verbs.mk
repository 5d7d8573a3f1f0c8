# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# RDMA, in two virtual machines that are linked (selftests/verbs/pair).

.PHONY: check-verbs verbs-programs
verbs-programs:
	$(Q)$(MAKE) deps
	$(Q)packaging/install-deps packaging/deps-verbs.list
	$(Q)$(MAKE) kmod-kernels KMOD_SERIES=6.1 KMOD_ARM64_SERIES=
	$(Q)$(MAKE) user selftests-mpi selftests-chaos

# ten minutes at most
check-verbs: verbs-programs
	$(Q)PROG_BUILD=$(abspath $(BUILD)) prove --timer --merge --exec '' selftests/verbs/verbs_test

# make soak-verbs [SOAK_VERBS=125] [VERBS_MPIS="ompi mpich"] [VERBS_HOURS=12]: every conformance program, and so many random ones
# of each sort with each library
SOAK_VERBS ?= 125
VERBS_MPIS ?= ompi mpich
VERBS_HOURS ?= 12
.PHONY: soak-verbs
soak-verbs: verbs-programs
	$(Q)PROG_BUILD=$(abspath $(BUILD)) selftests/verbs/pair --time $$(($(VERBS_HOURS) * 3600)) \
		selftests/verbs/in-vm-soak $(SOAK_VERBS) $(VERBS_MPIS)
