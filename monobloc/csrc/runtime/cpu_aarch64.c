/* AArch64: the kernel says in the auxiliary vector what programs may use. An executable of ours
 * kept the vector at its start; in a foreign process libc's getauxval has it, or /proc.
 */
#include "cpu_common.h"
#include "sys.h"

enum { AT_HWCAP = 16, AT_HWCAP2 = 26 };
extern const unsigned long *mb_auxv __attribute__((weak, visibility("hidden")));
__attribute__((weak, visibility("default"))) unsigned long getauxval(unsigned long type);

struct feature {
  char name[14];
  unsigned char second, bit; /* AT_HWCAP or AT_HWCAP2 */
};

static const struct feature known[] = {
    {"fp-armv8", 0, 0},    {"neon", 0, 1},        {"aes", 0, 4},        {"sha2", 0, 6},
    {"crc", 0, 7},         {"lse", 0, 8},         {"fullfp16", 0, 10},  {"fp16", 0, 10},
    {"rdm", 0, 12},        {"jsconv", 0, 13},     {"complxnum", 0, 14}, {"rcpc", 0, 15},
    {"ccpp", 0, 16},       {"sha3", 0, 17},       {"sm4", 0, 19},       {"dotprod", 0, 20},
    {"sve", 0, 22},        {"fp16fml", 0, 23},    {"flagm", 0, 27},     {"ssbs", 0, 28},
    {"sb", 0, 29},         {"sve2", 1, 1},        {"sve2-aes", 1, 2},   {"sve2-bitperm", 1, 4},
    {"sve2-sha3", 1, 5},   {"sve2-sm4", 1, 6},    {"i8mm", 1, 13},      {"bf16", 1, 14},
    {"rand", 1, 16},       {"bti", 1, 17},        {"mte", 1, 18},       {"sme", 1, 23},
    {"sme-i16i64", 1, 24}, {"sme-f64f64", 1, 25}, {"sme2", 1, 37},
};

static unsigned long from_proc(unsigned long type) {
  unsigned long pair[2], value = 0;
  long fd = mb_open("/proc/self/auxv", MB_O_RDONLY, 0);
  if (fd < 0) return 0;
  while (mb_sys3(SYS_read, fd, (long)pair, sizeof pair) == sizeof pair && pair[0])
    if (pair[0] == type) value = pair[1];
  mb_close((int)fd);
  return value;
}

static unsigned long hwcap(unsigned long type) {
  if (&mb_auxv && mb_auxv) {
    for (const unsigned long *a = mb_auxv; a[0]; a += 2)
      if (a[0] == type) return a[1];
    return 0;
  }
  return getauxval ? getauxval(type) : from_proc(type);
}

static int has_feature(const char *name, int length) {
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
    if (same_name(name, length, known[i].name))
      return hwcap(known[i].second ? AT_HWCAP2 : AT_HWCAP) >> known[i].bit & 1;
  return 0;
}
