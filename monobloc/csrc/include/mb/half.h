/* Half floats to float and back, rounded once, half to even.
 *
 * Compilers call library functions (__truncdfhf2, ...) where the machine has no instruction, and there
 * is no library to call. So that one text serves all targets and vectorizes, conversions are functions
 * here: the instruction where there is one, integer arithmetic where not. Subnormal halves are right
 * even where subnormal floats flush. */
#ifndef MB_HALF_H
#define MB_HALF_H

#include "mb/base.h"

#if defined(__F16C__) || defined(__AVX512FP16__) || defined(__aarch64__)
#define MB_HAS_F16 1
#else
#define MB_HAS_F16 0
#endif

typedef union {
  float f;
  uint32_t u;
} mbh_float;
typedef union {
  _Float16 f;
  uint16_t u;
} mbh_f16;
typedef union {
  __bf16 f;
  uint16_t u;
} mbh_bf16;

MB_INLINE float mbh_as_float(uint32_t u) { return ((mbh_float){.u = u}).f; }
MB_INLINE uint32_t mbh_bits(float f) { return ((mbh_float){.f = f}).u; }

/* Exponents are moved from bias 15 to 127; a subnormal is what is over 2^-14. */
MB_INLINE float mbh_widen(uint16_t h) {
  const uint32_t em = (uint32_t)(h & 0x7fff) << 13, moved = em + (112u << 23);
  const uint32_t top = em >= 31u << 23 ? moved + (112u << 23) : moved;
  const float small = mbh_as_float(moved + (1u << 23)) - 0x1p-14f;
  const uint32_t bits = em < 1u << 23 ? mbh_bits(small) : top;
  return mbh_as_float(bits | (uint32_t)(h & 0x8000) << 16);
}

/* Three cases: beyond the largest; a multiple of 2^-24, which adding 0.5 rounds to; the rest. */
MB_INLINE uint16_t mbh_narrow(float x) {
  const uint32_t bits = mbh_bits(x), a = bits & 0x7fffffff;
  const uint32_t large = a > 255u << 23 ? 0x7e00 : 0x7c00;
  const uint32_t small = mbh_bits(mbh_as_float(a) + 0.5f) - (126u << 23);
  const uint32_t normal = (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13;
  const uint32_t r = a >= 143u << 23 ? large : a < 113u << 23 ? small : normal;
  return (uint16_t)(r | (bits >> 16 & 0x8000));
}

/* Rounded to odd: what is lost stays visible in the last bit, so that a second rounding is right. */
MB_INLINE float mbh_odd(double x) {
  const float f = (float)x;
  const double back = f;
  const double ab = back < 0 ? -back : back, ax = x < 0 ? -x : x;
  const uint32_t toward_zero = mbh_bits(f) - (uint32_t)(ab > ax);
  return mbh_as_float(back == x ? mbh_bits(f) : toward_zero | 1);
}

MB_OVERLOAD float mb_wide(_Float16 x) {
#if MB_HAS_F16
  return (float)x;
#else
  return mbh_widen(((mbh_f16){.f = x}).u);
#endif
}
MB_OVERLOAD float mb_wide(__bf16 x) { return mbh_as_float((uint32_t)((mbh_bf16){.f = x}).u << 16); }

MB_OVERLOAD _Float16 mb_f16(float x) {
#if MB_HAS_F16
  return (_Float16)x;
#else
  return ((mbh_f16){.u = mbh_narrow(x)}).f;
#endif
}
MB_OVERLOAD __bf16 mb_bf16(float x) {
  const uint32_t bits = mbh_bits(x), even = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return ((mbh_bf16){.u = (uint16_t)(x == x ? even : bits >> 16 | 0x40)}).f;
}
MB_OVERLOAD _Float16 mb_f16(double x) { return mb_f16(mbh_odd(x)); }
MB_OVERLOAD __bf16 mb_bf16(double x) { return mb_bf16(mbh_odd(x)); }

#endif
