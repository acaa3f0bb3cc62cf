/* One hash per function of mb/math.h over pseudo-random floats, to compare machines bit by bit.
 * A shared object on the host; elsewhere a program that writes the hashes to its output. */
#include "mb/math.h"

enum { COUNT = 1 << 14 };
static float x[COUNT], z[COUNT], y[COUNT];

static uint64_t hash(uint64_t h) {
  for (int i = 0; i < COUNT; i++) { /* all NaN count as equal */
    uint32_t bits = y[i] == y[i] ? (uint32_t)mbm_bits(y[i]) : 0xffffffff;
    h = (h ^ bits) * 0x100000001b3;
  }
  return h;
}

/* Half of them any bit pattern, half between -16 and 16. */
static void fill(void) {
  uint64_t s = 88172645463325252u;
  for (int i = 0; i < 2 * COUNT; i++) {
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    float any = mbm_from_bits((int32_t)(s >> 32)), near = (float)(int32_t)(s >> 32) * 0x1p-27f;
    *(i < COUNT ? &x[i] : &z[i - COUNT]) = s & 1 ? any : near;
  }
}

#define ONE(NAME)                                        \
  for (int i = 0; i < COUNT; i++) y[i] = mb_##NAME(x[i]); \
  out[n++] = hash(14695981039346656037u);
#define TWO(NAME)                                              \
  for (int i = 0; i < COUNT; i++) y[i] = mb_##NAME(x[i], z[i]); \
  out[n++] = hash(14695981039346656037u);

int hashes(uint64_t *out) {
  int n = 0;
  fill();
  ONE(exp) ONE(exp2) ONE(expm1) ONE(log) ONE(log2) ONE(log1p) ONE(tanh) ONE(sigmoid) ONE(silu)
  ONE(erf) ONE(gelu) ONE(gelu_tanh) ONE(softplus) ONE(mish) ONE(sinh) ONE(cosh) ONE(asinh)
  ONE(acosh) ONE(atanh) ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan) ONE(rsqrt)
  ONE(round) ONE(floor) ONE(hardswish) TWO(pow) TWO(fmod) TWO(mod) TWO(atan2)
  return n;
}

#ifdef __aarch64__
void *memset(void *d, int c, __SIZE_TYPE__ n) {
  for (volatile char *p = d; n; n--) *p++ = (char)c;
  return d;
}
static long call(long number, long a, long b, long c) {
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
__attribute__((noreturn)) void _start(void) {
  static uint64_t out[64];
  int n = hashes(out);
  call(64, 1, (long)out, 8 * n);
  call(93, 0, 0, 0);
  __builtin_unreachable();
}
#endif
