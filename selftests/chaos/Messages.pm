# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Jobs of both MPI libraries whose large messages go round (chaos messages), while a driver breaks something.
package Messages;
use strict;
use warnings;
use Exporter qw(import);
use Chaos;
use Time::HiRes qw(sleep time);

use constant QUIET => 6;		# rounds without an error, after which all is taken to be well
use constant PROVE_S => 120;		# a fault is made anew for so long, until it has hit something

our @EXPORT = qw(@libs QUIET rounds runs recovers finish idle start_all finish_all when_in_flight
		 until_hit cut_link suspend lanes_back);
our @libs = qw(ompi mpich);

# rounds of a job, rounds since the last one in which something failed, and number of these
sub rounds
{
	my ($j) = @_;
	my ($n, $quiet, $bad) = split ' ', file_text("$j->{dir}/rounds");

	return ($n // 0, $quiet // 0, $bad // 0);
}

# What ranks report at the end: messages that failed, the longest call (ms), the last round with an error
sub reports
{
	my ($j) = @_;

	return map { [split ' ', file_text("$j->{dir}/messages.$_")] } 0 .. $j->{ranks} - 1;
}

sub start
{
	my ($mpi, $ppn, @opt) = @_;

	return job(mpi => $mpi, ppn => $ppn, args => ['messages'], dir => new_dir(), @opt);
}

sub runs
{
	my ($name, $j, $more, $bound) = @_;
	my ($was) = rounds($j);

	ok(poll_until($bound // 40, sub { (rounds($j))[0] >= $was + ($more // 4) }), "$name: messages pass", Chaos::job_text($j));
}

# They pass without errors now; $was: rounds when something was broken
sub recovers
{
	my ($name, $j, $was) = @_;

	ok(poll_until(40, sub { my ($n, $q) = rounds($j); $n > $was + QUIET && $q > QUIET }),
	   "$name: messages pass again", 'rounds, quiet: ' . join(' ', rounds($j)), Chaos::job_text($j));
}

# Ends a job; no call may have lasted longer than $bound ms
sub finish
{
	my ($name, $j, $bound) = @_;
	my ($failed, $longest) = (0, 0);

	open(my $stop, '>', "$j->{dir}/stop");
	my $st = job_wait($j, 40);
	ok(defined $st && !$st && file_text($j->{out}) =~ /^MESSAGES OK$/m, "$name: the program ends in order",
	   'exit status ' . ($st // 'none: it hung'), Chaos::job_text($j));
	for my $r (reports($j)) {
		$failed += $r->[0] // 0;
		$longest = $r->[1] if ($r->[1] // 0) > $longest;
	}
	ok($longest < ($bound // Chaos::BOUND_MS), "$name: no call is longer than it may be", "$longest ms", Chaos::job_text($j));
	note("$name: ", (rounds($j))[0], " rounds, $failed messages failed, the longest wait was $longest ms");
}

sub idle
{
	my ($name) = @_;

	for my $node (grep { ctl_ok($_) } 0, 1) {
		my $left;
		ok(poll_until(15, sub { !($left = daemon_idle($node)) }), "$name: progd$node has nothing left", $left);
	}
}

# Jobs of both libraries at once
sub start_all
{
	my ($what, $ppn, @opt) = @_;
	my %job = map { $_ => start($_, $ppn, @opt) } @libs;

	runs("$what, $_", $job{$_}) for @libs;
	return \%job;
}

sub finish_all
{
	my ($what, $jobs) = @_;

	finish("$what, $_", $jobs->{$_}) for @libs;
	idle($what);
}

# The libraries in whose jobs a rank has messages that have been posted and have not ended
sub in_flight
{
	my ($jobs, $rank) = @_;

	return grep { unpack('l', file_text("$jobs->{$_}{dir}/flight.$rank") || "\0" x 4) == 1 } @libs;
}

# Waits until both nodes' first ranks have such messages, in all jobs; later there may be none any more.
sub when_in_flight
{
	my ($jobs) = @_;

	poll_until(40, sub { 2 * @libs == map { in_flight($jobs, $_) } 0, 2 });
}

# Breaks something by $break->(), which returns the libraries in whose jobs messages were under way, and which may look at
# what came of it.  It is no test of the others, and between two rounds nothing is under way: it is done again until it has
# hit each job once.
sub until_hit
{
	my ($name, $break) = @_;
	my ($start, $tries, %hit) = (time, 0);

	do {
		$hit{$_} = 1 for $break->();
		$tries++;
	} while (@libs > keys %hit && time < $start + PROVE_S);
	ok($hit{$_}, "$name, $_: messages were under way", "not in $tries attempts") for @libs;
}

# segments of TCP that a node had to send again: those before were lost on the way
sub retransmitted
{
	my ($node) = @_;
	my (undef, $out) = sh($node, q(awk '/^Tcp:/ && !n { for (i = 1; i <= NF; i++) if ($i == "RetransSegs") n = i; next } ) .
			      q(/^Tcp:/ { print $n }' /proc/net/snmp));

	return int($out =~ s/\s//gr || 0);
}

# Cuts the link of node 1 for $seconds; what was sent from node 0 meanwhile was lost.  Returns the libraries in whose jobs
# messages that rank 2 gets from the other node were under way all the time; none if nothing was lost.
sub cut_link
{
	my ($jobs, $seconds) = @_;
	my $before = retransmitted(0);

	sh(1, 'ip link set eth0 down');
	sleep $seconds;
	my $lost = retransmitted(0) - $before;
	my @hit = in_flight($jobs, 2);
	sh(1, 'ip link set eth0 up');
	return $lost > 0 ? @hit : ();
}

# Stops the daemons of both nodes, and when ranks have waited for so long that they have asked for a sign of life, all ranks for
# $seconds; these go on first.  Returns the libraries in whose jobs messages were under way.
sub suspend
{
	my ($jobs, $seconds) = @_;
	my @hit;

	sh($_, 'kill -STOP ' . progd_pid($_)) for 0, 1;
	sleep 5;
	@hit = in_flight($jobs, 2);
	sh($_, 'pkill -STOP -x chaos') for 0, 1;
	sleep $seconds;
	sh($_, 'pkill -CONT -x chaos') for 0, 1;
	sleep 1;
	sh($_, 'kill -CONT ' . progd_pid($_)) for 0, 1;
	return @hit;
}

# Seconds until no lane between the nodes is without a connection; undef: not within $bound
sub lanes_back
{
	my ($bound) = @_;
	my $start = time;

	return poll_until($bound, sub {
		!grep { $_->{away_ns} } map { @{(ctl($_, 'stats') // die "no answer")->{peers}} } 0, 1;
	}) ? time - $start : undef;
}

1;
