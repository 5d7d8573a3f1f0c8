# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# What the drivers of this folder share: a set of virtual nodes, daemons on them that the driver
# starts and breaks itself, MPI jobs beside each other, and TAP.
#
# Everything of a driver lives in its set, so that ending the set ends whatever a test left.  Each
# node has one shell that waits for commands; polling through it costs no process on our side.
package Chaos;
use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use IO::Select;
use IPC::Open3 qw(open3);
use JSON::PP qw(decode_json);
use List::Util qw(max);
use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep time);

our @EXPORT = qw(nodes_up done_testing ok is skip note sh poll_until progd_start progd_stop progd_pid
	progd_log ctl ctl_ok daemon_idle fds left_files job job_wait job_stop run_ok report_ok signal_file has_file
	file_text new_dir dir path prog prog_path lib port shared shell_words $SOCKET);

# no call lasts longer, whatever breaks: the daemons' peer_timeout (1 s) with a wide margin
use constant BOUND_MS => 15000;

our $SOCKET = '/run/progd/progd.sock';

my $top = abs_path(dirname(__FILE__) . '/../..');
my $build = abs_path($ENV{PROG_BUILD} // "$top/build") // "$top/build";
my $vnodes = "$top/tools/vnodes/vnodes";
chomp(my $set = "chaos-" . qx("$top/selftests/unique"));
my $owner = $$;
my ($state, $shared, $dir, $up);
my (%shell, %progd, %jobs);
my ($count, $failed, $dirs, $njobs) = (0, 0, 0, 0);

# where vnodes finds what is built, and all of it visible on the nodes
$ENV{PROG_BUILD} = $build;
delete @ENV{qw(PROGD_SOCKET PROGD PROG_EMBEDDED PROG_ASYNC PROG_LOG LD_PRELOAD)};
$ENV{LC_ALL} = 'C';
$| = 1;

# ---- TAP ---------------------------------------------------------------------------------------

sub note { print map { "# $_\n" } split /\n/, join('', @_) }

sub ok
{
	my ($good, $name, @details) = @_;

	$count++;
	$failed++ unless $good;
	print $good ? 'ok' : 'not ok', " $count - $name\n";
	note(map { "$_\n" } @details) unless $good;
	return $good;
}

sub is
{
	my ($got, $want, $name, @details) = @_;

	return ok(($got // '(undef)') eq $want, $name, 'got ' . ($got // '(undef)') . ", expected $want",
		  @details);
}

sub skip
{
	my ($why) = @_;

	$count++;
	print "ok $count # SKIP $why\n";
}

sub done_testing
{
	print "1..$count\n";
	exit($failed ? 1 : 0);
}

# Calls $fn until it returns true, for at most $seconds.  A bound for hung tests, not a measure.
sub poll_until
{
	my ($seconds, $fn) = @_;
	my $end = time + $seconds;

	while (1) {
		my $got = $fn->();
		return $got if $got;
		return 0 if time > $end;
		sleep 0.02;
	}
}

# ---- nodes ---------------------------------------------------------------------------------------

sub nodes_up
{
	my ($n, @args) = @_;

	for my $m (qw(ompi mpich)) {
		next if -x prog($m) && -e lib($m);
		print "1..0 # SKIP chaos program or hook library for $m is not built\n";
		exit 0;
	}
	$up = 1;
	system($vnodes, '--name', $set, 'up', $n, '--share', $build, @args) == 0
		or die "nodes do not come up\n";
	$state = ($ENV{VNODES_STATE} // "/tmp/vnodes-$>") . "/$set";
	$shared = "$state/shared";
	# ranks may run as another user
	chmod 0711, $state, dirname($state);
	chmod 0777, $shared;
	new_dir();
}

sub shared { $shared }
sub prog { "$build/selftests/chaos/$_[0]/chaos" }
sub prog_path { "$build/bin/$_[0]" }
sub lib { "$build/lib/libprogmpi-$_[0].so" }

# a fresh directory for the files by which driver and ranks meet
sub new_dir
{
	$dir = sprintf '%s/d%d', $shared, ++$dirs;
	make_path($dir, { mode => 0777 });
	chmod 0777, $dir;
	return $dir;
}

sub dir { $dir }
sub path { "$dir/$_[0]" }
sub has_file { -e path($_[0]) }

sub signal_file
{
	for my $name (@_) {
		open(my $f, '>', path($name)) or die path($name) . ": $!\n";
	}
}

sub file_text
{
	my ($file) = @_;

	open(my $f, '<', $file) or return '';
	local $/;
	return <$f> // '';
}

sub shell_words { join ' ', map { my $w = $_; $w =~ s/'/'\\''/g; "'$w'" } @_ }

# ($status, $output) of a shell command on a node (a number, or "head")
sub sh
{
	my ($node, $cmd, $seconds) = @_;
	my $s = $shell{$node} //= shell_start($node);
	my $mark = "=mark-$$-" . ++$s->{n} . '=';
	my $out = '';
	my $end = time + ($seconds // 120);

	print { $s->{in} } "{ $cmd\n} </dev/null 2>&1; printf '\\n$mark %d\\n' \$?\n";
	while ($out !~ /\n\Q$mark\E (\d+)\n/) {
		my $left = $end - time;
		$left > 0 && $s->{sel}->can_read($left) or die "node $node: no answer to: $cmd\n$out\n";
		sysread($s->{out}, $out, 65536, length $out) or die "node $node: shell ended: $cmd\n$out\n";
	}
	$out =~ s/\n\Q$mark\E (\d+)\n//;
	return ($1, $out);
}

sub shell_start
{
	my ($node) = @_;
	my %s = (n => 0);

	open(my $err, '>>', "$shared/shell.$node.err") or die "$shared: $!\n";
	$s{pid} = open3($s{in}, $s{out}, '>&' . fileno($err), $vnodes, '--name', $set, 'exec', $node,
			'bash', '--norc');
	$s{in}->autoflush(1);
	$s{sel} = IO::Select->new($s{out});
	return \%s;
}

# ---- daemons -------------------------------------------------------------------------------------

# Starts progd on a node and waits until it answers; $opt{set}: configuration, $opt{as}: command in
# front, $opt{socket}, $opt{progd}: path; $opt{shipped}: with the time-outs of the default configuration;
# $opt{supervisor}: progd-supervisor, or the path of another one, whose engines run $opt{progd}
sub progd_start
{
	my ($node, %opt) = @_;
	my $socket = $opt{socket} // $SOCKET;
	my $log = sprintf '%s/progd%d.%d.log', $shared, $node, ++$progd{$node}{starts};
	my @set = map { ('--set', $_) } $opt{shipped} ? () : ('peer_timeout=1s', 'peer_giveup=1s', 'connect_timeout=1s'), 'log_level=info',
		@{$opt{set} // []};
	my $progd = $opt{progd} // prog_path('progd');
	my $supervisor = ($opt{supervisor} // 0) =~ m{/} ? $opt{supervisor} : prog_path('progd-supervisor');
	my @run = $opt{supervisor} ? ($supervisor, '--progd', $progd) : ($progd, '--foreground');
	my (undef, $pid) = sh($node, "mkdir -p \$(dirname $socket); setsid " .
		shell_words(@{$opt{as} // []}, @run, '--socket', $socket, @set) . " </dev/null >$log 2>&1 & echo \$!");

	$pid =~ s/\D//g;
	$progd{$node}{pid} = $pid;
	$progd{$node}{log} = $log;
	$progd{$node}{socket} = $socket;
	poll_until(120, sub { my ($st) = sh($node, "$build/bin/progctl --socket $socket ping"); !$st })
		or die "progd on node $node does not answer:\n" . file_text($log);
	return $pid;
}

sub progd_pid { $progd{$_[0]}{pid} }
sub progd_log { file_text($progd{$_[0]}{log}) }

# Ends a daemon by SIGTERM (or as told); its exit status
sub progd_stop
{
	my ($node, $sig) = @_;
	my $pid = $progd{$node}{pid};

	$sig //= 'TERM';
	my ($st) = sh($node, "kill -$sig $pid; kill -CONT $pid 2>/dev/null; wait $pid");
	return $st;
}

# The result of a progctl command, decoded; undef when it fails
sub ctl
{
	my ($node, @cmd) = @_;
	my $socket = $progd{$node}{socket} // $SOCKET;
	my ($st, $out) = sh($node, shell_words("$build/bin/progctl", '--socket', $socket, '--json', @cmd));

	return if $st;
	return eval { decode_json($out) };
}

sub ctl_ok { defined ctl($_[0], 'ping') }

# '' when the daemon, or the engine of $uid, has nothing of any job, else what it still has
sub daemon_idle
{
	my ($node, $uid) = @_;
	my @whose = defined $uid ? ('--uid', $uid) : ();
	my ($status, $stats, $wins, $sess) = map { ctl($node, @whose, $_) // return "progctl $_ fails" }
		qw(status stats windows sessions);
	my @has;

	push @has, "sessions $status->{sessions}{now}" if $status->{sessions}{now};
	push @has, 'sessions ' . JSON::PP->new->canonical->encode($sess) if @$sess;
	push @has, 'windows ' . JSON::PP->new->canonical->encode($wins) if @$wins;
	push @has, 'jobs ' . JSON::PP->new->canonical->encode($stats->{jobs}) if @{$stats->{jobs}};
	for my $w (@{$status->{workers}}) {
		for my $key (qw(clients streams target_streams lock_waits held_bytes)) {
			push @has, "worker $w->{index}: $key " . ($w->{$key} // 'is not told') if $w->{$key} // 1;
		}
	}
	return join '; ', @has;
}

# open descriptors of the daemon, without connections to other nodes' daemons, which are kept for
# the next job
sub fds
{
	my ($node) = @_;
	my $pid = $progd{$node}{pid};
	my (undef, $out) = sh($node, "ls /proc/$pid/fd | wc -l; ss -Htnp state established | grep -c 'pid=$pid,'");
	my ($all, $tcp) = $out =~ /(\d+)\s+(\d+)/ or die "descriptors of progd: $out\n";

	return $all - $tcp;
}

# files in the places where something of ours could stay; what MPI libraries leave is theirs, and a supervisor leaves which ports
# the next one is to keep
sub left_files
{
	my ($node) = @_;
	my (undef, $out) = sh($node, "find /dev/shm /run /tmp/asyncprog-* -mindepth 1 ! -type d 2>/dev/null");

	return join ' ', sort grep { !m{/(?:ompi\.|vader_segment|pmix|mpich_|psm|ucx_|sm_segment)} &&
		!m{^/run/progd/progd\.sock(?:\.ctl)?$} &&
		!m{^/run/progd/progd\.sock\.records/port } && !m{^\Q$state\E/} } split /\n/, $out;
}

# host:port of the daemon
sub port
{
	my ($node) = @_;
	my $addr = ctl($node, 'status')->{addresses}[0];

	return split /:(?=\d+$)/, $addr;
}

# ---- jobs ----------------------------------------------------------------------------------------

# What job $id's launcher calls in place of ssh: what it starts has @as in front
sub agent_as
{
	my ($id, @as) = @_;
	my $agent = "$shared/ssh.$id";

	return "$state/ssh" unless @as;
	open(my $f, '>', $agent) or die "$agent: $!\n";
	print $f <<"END";
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do
	case \$1 in -l | -p | -o) shift ;; esac
	shift
done
host=\$1
shift
exec $state/ssh "\$host" "@as /bin/sh -c '\$(printf %s "\$*" | sed "s/'/'\\\\\\\\''/g")'"
END
	close $f;
	chmod 0755, $agent;
	return $agent;
}

# job(mpi => ompi, ppn => [ranks on node 0, node 1, ..], args => [..], env => {..},
#     hook => 1, launcher => [..], wrap => [..], as => [..]): starts the chaos program under the launcher, or another one:
#     prog => path, over => sub that returns true when nothing is left to it but MPI_Finalize
#     as: command in front of what the launcher starts on the nodes
sub job
{
	my %opt = (hook => 1, launcher => [], wrap => [], as => [], env => {}, @_);
	my $mpi = $opt{mpi};
	my $n = 0;
	my $id = ++$njobs;
	my $ssh = agent_as($id, @{$opt{as}});
	my (@hosts, @cmd);
	my %env = (CHAOS_DIR => $opt{dir} // $dir, PROGD_SOCKET => $SOCKET, PROG_EMBEDDED => 0,
		   CHAOS_JOB => "$set.$id");

	for my $k (0 .. $#{$opt{ppn}}) {
		next unless $opt{ppn}[$k];
		push @hosts, "vn$k:$opt{ppn}[$k]";
		$n += $opt{ppn}[$k];
	}
	$env{LD_PRELOAD} = lib($mpi) if $opt{hook};
	%env = (%env, %{$opt{env}});
	delete @env{grep { !defined $env{$_} } keys %env};
	if ($mpi eq 'ompi') {
		(my $subnet = file_text("$state/subnet")) =~ s/\s//g;
		# Ranks that yield while they poll can keep everything else off the processors for a minute
		# (Linux 6.18): what waits here would take it for a hang.
		@cmd = ('mpirun.openmpi', qw(--allow-run-as-root --oversubscribe --bind-to none),
			qw(--mca mpi_yield_when_idle 0 -np), $n,
			'--host', join(',', @hosts), qw(--mca plm rsh --mca plm_rsh_agent), $ssh,
			qw(--mca plm_rsh_no_tree_spawn 1 --mca btl_tcp_if_include eth0),
			'--mca', 'oob_tcp_if_include', "10.77.$subnet.0/24", @{$opt{launcher}},
			map { ('-x', "$_=$env{$_}") } sort keys %env);
	} else {
		@cmd = ('mpiexec.hydra', '-n', $n, '-hosts', join(',', @hosts), qw(-launcher ssh),
			'-launcher-exec', $ssh, @{$opt{launcher}},
			map { ('-genv', $_, $env{$_}) } sort keys %env);
	}
	my %j = (id => $id, mpi => $mpi, dir => $env{CHAOS_DIR}, ranks => $n, out => "$shared/job$id.out",
		 err => "$shared/job$id.err");
	$j{over} = $opt{over} // sub { $n == grep { -e end_file(\%j, $_) } 0 .. $n - 1 };
	$j{pid} = fork // die "fork: $!\n";
	if (!$j{pid}) {
		setpgrp(0, 0);
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>', $j{out});
		open(STDERR, '>', $j{err});
		exec($vnodes, '--name', $set, 'exec', 'head', @cmd, @{$opt{wrap}}, $opt{prog} // prog($mpi),
		     @{$opt{args}})
			or POSIX::_exit(127);
	}
	$jobs{$j{pid}} = 1;
	return \%j;
}

# made by a rank of the chaos program before MPI_Finalize: its exit status
sub end_file { "$_[0]{dir}/end.$set.$_[0]{id}.$_[1]" }

# Exit status of the job (128 + signal), or undef when it has not ended in time: then it is killed.
#
# MPICH's MPI_Finalize hangs by itself over TCP, up to every other job of four ranks on two nodes, without us as well.
# So a job of which all ranks reached MPI_Finalize, and do nothing of ours there any more (a session
# has a memory file), has ended as its ranks say when $grace seconds later its launcher is still there.
# Nor does it always wait for the others with its connections: a rank whose peer has closed one ends the job.
sub job_wait
{
	my ($j, $seconds, $grace) = @_;
	my $in_mpich = 0;
	my $got;

	poll_until($seconds // 60, sub {
		$got = waitpid $j->{pid}, WNOHANG and return 1;
		return 0 if $j->{mpi} ne 'mpich';
		$j->{over_at} //= time if $j->{over}->();
		return $in_mpich = $j->{over_at} && time > $j->{over_at} + ($grace // 1) &&
				   !job_maps($j, 'memfd:asyncprog-session');
	});
	if ($got) {
		$j->{status} = $? & 127 ? 128 + ($? & 127) : $? >> 8;
		delete $jobs{$j->{pid}};
		if ($j->{status} && flush_failed($j)) {
			note("job $j->{id} (mpich) is over, but MPI_Finalize fails:\n", file_text($j->{err}));
			$j->{status} = ranks_status($j);
		}
		return $j->{status};
	}
	if ($in_mpich) {
		note("job $j->{id} (mpich) is over, but hangs in MPI_Finalize:\n", job_stop($j));
		return $j->{status} = ranks_status($j);
	}
	note("job $j->{id} ($j->{mpi}) does not end; its processes:\n", job_stop($j));
	return;
}

# The worst of what the ranks of a job say that reached MPI_Finalize
sub ranks_status
{
	my ($j) = @_;

	return max(map { int(file_text(end_file($j, $_)) || 0) } 0 .. $j->{ranks} - 1);
}

# Did all ranks reach MPI_Finalize, and each that ended the job do so because MPICH's connections broke there?
sub flush_failed
{
	my ($j) = @_;
	my $err = $j->{mpi} eq 'mpich' && $j->{over}->() ? file_text($j->{err}) : '';
	my $ends = () = $err =~ /^Abort\(/mg;
	my $broken = () = $err =~ /MPIDI_UCX_mpi_finalize_hook.*returned failed request/g;

	return $ends && $ends == $broken;
}

# The output of a job, for failed tests
sub job_text
{
	my ($j) = @_;

	return ('stdout: ' . file_text($j->{out}), 'stderr: ' . file_text($j->{err}));
}

# Runs $cmd, where $p is /proc/PID, for each process of a job on the nodes, private daemons aside; its
# output
sub job_each
{
	my ($j, $cmd) = @_;
	my $said = '';

	for my $node (0 .. (file_text("$state/nodes") || 1) - 1) {
		my (undef, $out) = sh($node, "for p in /proc/[0-9]*; do grep -qzxF CHAOS_JOB=$set.$j->{id} " .
			"\$p/environ && ! grep -qx progd \$p/comm && { $cmd; }; done 2>/dev/null");
		$said .= join '', map { "node $node: $_\n" } split /\n/, $out;
	}
	return $said;
}

# Is there a process of the job that has a mapping of that name?
sub job_maps
{
	my ($j, $name) = @_;

	return job_each($j, "grep -l '$name' \$p/maps");
}

# Kills what is left of a job on the nodes and its launcher; says what there was
sub job_stop
{
	my ($j) = @_;
	my $said = job_each($j, 'echo "${p#/proc/} $(tr "\0" " " <$p/cmdline | cut -c 1-60) $(cat $p/wchan)"; ' .
			    'kill -KILL ${p#/proc/}');

	kill 'KILL', -$j->{pid};
	waitpid $j->{pid}, 0;
	delete $jobs{$j->{pid}};
	$j->{status} = 137;
	return $said;
}

# A job that must end well and say $word
sub run_ok
{
	my ($name, $word, %opt) = @_;
	my $j = job(%opt);
	my $st = job_wait($j, $opt{seconds});

	ok(defined $st && !$st && file_text($j->{out}) =~ /^\Q$word\E$/m, $name,
	   'exit status ' . ($st // 'none: it hung'), job_text($j));
	return $j;
}

# The report that a rank made of calls that may fail: class of the first error, the longest call
# (of several ranks: one at least must have one, of no other class)
sub report_ok
{
	my ($name, $what, @ranks) = @_;
	my ($good, $errors, @said) = (1, 0);

	for my $rank (@ranks) {
		my ($class, $ms, $call) = split ' ', file_text(path("$what.$rank")), 3;

		$class //= 'no report';
		$ms //= -1;
		$errors += $class eq 'OTHER';
		$good &&= $class =~ /^(?:OTHER|none)$/ && $ms < BOUND_MS;
		push @said, "rank $rank: class $class, the longest call lasted $ms ms, at most " . BOUND_MS,
			$call // '';
	}
	return ok($good && $errors, "$name: rank @ranks", @said);
}

# ---- end -----------------------------------------------------------------------------------------

sub finish
{
	return unless $up && $$ == $owner;
	$up = 0;
	local $?;
	kill 'KILL', map { -$_ } keys %jobs;
	system($vnodes, '--name', $set, 'down');
}

$SIG{$_} = sub { finish(); exit 130 } for qw(INT TERM HUP);
$SIG{PIPE} = 'IGNORE';
END { finish() }

1;
