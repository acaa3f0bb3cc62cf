/* Walks a list of feature names and collects those the machine lacks. The including file gives
 * `has_feature(name, length)`. Two threads may do this at once: both write the same bytes.
 */
#ifndef MB_CPU_COMMON_H
#define MB_CPU_COMMON_H

#include "mb/cpu.h"

static int has_feature(const char *name, int length);

static int same_name(const char *name, int length, const char *known) {
  for (int i = 0; i < length; i++)
    if (name[i] != known[i]) return 0; /* also at the end of known: no name holds a zero */
  return known[length] == 0;
}

static void append(char *text, int room, int *used, const char *s, int length) {
  for (int i = 0; i < length && *used < room - 1; i++) text[(*used)++] = s[i];
}

MB_RT const char *mb_cpu_missing(const char *features) {
  static char text[512];
  int used = 0;
  for (const char *p = features ? features : ""; *p;) {
    while (*p == ',' || *p == ' ' || *p == '+') p++;
    int n = 0;
    while (p[n] && p[n] != ',' && p[n] != ' ') n++;
    if (n && !has_feature(p, n)) {
      if (used) append(text, sizeof text, &used, ", ", 2);
      append(text, sizeof text, &used, p, n);
    }
    p += n;
  }
  text[used] = 0;
  return used ? text : 0;
}

MB_RT int mb_cpu_check(const char *features) {
  static const char *passed;
  if (__atomic_load_n(&passed, __ATOMIC_RELAXED) == features && features) return MB_OK;
  if (mb_cpu_missing(features)) return MB_E_CPU;
  __atomic_store_n(&passed, features, __ATOMIC_RELAXED);
  return MB_OK;
}

MB_RT const char *mb_strerror(int status) {
  switch (status) {
    case MB_OK: return "no error";
    case MB_E_INDEX: return "an index lies outside of its tensor";
    case MB_E_SHAPE: return "a size lies outside of what the model was compiled for";
    case MB_E_CPU: return "this CPU lacks features the model was built for";
    case MB_E_BUSY: return "another call runs in the same arena";
  }
  if (status < 0 || status > MB_E_FOREIGN) return "a kernel of a foreign library failed";
  return "unknown status";
}

#endif
