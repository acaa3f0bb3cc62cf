/* Quantization without intermediate rounding: round((k0*p0 + k1*p1 + k2*p2) / (den * 2^shift)) + zero, half to even.
 *
 * k are integers that a model computes, p and den what its scales are as integers. The sum is exact in 128 bits. Its
 * quotient is estimated in double, whose error is far below one where the result does not saturate, and put right by
 * the remainder: no division of 128 bits, which would be a call into a library. */
#ifndef MB_EXACT_H
#define MB_EXACT_H

#include "mb/math.h"

#ifdef __SIZEOF_INT128__
MB_INLINE int32_t mb_exact_quantize(int64_t k0, int64_t p0, int64_t k1, int64_t p1, int64_t k2, int64_t p2,
                                    int64_t den, int64_t shift, int32_t zero, int32_t lo, int32_t hi) {
  typedef __int128 wide;
  const wide sum = (wide)k0 * p0 + (wide)k1 * p1 + (wide)k2 * p2, size = sum < 0 ? -sum : sum;
  const wide unit = (wide)den << shift;
  const double whole = (double)(uint64_t)(size >> 64) * 0x1p64 + (double)(uint64_t)size;
  const double by = (double)(uint64_t)(unit >> 64) * 0x1p64 + (double)(uint64_t)unit;
  const double near = whole / by;
  if (near > 0x1p33) return sum < 0 ? lo : hi;
  wide q = (int64_t)(near + 0.5);
  wide rest = 2 * (size - q * unit);
  if (rest > unit || (rest == unit && (q & 1))) q++;
  else if (rest < -unit || (rest == -unit && (q & 1))) q--;
  const int64_t y = (sum < 0 ? -(int64_t)q : (int64_t)q) + zero;
  return (int32_t)(y < lo ? lo : y > hi ? hi : y);
}
#endif

#endif
