/* Elementary functions for generated code: branch-free, inline, without libm, tables or errno.
 *
 * The problem: a model's activation functions must vectorize inside the loops they are fused into,
 * on every target, and give the same bits in a vector body, in a scalar tail and in an epilogue.
 * The idea: one body per function, written with overloads that exist for `float` and for `mb_vf`,
 * and included once for each (math_f32.h, math_trig_f32.h). Every choice is a blend; integers hold
 * the exponent; wherever f32 would lose the promised bits, the body computes in double.
 *
 * Accuracy of each function: docs/math.md. Compile with -fno-math-errno -fno-trapping-math
 * -ffp-contract=on, never with -ffast-math. Denormals are right unless the caller set FTZ or DAZ.
 */
#ifndef MB_MATH_H
#define MB_MATH_H

#include "mb/base.h"

#define MBM_INF (__builtin_inff())
#define MBM_NAN (__builtin_nanf(""))

/* Rounding to integers as one instruction? Otherwise it is done by adding 2^23 (2^52). */
#if defined(__SSE4_1__) || defined(__aarch64__) || defined(__ARM_FEATURE_DIRECTED_ROUNDING) || \
    defined(__wasm__)
#define MBM_HAS_ROUND 1
#else
#define MBM_HAS_ROUND 0
#endif

/* The vector types beside mb_vf: same lane count, so that a body may widen to 64 bits and back. */
typedef mb_vm mbm_vi;
typedef uint32_t mbm_vu __attribute__((vector_size(4 * MB_VL)));
typedef double mbm_vd __attribute__((vector_size(8 * MB_VL)));
typedef int64_t mbm_vl __attribute__((vector_size(8 * MB_VL)));
typedef uint64_t mbm_vul __attribute__((vector_size(8 * MB_VL)));

/* Reinterpret the bits. */
MB_OVERLOAD int32_t mbm_bits(float x) {
  union { float f; int32_t i; } u = {.f = x};
  return u.i;
}
MB_OVERLOAD float mbm_from_bits(int32_t x) {
  union { int32_t i; float f; } u = {.i = x};
  return u.f;
}
MB_OVERLOAD int64_t mbm_bits(double x) {
  union { double f; int64_t i; } u = {.f = x};
  return u.i;
}
MB_OVERLOAD double mbm_from_bits(int64_t x) {
  union { int64_t i; double f; } u = {.i = x};
  return u.f;
}
MB_OVERLOAD mbm_vi mbm_bits(mb_vf x) { return (mbm_vi)x; }
MB_OVERLOAD mb_vf mbm_from_bits(mbm_vi x) { return (mb_vf)x; }
MB_OVERLOAD mbm_vl mbm_bits(mbm_vd x) { return (mbm_vl)x; }
MB_OVERLOAD mbm_vd mbm_from_bits(mbm_vl x) { return (mbm_vd)x; }

/* Convert values; the mask of a comparison of floats becomes one for doubles. */
MB_OVERLOAD double mbm_wide(float x) { return (double)x; }
MB_OVERLOAD mbm_vd mbm_wide(mb_vf x) { return __builtin_convertvector(x, mbm_vd); }
MB_OVERLOAD double mbm_wide(int32_t x) { return (double)x; }
MB_OVERLOAD mbm_vd mbm_wide(mbm_vi x) { return __builtin_convertvector(x, mbm_vd); }
MB_OVERLOAD float mbm_narrow(double x) { return (float)x; }
MB_OVERLOAD mb_vf mbm_narrow(mbm_vd x) { return __builtin_convertvector(x, mb_vf); }
MB_OVERLOAD float mbm_to_float(int32_t x) { return (float)x; }
MB_OVERLOAD mb_vf mbm_to_float(mbm_vi x) { return __builtin_convertvector(x, mb_vf); }

/* Blends that base.h does not need: integers, and doubles under a mask made of floats. */
MB_OVERLOAD int32_t mbm_blend(int m, int32_t a, int32_t b) { return m ? a : b; }
MB_OVERLOAD mbm_vi mbm_blend(mb_vm m, mbm_vi a, mbm_vi b) { return (m & a) | (~m & b); }
MB_OVERLOAD double mbm_blend(int m, double a, double b) { return m ? a : b; }
MB_OVERLOAD mbm_vd mbm_blend(mb_vm m, mbm_vd a, mbm_vd b) {
  mbm_vl w = __builtin_convertvector(m, mbm_vl);
  return (mbm_vd)((w & (mbm_vl)a) | (~w & (mbm_vl)b));
}

/* In doubles, base.h has no fma: one rounding where the machine can, two where it cannot. */
#if MB_HAS_FMA && !(defined(__arm__) && !(__ARM_FP & 8))
#define MBM_HAS_FMA_D 1
MB_OVERLOAD double mbm_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
MB_OVERLOAD mbm_vd mbm_fma(mbm_vd a, mbm_vd b, mbm_vd c) {
  return __builtin_elementwise_fma(a, b, c);
}
#else
#define MBM_HAS_FMA_D 0
MB_OVERLOAD double mbm_fma(double a, double b, double c) { return a * b + c; }
MB_OVERLOAD mbm_vd mbm_fma(mbm_vd a, mbm_vd b, mbm_vd c) { return a * b + c; }
#endif
MB_OVERLOAD mbm_vd mbm_fma(mbm_vd a, mbm_vd b, double c) { return mbm_fma(a, b, (mbm_vd){0} + c); }

MB_OVERLOAD float mbm_pick(int m, float a, float b) { return m ? a : b; }
MB_OVERLOAD double mbm_pick(int m, double a, double b) { return m ? a : b; }
MB_OVERLOAD mb_vf mbm_pick(mb_vm m, mb_vf a, mb_vf b) { return mb_select(m, a, b); }
MB_OVERLOAD mbm_vd mbm_pick(mbm_vl m, mbm_vd a, mbm_vd b) {
  return (mbm_vd)((m & (mbm_vl)a) | (~m & (mbm_vl)b));
}

