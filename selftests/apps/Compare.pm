# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Is it the hooks that make a program end otherwise than it does natively?
package Compare;
use strict;
use warnings;
use Exporter qw(import);

our @EXPORT = qw(compare_runs differs);

# Runs a program hooked and, where it was not 'ok' yet, natively, in turn, up to $times both ways: until it was 'ok' at
# once, or has ended natively in each way in which it did hooked.  $run->($hooked) returns how it ended, in words, and what
# it said.  Returns how the runs ended, and what the last one said that was hooked and not 'ok'.
sub compare_runs
{
	my ($times, $run) = @_;
	my %r = (hooked => [], native => [], said => []);

	do {
		my ($got, @said) = $run->(1);

		push @{$r{hooked}}, $got;
		$r{said} = \@said if $got ne 'ok';
		push @{$r{native}}, ($run->(0))[0] if grep { $_ ne 'ok' } @{$r{hooked}};
	} while (differs(\%r) && @{$r{hooked}} < $times);
	return \%r;
}

# Has it ended hooked, and not 'ok', in a way in which it has not natively?
sub differs
{
	my ($r) = @_;
	my %native = map { $_ => 1 } @{$r->{native}};

	return scalar grep { $_ ne 'ok' && !$native{$_} } @{$r->{hooked}};
}

1;
