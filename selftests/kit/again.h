/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* again.h - time and random numbers, which are the same each time a fuzzer's input runs. */
#ifndef SELFTESTS_KIT_AGAIN_H
#define SELFTESTS_KIT_AGAIN_H

#include <stdint.h>

/* Before anything uses libsodium: its random numbers are no more. */
void kit_again_init(void);
/* They begin anew, and the clock of loop_now() stands still from now on. */
void kit_again(void);
/* That clock goes on. */
void kit_pass(uint64_t ns);

#endif
