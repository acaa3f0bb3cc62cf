/* x86-64: CPUID says what the CPU can, XCR0 which registers the operating system saves. Both are
 * needed: AVX-512 under a system that saves only AVX state traps. AMX tiles must be asked for too.
 */
#include "cpu_common.h"
#include "sys.h"

enum where { L1C, L1D, L7B, L7C, L7D, L71A, L71D, X1C, LD1A, WORDS };
enum state { NONE, YMM, ZMM, TMM };

struct feature {
  char name[20]; /* inline, so that the table needs no relocation */
  unsigned char where, bit, state;
};

static const struct feature known[] = {
    {"sse3", L1C, 0, NONE},
    {"pclmul", L1C, 1, NONE},
    {"ssse3", L1C, 9, NONE},
    {"fma", L1C, 12, YMM},
    {"cx16", L1C, 13, NONE},
    {"sse4.1", L1C, 19, NONE},
    {"sse4.2", L1C, 20, NONE},
    {"crc32", L1C, 20, NONE},
    {"movbe", L1C, 22, NONE},
    {"popcnt", L1C, 23, NONE},
    {"aes", L1C, 25, NONE},
    {"xsave", L1C, 27, NONE},
    {"avx", L1C, 28, YMM},
    {"f16c", L1C, 29, YMM},
    {"rdrnd", L1C, 30, NONE},
    {"cx8", L1D, 8, NONE},
    {"cmov", L1D, 15, NONE},
    {"mmx", L1D, 23, NONE},
    {"fxsr", L1D, 24, NONE},
    {"sse", L1D, 25, NONE},
    {"sse2", L1D, 26, NONE},
    {"fsgsbase", L7B, 0, NONE},
    {"bmi", L7B, 3, NONE},
    {"avx2", L7B, 5, YMM},
    {"bmi2", L7B, 8, NONE},
    {"avx512f", L7B, 16, ZMM},
    {"avx512dq", L7B, 17, ZMM},
    {"rdseed", L7B, 18, NONE},
    {"adx", L7B, 19, NONE},
    {"avx512ifma", L7B, 21, ZMM},
    {"clflushopt", L7B, 23, NONE},
    {"clwb", L7B, 24, NONE},
    {"avx512cd", L7B, 28, ZMM},
    {"sha", L7B, 29, NONE},
    {"avx512bw", L7B, 30, ZMM},
    {"avx512vl", L7B, 31, ZMM},
    {"avx512vbmi", L7C, 1, ZMM},
    {"waitpkg", L7C, 5, NONE},
    {"avx512vbmi2", L7C, 6, ZMM},
    {"gfni", L7C, 8, NONE},
    {"vaes", L7C, 9, YMM},
    {"vpclmulqdq", L7C, 10, YMM},
    {"avx512vnni", L7C, 11, ZMM},
    {"avx512bitalg", L7C, 12, ZMM},
    {"avx512vpopcntdq", L7C, 14, ZMM},
    {"rdpid", L7C, 22, NONE},
    {"movdiri", L7C, 27, NONE},
    {"movdir64b", L7C, 28, NONE},
    {"avx512vp2intersect", L7D, 8, ZMM},
    {"serialize", L7D, 14, NONE},
    {"amx-bf16", L7D, 22, TMM},
    {"avx512fp16", L7D, 23, ZMM},
    {"amx-tile", L7D, 24, TMM},
    {"amx-int8", L7D, 25, TMM},
    {"sha512", L71A, 0, YMM},
    {"sm3", L71A, 1, YMM},
    {"sm4", L71A, 2, YMM},
    {"avxvnni", L71A, 4, YMM},
    {"avx512bf16", L71A, 5, ZMM},
    {"amx-fp16", L71A, 21, TMM},
    {"avxifma", L71A, 23, YMM},
    {"avxvnniint8", L71D, 4, YMM},
    {"avxneconvert", L71D, 5, YMM},
    {"amx-complex", L71D, 8, TMM},
    {"avxvnniint16", L71D, 10, YMM},
    {"sahf", X1C, 0, NONE},
    {"lzcnt", X1C, 5, NONE},
    {"sse4a", X1C, 6, NONE},
    {"prfchw", X1C, 8, NONE},
    {"xop", X1C, 11, YMM},
    {"fma4", X1C, 16, YMM},
    {"tbm", X1C, 21, NONE},
    {"xsaveopt", LD1A, 0, NONE},
    {"xsavec", LD1A, 1, NONE},
    {"xsaves", LD1A, 3, NONE},
};

struct regs {
  uint32_t a, b, c, d;
};

static struct regs cpuid(uint32_t leaf, uint32_t sub) {
  struct regs r;
  __asm__ volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(sub));
  return r;
}

static uint64_t saved_state(uint32_t leaf1_c) {
  uint32_t lo, hi;
  if (!(leaf1_c >> 27 & 1)) return 0; /* OSXSAVE: without it XGETBV traps */
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (uint64_t)hi << 32 | lo;
}

struct cpu {
  uint32_t word[WORDS];
  uint64_t xcr0;
};

static void read_cpu(struct cpu *c) {
  uint32_t top = cpuid(0, 0).a, extended = cpuid(0x80000000u, 0).a;
  *c = (struct cpu){{0}, 0};
  struct regs r = cpuid(1, 0);
  c->word[L1C] = r.c, c->word[L1D] = r.d;
  c->xcr0 = saved_state(r.c);
  if (top >= 7) {
    r = cpuid(7, 0);
    c->word[L7B] = r.b, c->word[L7C] = r.c, c->word[L7D] = r.d;
    if (r.a >= 1) {
      r = cpuid(7, 1);
      c->word[L71A] = r.a, c->word[L71D] = r.d;
    }
  }
  if (top >= 13) c->word[LD1A] = cpuid(13, 1).a;
  if (extended >= 0x80000001u) c->word[X1C] = cpuid(0x80000001u, 0).c;
}

/* Linux gives tile state to a process that asks, for all its threads: ARCH_REQ_XCOMP_PERM for
 * XTILEDATA. */
static int tiles_permitted(void) { return mb_sys3(SYS_arch_prctl, 0x1023, 18, 0) == 0; }

static int state_saved(uint64_t xcr0, int state) {
  static const uint32_t need[] = {[NONE] = 0, [YMM] = 0x6, [ZMM] = 0xe6, [TMM] = 0x60000};
  if ((xcr0 & need[state]) != need[state]) return 0;
  return state != TMM || tiles_permitted();
}

static int has_feature(const char *name, int length) {
  static struct cpu cpu; /* every thread would write the same */
  static int have;
  if (same_name(name, length, "64bit") || same_name(name, length, "x87")) return 1;
  if (!__atomic_load_n(&have, __ATOMIC_ACQUIRE)) {
    struct cpu c;
    read_cpu(&c);
    cpu = c;
    __atomic_store_n(&have, 1, __ATOMIC_RELEASE);
  }
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
    const struct feature *f = &known[i];
    if (same_name(name, length, f->name))
      return (cpu.word[f->where] >> f->bit & 1) && state_saved(cpu.xcr0, f->state);
  }
  return 0;
}
