// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Numbers of the command line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "progctl.h"

bool parse_number(const char *text, const char *suffixes, uint64_t *value)
{
	const char *suffix;
	unsigned int shift;
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9')
		return false;
	suffix = *end ? strchr(suffixes, *end) : NULL;
	if (suffix) {
		shift = 10 * (unsigned int)(suffix - suffixes + 1);
		if (*value > UINT64_MAX >> shift)
			return false;
		*value <<= shift;
		end++;
	}
	return !*end;
}
