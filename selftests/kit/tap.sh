# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# shellcheck shell=bash
# TAP of scripts that source this: a line for each call, $n of them so far.

n=0

# check NAME CMD...: with what the command says when it fails
check() {
	local name=$1 out

	shift
	n=$((n + 1))
	if out=$("$@" 2>&1); then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		tail -n 20 <<<"$out" | sed 's/^/# /'
	fi
}

# same NAME WANT GOT
same() {
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		diff <(echo "$2") <(echo "$3") | sed 's/^/# /'
	fi
}