/* |x|, and |x| with the sign of s. LLVM up to 22 turns the usual (x & m) | (s & ~m) under a later
 * blend with s into a masked vpternlog with a wrong truth table (llvm-project issue 157929): on
 * AVX-512 the sign is put there by a blend of x and -x. Do not write the bit form by hand. */
#define MBM_SIGN(T, MASK)                                                                      \
  MB_OVERLOAD T mbm_magnitude(T x) { return mbm_from_bits(mbm_bits(x) & MASK); }               \
  MB_OVERLOAD T mbm_with_sign(T x, T s) {                                                      \
    T a = mbm_magnitude(x);                                                                    \
    return MBM_SIGN_FORM(a, s, MASK);                                                          \
  }
#if defined(__AVX512F__) && __clang_major__ <= 22
#define MBM_SIGN_FORM(a, s, MASK) mbm_pick(mbm_bits(s) < 0, -a, a)
#else
#define MBM_SIGN_FORM(a, s, MASK) mbm_from_bits(mbm_bits(a) | (mbm_bits(s) & ~MASK))
#endif
MBM_SIGN(float, 0x7fffffff)
MBM_SIGN(mb_vf, 0x7fffffff)
MBM_SIGN(double, INT64_C(0x7fffffffffffffff))
MBM_SIGN(mbm_vd, INT64_C(0x7fffffffffffffff))
#undef MBM_SIGN

#if MBM_HAS_ROUND
#define MBM_ROUND(T, BIG)                                                       \
  MB_OVERLOAD T mb_floor(T x) { return __builtin_elementwise_floor(x); }        \
  MB_OVERLOAD T mb_ceil(T x) { return __builtin_elementwise_ceil(x); }          \
  MB_OVERLOAD T mb_trunc(T x) { return __builtin_elementwise_trunc(x); }        \
  MB_OVERLOAD T mb_round(T x) { return __builtin_elementwise_roundeven(x); }
#else
/* |x| + BIG drops the fraction, rounding half to even; past BIG there is none. */
#define MBM_ROUND(T, BIG)                                                       \
  MB_OVERLOAD T mb_round(T x) {                                                 \
    T a = mbm_magnitude(x), r = mbm_with_sign((a + BIG) - BIG, x);              \
    return mbm_pick(a < BIG, r, x);                                             \
  }                                                                             \
  MB_OVERLOAD T mb_floor(T x) {                                                 \
    T r = mb_round(x);                                                          \
    return mbm_with_sign(mbm_pick(r > x, r - 1, r), x);                         \
  }                                                                             \
  MB_OVERLOAD T mb_ceil(T x) {                                                  \
    T r = mb_round(x);                                                          \
    return mbm_with_sign(mbm_pick(r < x, r + 1, r), x);                         \
  }                                                                             \
  MB_OVERLOAD T mb_trunc(T x) {                                                 \
    return mbm_with_sign(mb_floor(mbm_magnitude(x)), x);                        \
  }
#endif
MBM_ROUND(float, 0x1p23f)
MBM_ROUND(mb_vf, 0x1p23f)
MBM_ROUND(double, 0x1p52)
MBM_ROUND(mbm_vd, 0x1p52)
#undef MBM_ROUND

#define MBM_F float
#define MBM_I int32_t
#define MBM_M int
#define MBM_D double
#define MBM_L int64_t
#define MBM_U uint32_t
#define MBM_UL uint64_t
#define MBM_C(c) ((float)(c))
#define MBM_CD(c) ((double)(c))
#define MBM_CI(c) ((int32_t)(c))
#define MBM_CONVERT(x, T) ((T)(x))
#include "mb/math_f32.h"
#include "mb/math_trig_f32.h"
#undef MBM_F
#undef MBM_I
#undef MBM_M
#undef MBM_D
#undef MBM_L
#undef MBM_U
#undef MBM_UL
#undef MBM_C
#undef MBM_CD
#undef MBM_CI
#undef MBM_CONVERT

#define MBM_F mb_vf
#define MBM_I mbm_vi
#define MBM_M mb_vm
#define MBM_D mbm_vd
#define MBM_L mbm_vl
#define MBM_U mbm_vu
#define MBM_UL mbm_vul
#define MBM_C(c) mb_bcast(c)
#define MBM_CD(c) ((double)(c) - (mbm_vd){0})
#define MBM_CI(c) ((mbm_vi){0} + (int32_t)(c))
#define MBM_CONVERT(x, T) __builtin_convertvector(x, T)
#include "mb/math_f32.h"
#include "mb/math_trig_f32.h"
#undef MBM_F
#undef MBM_I
#undef MBM_M
#undef MBM_D
#undef MBM_L
#undef MBM_U
#undef MBM_UL
#undef MBM_C
#undef MBM_CD
#undef MBM_CI
#undef MBM_CONVERT

/* A constant beside a vector, as epilogues have it. */
#define MBM_MIXED(NAME)                                                        \
  MB_OVERLOAD mb_vf NAME(mb_vf a, float b) { return NAME(a, mb_bcast(b)); }    \
  MB_OVERLOAD mb_vf NAME(float a, mb_vf b) { return NAME(mb_bcast(a), b); }
MBM_MIXED(mb_pow)
MBM_MIXED(mb_fmod)
MBM_MIXED(mb_mod)
MBM_MIXED(mb_atan2)
#undef MBM_MIXED

#include "mb/math_f64.h"
#include "mb/math_trig_f64.h"
#include "mb/math_int.h"

#endif
