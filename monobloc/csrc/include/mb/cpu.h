/* Whether this CPU, under this operating system, can run what the image was built for.
 *
 * These functions are compiled for the target's baseline, so the check itself never traps: whoever
 * calls them before the first newer instruction must be compiled so as well. `features` are LLVM's
 * names separated by commas ("avx2,fma,avx512vnni"); a name the checker does not know counts as
 * missing.
 */
#ifndef MB_CPU_H
#define MB_CPU_H

#include "mb/abi.h"

/* NULL, or the missing ones separated by ", ", in static storage. */
MB_RT const char *mb_cpu_missing(const char *features);

/* MB_OK or MB_E_CPU; remembers the last list that passed, so a call costs nanoseconds. */
MB_RT int mb_cpu_check(const char *features);

/* What a status means, in words. */
MB_RT const char *mb_strerror(int status);

#endif
