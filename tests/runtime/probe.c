/* Opens the runtime's inner functions to ctypes. */
#include "../../monobloc/csrc/runtime/mem.c"
#include "../../monobloc/csrc/runtime/text.c"
#include "mb/fp.h"

MB_EXPORT int probe_format(char *to, double v) { return mb_format_double(to, v); }
MB_EXPORT int probe_parse(const char *s, uint64_t *v) { return mb_parse_uint(s, v); }
MB_EXPORT void probe_copy(void *d, const void *s, size_t n) { memcpy(d, s, n); }
MB_EXPORT void probe_move(void *d, const void *s, size_t n) { memmove(d, s, n); }
MB_EXPORT void probe_set(void *d, int c, size_t n) { memset(d, c, n); }
MB_EXPORT int probe_compare(const void *a, const void *b, size_t n) { return memcmp(a, b, n); }

/* The modes before, inside and after a run that the caller enters with mode `outer`. */
MB_EXPORT void probe_modes(uint64_t outer, uint64_t *seen) {
  uint64_t first = mb_fp_get();
  mb_fp_set(outer);
  uint64_t saved = mb_fp_enter();
  seen[0] = mb_fp_get();
  volatile float tiny = 1e-38f, tenth = 0.01f;
  volatile float product = tiny * tenth;
  seen[3] = product != 0;
  mb_fp_leave(saved);
  seen[1] = mb_fp_get();
  saved = mb_fp_enter_strict();
  seen[2] = mb_fp_get();
  product = tiny * tenth;
  seen[4] = product != 0;
  mb_fp_leave(saved);
  mb_fp_set(first);
}
