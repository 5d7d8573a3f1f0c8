# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#
# Runs programs that make random MPI programs from seeds (p2p_random.c, rma_random.c): on sets of
# virtual nodes, natively and hooked, in jobs of many seeds, and says which seed went wrong.
#
# RandomTest::run(%test):
#   program     name in build/selftests/mpi/LIBRARY/
#   kinds       { NAME => { ranks, args, native, env, nodes, LIBRARY }, .. }: number of ranks, arguments, more of
#               them when run natively, environment, on how many nodes at most, and how many programs `make check`
#               runs with the library; ranks may be { LIBRARY => number, .. }, and each of these numbers
#               { number of nodes => number, .. }
#   order       names of the kinds
#   nodes       [numbers of nodes]
#   sets        sub (library, nodes, kind): configuration of the daemons
#   native      sub (library, nodes, kind, number of programs): how many of them to run natively
#   compare     the digests of the native and the hooked run have to be the same
# Each program prints "P SEED DIGEST" when a program came to its end, "FAIL seed SEED .." and "HANG seed
# SEED .." when not, stops at a hang, and calls done_arm() of done.h before MPI_Finalize. "STOP seed SEED" says that it leaves
# this one and the rest to another job, as much has failed in this one.
package RandomTest;
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(basename dirname);
use Getopt::Long qw(GetOptions);

