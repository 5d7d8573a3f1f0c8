# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only

.PHONY: user deps demo clean help
user: $(USER_TARGETS)

deps:
	$(Q)packaging/install-deps packaging/deps.list

demo:
	$(Q)$(MAKE) deps
	$(Q)$(MAKE) user bench-programs
	$(Q)BUILD=$(BUILD) PROG_BUILD=$(abspath $(BUILD)) bench/demo/run

clean:
	$(Q)rm -rf $(BUILD) $(BUILD)-fuzz $(foreach s,$(SAN_BUILDS),$(call san_dir,$(s)))

help:
	@echo 'asyncprog $(VERSION): MPI progress while the application computes'
	@echo
	@echo '  make user        programs and libraries, into $(BIN) and $(LIB) (the default)'
	@echo '  make deps        install the Debian packages of packaging/deps.list (root or sudo)'
	@echo '  make demo        two virtual nodes, native beside asyncprog, a table; installs deps first'
	@echo '  make check       all tests; last line: N passed, N failed, N skipped'
	@echo '                   CHECK_GROUPS="unit daemon client kmod mpi chaos fuzz sanitizers" selects'
	@echo '  make check-quick build, unit, daemon, client, some MPI programs: between changes'
	@echo '  make check-platforms  built on PLATFORMS (trixie), and the MPI conformance programs there: some 20 minutes'
	@echo '  make check-apps  programs of Debian packages, natively and hooked; installs them'
	@echo '  make bench       measurements, into results/'
	@echo '  make fuzz        every fuzzer for FUZZ_SECONDS (60); fuzz-corpus grows what they start from'
	@echo '  make soak-p2p    SOAK_PROGRAMS (5000) random two-sided programs, native and hooked'
	@echo '  make soak-rma    likewise random one-sided programs'
	@echo '  make soak-coll   likewise random programs of non-blocking collectives'
	@echo '  make soak-cuts   the network is cut under jobs for CUTS (1 10 60 300) seconds'
	@echo '  make soak-hostile  what each attack of one user costs another: HOSTILE_MOST (5) percent of his time at most'
	@echo '  make soak-restarts  supervisors are restarted RESTARTS (100) times under jobs, while STARTED (100) others start'
	@echo '  make soak-sanitizers  what make check leaves out of the sanitizer builds'
	@echo '  make soak-suite  MPICH'"'"'s own test programs, both libraries: hours; SUITE="--mpi mpich rma" selects'
	@echo '  make dep-check   the layer rule, circles of calls, and every header compiles alone'
	@echo '  make thread-check  what guards what, by clang'
	@echo '  make format-check tidy compdb tags coverage   see CONTRIBUTING.md'
	@echo '  make kmod        the kernel modules, KDIR=/lib/modules/RELEASE/build; modules_install'
	@echo '                   check-kmod, check-kmod-debug in virtual machines; install-dkms'
	@echo '  make check-service  the installed service under systemd, in a virtual machine'
	@echo '  make check-verbs RDMA between two virtual machines: ten minutes at most'
	@echo '  make soak-verbs  every conformance program and random ones between them: hours'
	@echo '  make install     DESTDIR= PREFIX=/usr'
	@echo '  make clean'
	@echo
	@echo '  make TARGET PLATFORM=RELEASE  on that Debian release, in a root file system that is made once (root)'
	@echo '  BUILD=DIR  SAN=address,undefined|thread  WERROR=  V=1  JOBS=N'
