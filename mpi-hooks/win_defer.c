/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Which windows put copies within the node off until their epochs end: PROG_DEFER=off|auto|BYTES, and the same as
 * info `asyncprog_defer' of the call that makes a window, which is heard first.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hooks_gen.h"
#include "win.h"

#define INFO_KEY	"asyncprog_defer"
#define MOST		(1ull << 40)

bool hdefer_parse(const char *text, uint64_t *bytes)
{
	unsigned long long n;
	char *end;

	if (!strcasecmp(text, "off") || !strcasecmp(text, "no")) {
		*bytes = PROG_DEFER_OFF;
		return true;
	}
	if (!strcasecmp(text, "auto")) {
		*bytes = PROG_DEFER_AUTO;
		return true;
	}
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || n > MOST)
		return false;
	if (*end && strchr("kKmMgG", *end)) {
		n <<= *end == 'k' || *end == 'K' ? 10 : *end == 'm' || *end == 'M' ? 20 : 30;
		end++;
	}
	if (*end || !n || n > MOST)
		return false;
	*bytes = n;
	return true;
}

static void complain(const char *what, const char *text)
{
	static atomic_bool told;

	if (!hooks.world_rank && !atomic_exchange(&told, true))
		prog_log(PROG_LOG_WARN, "%s=%s is neither off, auto nor a number of bytes; it is ignored", what, text);
}

static uint64_t from_environment(void)
{
	const char *text = getenv("PROG_DEFER");
	uint64_t bytes = PROG_DEFER_AUTO;

	if (text && *text && !hdefer_parse(text, &bytes))
		complain("PROG_DEFER", text);
	return bytes;
}

void hwin_set_defer(struct hwin *w, MPI_Info info)
{
	uint64_t bytes = from_environment();
	char text[64];
	int have = 0;

	if (info != MPI_INFO_NULL && !PMPI_Info_get(info, INFO_KEY, sizeof(text) - 1, text, &have) && have &&
	    !hdefer_parse(text, &bytes))
		complain(INFO_KEY, text);
	prog_win_set_defer(w->pw, bytes);
}