my $top = abs_path(dirname(__FILE__) . '/../..');
my $build = abs_path($ENV{PROG_BUILD} // $ENV{BUILD} // "$top/build");
my $chunk = 100;	# programs of one job
my $limit = 20;		# seconds for one program
my $head = 20;		# lines of a job that are kept in any case, and the 40 last ones
my $silent = 4;		# limits in which a job may say nothing
my $vnodes = "$top/tools/vnodes/vnodes";
chomp(my $id = qx("$top/selftests/unique"));
# all nodes see it
my $done = ($ENV{VNODES_RSH} ? $ENV{VNODES_STATE} : "$build/selftests/mpi") . "/random-done.$id";
my ($n, $failed, $gaps, $child, $up, $hung) = (0, 0, 0, 0, 0, 0);
my ($set, $ranks, $verbose, @more, %test);

# whose library it is: with the standard's ABI abi-ompi or abi-mpich
sub of { return $_[0] =~ s/^abi-//r; }

# Open MPI 5 has no pt2pt, and ends where it is asked for
sub osc
{
	my ($major) = qx(mpirun.openmpi --version 2>/dev/null) =~ /\)\s*([0-9]+)\./;

	return 'sm,' . (($major // 0) < 5 ? 'pt2pt' : 'rdma');
}

# what a kind says for $count nodes
sub for_nodes
{
	my ($value, $count) = @_;

	return ref $value ? $value->{$count} // 0 : $value;
}

sub ranks_of
{
	my ($kind, $lib, $count) = @_;
	my $r = $kind->{ranks};

	return for_nodes(ref $r ? $r->{of($lib)} : $r, $count);
}

sub stop
{
	kill 'TERM', -$child if $child;
	waitpid $child, 0 if $child;
	system($vnodes, '--name', $set, 'down') if $up;
	unlink $done, "$done.part";
	exit 130;
}

# Runs one job; returns the digests by seed, what it printed when it did not come to its end, and the seed that it stopped at.
sub job
{
	my ($lib, $count, $what, $hook, $from, $number) = @_;
	my $k = $test{kinds}{$what};
	my @args = (@{$k->{args}}, $hook ? () : @{$k->{native} // []});
	my @cmd = ($vnodes, 'run', '--name', $set, '--mpi', $lib, '--nodes', $count,
		   '-n', $ranks // ranks_of($k, $lib, $count));
	my (%digest, @said, $left, $ended, $stop);

	unlink $done, "$done.part";
	push @cmd, '--hook', map { ('--set', $_) } $test{sets}->($lib, $count, $what), @more if $hook;
	# see selftests/mpi/run
	push @cmd, '--done-file', $done, '--grace', 3, '--env', "TEST_DONE_FILE=$done"
		if of($lib) eq 'mpich' && $count > 1;
	push @cmd, '--env', 'OMPI_MCA_mpi_yield_when_idle=1' if of($lib) eq 'ompi';
	push @cmd, '--env', 'OMPI_MCA_osc=' . osc() if of($lib) eq 'ompi' && !$hook;
	push @cmd, map { ('--env', $_) } $k->{env}->($from) if $k->{env};
	push @cmd, '--', "$build/selftests/mpi/$lib/$test{program}", @args, '--timeout', $limit,
		$from, $number;
	print "# @cmd\n" if $verbose;
	pipe(my $out, my $in) or die "pipe: $!\n";
	$child = fork // die "fork: $!\n";
	if (!$child) {
		setpgrp(0, 0);
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>&', $in);
		open(STDERR, '>&', $in);
		close $out;
		exec @cmd or exit 127;
	}
	close $in;
	# slow is not hung: what takes long is each program's own to notice
	local $SIG{ALRM} = sub {
		$ended = 'it said nothing for ' . $silent * $limit . ' s, and was ended';
		kill 'TERM', -$child;
	};
	alarm($silent * $limit);
	while (<$out>) {
		alarm($silent * $limit) if !$ended;
		chomp;
		s/\r$//;
		# lines of several ranks may share one
		$digest{$1} = $2 while /\bP (\d+) ([0-9a-f]{16})\b/g;
		$left = $1 if /^vnodes: ranks that have not ended: (.*)/;
		$stop = $1 if /\bSTOP seed (\d+)/;
		next if /^P \d+ [0-9a-f]{16}$/;
		push @said, $_;
		# the first lines say what began it, when all that follows fails
		splice(@said, $head, 2, '..') if @said > $head + 40;
	}
	alarm(0);
	close $out;
	waitpid $child, 0;
	my $status = $?;
	$child = 0;
	unlink $done, "$done.part";
	my @wrong = grep { /FAIL seed|HANG seed/ } @said;
	if (!$status && !@wrong && ($left // '') ne 'none') {
		$hung++ if defined $left;
		return (\%digest, []);
	}
	my $how = $status & 127 ? 'signal ' . ($status & 127) : 'exit status ' . ($status >> 8);
	return (\%digest, [@said, $ended // $how], $stop);
}

# Runs seeds $from.. in as many jobs as it takes: one that breaks ends at its seed, the next
# goes on behind it. Returns the digests, and what is wrong by seed.
sub programs
{
	my ($lib, $count, $what, $hook, $from, $number) = @_;
	my (%digest, %wrong);

	for (my $s = $from; $s < $from + $number;) {
		my ($d, $said, $stop) = job($lib, $count, $what, $hook, $s, $from + $number - $s);
		my $next = $from + $number;

		%digest = (%digest, %$d);
		last if !@$said;
		# what names no program (the library's and the daemons' warnings) goes with the first one that failed
		my ($failed) = map { /(?:FAIL|HANG) seed (\d+)/ ? $1 : () } @$said;
		for (defined $failed ? @$said : ()) {
			push @{$wrong{/(?:FAIL|HANG) seed (\d+)/ ? $1 : $failed}}, $_;
		}
		# the first one without a digest is where it ended, or before which it stopped
		for (my $i = $from + $number - 1; $i >= $s; $i--) {
			$next = $i unless defined $d->{$i};
		}
		if ($next == ($stop // -1)) {
			$s = $next;
		} elsif ($next < $from + $number) {
			$wrong{$next} //= $said;
			$s = $next + 1;
		} else {
			$wrong{$next - 1} //= $said unless grep { $wrong{$_} } $s .. $next - 1;
			last;
		}
	}
	return (\%digest, \%wrong);
}

sub compare
{
	my ($lib, $count, $what, $from, $number) = @_;
	my $natively = $test{native} ? $test{native}->($lib, $count, $what, $number) : $number;
	my ($native, $gap) = $natively ? programs($lib, $count, $what, 0, $from, $natively) : ({}, {});
	my ($hooked, $wrong) = programs($lib, $count, $what, 1, $from, $number);
	my $label = "$lib/$count/$what";
	my $bad = 0;

	for my $s ($from .. $from + $number - 1) {
		my @why = @{$wrong->{$s} // []};

		push @why, 'no digest' if !@why && !defined $hooked->{$s};
		if ($gap->{$s}) {
			$gaps++;
			# without a comparison a hooked run is right or wrong by itself
			if ($test{compare} || !@why) {
				print "ok ", ++$n, " - $label: seed $s # SKIP native: $gap->{$s}[0]\n"
					if $test{compare};
				print "# $label: seed $s fails natively, not hooked\n" if !$test{compare};
				print "# $_\n" for @{$gap->{$s}};
				next;
			}
		} elsif ($test{compare}) {
			push @why, "digest $hooked->{$s}, natively $native->{$s}"
				if defined $hooked->{$s} && defined $native->{$s} &&
				   $hooked->{$s} ne $native->{$s};
			push @why, 'no digest' if !@why && !defined $native->{$s};
		}
		next if !@why;
		$bad++;
		print "not ok ", ++$n, " - $label: seed $s\n";
		print "# $_\n" for @why;
		print "# again: selftests/mpi/", basename($0), " --mpi $lib --nodes $count --kind $what"
			. " --first $s --programs 1", $ranks ? " --ranks $ranks" : '', "\n";
	}
	print "ok ", ++$n, " - $label: programs ", "$from..", $from + $number - 1, "\n" if !$bad;
	$failed += $bad;
}

sub run
{
	%test = @_;
	my ($first, $programs, $mpi, $nodes, $kind);
	my $usage = "usage: $0 [--first SEED] [--programs N] [--mpi ompi|mpich|abi-ompi|abi-mpich] [--nodes "
		. join('|', @{$test{nodes}}) . '] [--kind ' . join('|', @{$test{order}})
		. "] [--ranks N] [--limit S] [--name SET] [--set KEY=VALUE].. [--verbose]\n";

	$set = "$test{program}-$id";
	GetOptions('first=i' => \$first, 'programs=i' => \$programs, 'mpi=s' => \$mpi,
		   'nodes=i' => \$nodes, 'kind=s' => \$kind, 'ranks=i' => \$ranks, 'limit=i' => \$limit, 'name=s' => \$set,
		   'set=s' => \@more, 'verbose' => \$verbose)
		&& !@ARGV && (!defined $kind || $test{kinds}{$kind})
		or die $usage;
	$first //= $programs ? time * 1000 : 1;
	$| = 1;
	$ENV{PROG_BUILD} = $build;
	for my $lib ($mpi ? ($mpi) : qw(ompi mpich)) {
		my $bin = "$build/selftests/mpi/$lib/$test{program}";

		next if -x $bin;
		print "1..0 # SKIP $bin is missing (make selftests-mpi)\n";
		exit 0;
	}
	$SIG{$_} = \&stop for qw(INT TERM HUP);

	my @libs = $mpi ? ($mpi) : qw(ompi mpich);
	my @counts = $nodes ? ($nodes) : @{$test{nodes}};
	my @parts;
	for my $lib (@libs) {
		for my $count (@counts) {
			push @parts, map { [$lib, $count, $_] }
				grep { $kind || !$test{kinds}{$_}{nodes} || $test{kinds}{$_}{nodes} >= $count }
				grep { $ranks // ranks_of($test{kinds}{$_}, $lib, $count) }
				$kind ? ($kind) : @{$test{order}};
		}
	}
	@parts or die "$0: there are no programs of kind $kind on $nodes nodes\n";
	print "# seed $first\n";
	system($vnodes, '--name', $set, 'up', $counts[-1]) == 0 or die "$vnodes up failed\n";
	$up = 1;
	my ($from, $left) = ($first, $programs // 1e9);
	while ($left > 0) {
		for my $part (@parts) {
			my ($lib, $count, $what) = @$part;
			my $number = for_nodes($test{kinds}{$what}{of($lib)}, $count);

			if ($programs) {
				$number = int(($programs + @parts - 1) / @parts);
				$number = $chunk if $number > $chunk;
				$number = $left if $number > $left;
			}
			compare($lib, $count, $what, $from, $number) if $number > 0;
			$from += $number;
			$left -= $number;
		}
		last if !$programs;
	}
	system($vnodes, '--name', $set, 'down');
	print "1..$n\n";
	print "# ", $from - $first, " programs", $gaps ? ", $gaps fail natively" : '', "\n";
	print "# $hung jobs hung in MPICH's own MPI_Finalize, which is excused\n" if $hung;
	exit($failed ? 1 : 0);
}

1;
