/* Numbers of at most 8 bits that C has no type for: an element is a byte whose low bits are its code.
 *
 * Only conversions are here: nothing computes with codes. mb_<type>_value says what a code stands for,
 * mb_<type>_code rounds a number to one, half to even and once, from double too. All is arithmetic on the
 * bits of floats, so that it vectorizes and subnormals are right where they flush. ONNX's Cast says what
 * becomes of numbers that are too large: the largest, or (saturate = 0) infinity or NaN.
 */
#ifndef MB_CODES_H
#define MB_CODES_H

#include "mb/half.h"

MB_INLINE int mb_i4_value(uint8_t c) { return ((c & 15) ^ 8) - 8; }
MB_INLINE int mb_u4_value(uint8_t c) { return c & 15; }
MB_INLINE int mb_i2_value(uint8_t c) { return ((c & 3) ^ 2) - 2; }
MB_INLINE int mb_u2_value(uint8_t c) { return c & 3; }

/* A float of M bits of mantissa and bias B below its sign at bit SIGN. TOP is the largest number's code, OVER
 * what larger ones become when they do not saturate. As in half.h a subnormal is what is over the least normal;
 * going back, adding a number whose last bit counts as much as theirs rounds them. UNSIGNED: the codes of NaN and
 * zero have no sign. f4e2m1 has no NaN; as with ml_dtypes, which ONNX's reference is made of, it becomes a zero. */
#define MBC_FLOAT(NAME, M, B, SIGN, TOP, OVER, NAN_CODE, IS_NAN, INF, UNSIGNED)                               \
  MB_INLINE float mb_##NAME##_value(uint8_t c) {                                                              \
    const uint32_t em = c & ((1u << SIGN) - 1), sign = (uint32_t)(c >> SIGN & 1) << 31;                       \
    const uint32_t normal = (em << (23 - M)) + ((127u - B) << 23);                                            \
    const uint32_t small =                                                                                    \
        mbh_bits(mbh_as_float(normal + (1u << 23)) - mbh_as_float((128u - B) << 23));                         \
    const uint32_t number = em < 1u << M ? small : normal;                                                    \
    return mbh_as_float((IS_NAN ? 0x7fc00000u : em == INF ? 0x7f800000u : number) | sign);                    \
  }                                                                                                           \
  MB_OVERLOAD uint8_t mb_##NAME##_code(float x, int saturate) {                                               \
    const uint32_t bits = mbh_bits(x), a = bits & 0x7fffffff, sign = bits >> 31 << SIGN;                      \
    const uint32_t least = (128u - B) << 23, unit = (128u - B - M + 23) << 23;                                \
    const uint32_t small = mbh_bits(mbh_as_float(a) + mbh_as_float(unit)) - unit;                             \
    const uint32_t normal =                                                                                   \
        (a - ((127u - B) << 23) + (1u << (22 - M)) - 1 + (a >> (23 - M) & 1)) >> (23 - M);                    \
    const uint32_t rounded = a < least ? small : normal;                                                      \
    const uint32_t number = rounded > TOP ? (saturate ? TOP : OVER) : rounded;                                \
    const uint32_t code = a > 0x7f800000u ? NAN_CODE : number;                                                \
    return (uint8_t)(UNSIGNED && !(code & ((1u << SIGN) - 1)) ? code : code ^ sign);                          \
  }                                                                                                           \
  MB_OVERLOAD uint8_t mb_##NAME##_code(double x, int saturate) {                                              \
    return mb_##NAME##_code(mbh_odd(x), saturate);                                                            \
  }

#define MBC_NONE 0xffffu
MBC_FLOAT(f8e4m3fn, 3, 7, 7, 0x7eu, 0x7fu, 0x7fu, em == 0x7f, MBC_NONE, 0)
MBC_FLOAT(f8e4m3fnuz, 3, 8, 7, 0x7fu, 0x80u, 0x80u, c == 0x80, MBC_NONE, 1)
MBC_FLOAT(f8e5m2, 2, 15, 7, 0x7bu, 0x7cu, 0x7eu, em > 0x7c, 0x7cu, 0)
MBC_FLOAT(f8e5m2fnuz, 2, 16, 7, 0x7fu, 0x80u, 0x80u, c == 0x80, MBC_NONE, 1)
MBC_FLOAT(f4e2m1, 1, 1, 3, 0x7u, 0x7u, 0x8u, 0, MBC_NONE, 0)
#undef MBC_FLOAT
#undef MBC_NONE

/* Powers of two, without sign; the least, 2^-127, is a subnormal float. */
MB_INLINE float mb_f8e8m0_value(uint8_t c) {
  return mbh_as_float(c == 255 ? 0x7fc00000u : c ? (uint32_t)c << 23 : 0x400000u);
}

enum { MBC_UP, MBC_DOWN, MBC_NEAREST };

/* Exponents count from that of 2^-127. `part`: how far it is to the next one, 1 << 23 all of the way. */
MB_INLINE uint8_t mbc_power(int exponent, uint32_t part, int saturate, int rounding) {
  const int up = rounding == MBC_UP ? part > 0 : rounding == MBC_NEAREST ? part >= 1u << 22 : 0;
  const int near = exponent + up;
  return (uint8_t)(exponent < 0 ? (saturate ? 0 : 255) : near > 254 ? (saturate ? 254 : 255) : near);
}
MB_OVERLOAD uint8_t mb_f8e8m0_code(float x, int saturate, int rounding) {
  const uint32_t a = mbh_bits(x) & 0x7fffffff, low = (a - (1u << 22)) << 1;
  const int exponent = a < 1u << 22 ? -1 : (int)(a >> 23);
  const uint8_t code = mbc_power(exponent, a < 1u << 23 ? low : a & 0x7fffff, saturate, rounding);
  return a > 0x7f800000u ? 255 : code;
}
/* From the double's own bits: as a float it might flush. */
MB_OVERLOAD uint8_t mb_f8e8m0_code(double x, int saturate, int rounding) {
  const uint64_t a = ((union { double f; uint64_t u; }){.f = x}).u & (UINT64_MAX >> 1);
  const uint32_t lost = (a & ((1u << 29) - 1)) != 0, part = (uint32_t)(a >> 29 & 0x7fffff) | lost;
  const uint8_t code = mbc_power((int)(a >> 52) - 896, part, saturate, rounding);
  return x != x ? 255 : code;
}
MB_OVERLOAD uint8_t mb_f8e8m0_code(float x, int saturate) { return mb_f8e8m0_code(x, saturate, MBC_UP); }
MB_OVERLOAD uint8_t mb_f8e8m0_code(double x, int saturate) { return mb_f8e8m0_code(x, saturate, MBC_UP); }

#endif
