# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Source packages of Debian, for what is in no binary package
package Source;
use strict;
use warnings;
use Exporter qw(import);
use File::Path qw(make_path);

our @EXPORT = qw(debian_source);

# Downloads the source package $name and unpacks it below $dir, unless it is there; returns what matches
# $dir/$pattern then, or nothing: $dir/apt.log says why.  The lists of the system's own apt stay as they are.
sub debian_source
{
	my ($name, $dir, $pattern) = @_;
	my $apt = "$dir/apt";
	my $opts = "-qq -o Dir::State=$apt/state -o Dir::Cache=$apt/cache -o Dir::Etc::SourceList=$apt/sources.list " .
		   "-o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root -o Acquire::Retries=3";
	my ($found) = glob "$dir/$pattern";

	return $found if $found;
	make_path("$apt/state/lists/partial", "$apt/cache");
	open(my $f, '>', "$apt/sources.list") or die "$apt/sources.list: $!\n";
	print $f "deb-src http://deb.debian.org/debian bookworm main\n";
	close $f;
	system("cd $dir && { apt-get $opts update && apt-get $opts source --download-only $name && " .
	       "tar -xf ${name}_*.orig.tar.*; } >apt.log 2>&1");
	($found) = glob "$dir/$pattern";
	return $found;
}

1;
