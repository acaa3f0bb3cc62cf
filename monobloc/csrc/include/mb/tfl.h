/* TFLite's fixed-point scaling, as its reference kernels do it. A factor is multiplier * 2^(shift - 31).
 *
 * mb_tfl_scale doubles the product and rounds its high half, then shifts right and rounds half away from
 * zero: two roundings. mb_tfl_scale_once rounds once, half up. mb_tfl_scale64, for sums of 64 bits, has a
 * multiplier of 15 bits and rounds once. */
#ifndef MB_TFL_H
#define MB_TFL_H

#include "mb/base.h"

MB_INLINE int32_t mb_tfl_scale(int32_t x, int32_t multiplier, int32_t shift) {
  int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
  int32_t v = (int32_t)((uint32_t)x << left);
  int64_t product = (int64_t)v * multiplier;
  int64_t nudged = product + (product >= 0 ? 1LL << 30 : 1 - (1LL << 30));
  int32_t high = (int32_t)((nudged + ((nudged >> 63) & 0x7fffffff)) >> 31); /* towards zero */
  high = v == multiplier && v == INT32_MIN ? INT32_MAX : high;
  int32_t mask = (int32_t)((1LL << right) - 1), rest = high & mask;
  return (high >> right) + (rest > (mask >> 1) + (high < 0));
}

MB_INLINE int32_t mb_tfl_scale_once(int32_t x, int32_t multiplier, int32_t shift) {
  int32_t total = 31 - shift;
  return (int32_t)(((int64_t)x * multiplier + (1LL << (total - 1))) >> total);
}

MB_INLINE int64_t mb_tfl_scale64(int64_t x, int64_t multiplier, int64_t shift) {
  int64_t total = 15 - shift;
  return (int64_t)((uint64_t)x * (uint64_t)multiplier + (1ULL << (total - 1))) >> total;
}

/* Fixed point of 16 bits: logistic and tanh of a value with 3, or `bits`, integer bits; the result has none.
 * exp by halving powers and a polynomial for the last quarter, 1 / (1 + x) by Newton's method. */
MB_INLINE int32_t mb_tfl_fit16(int32_t x) { return x < -32768 ? -32768 : x > 32767 ? 32767 : x; }

MB_INLINE int32_t mb_tfl_right(int32_t x, int32_t by) {
  int32_t mask = (int32_t)((1LL << by) - 1);
  return (x >> by) + ((x & mask) > (mask >> 1) + (x < 0));
}

MB_INLINE int32_t mb_tfl_high16(int32_t a, int32_t b) {
  int32_t ab = a * b, v = (ab + (ab >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15);
  return v > 32767 ? 32767 : v;
}

MB_INLINE int32_t mb_tfl_exp16(int32_t a, int32_t bits) {
  const int32_t base = 28918, third = 10923;
  const int32_t factors[7] = {25520, 19875, 12055, 4435, 600, 11, 0}; /* tanh of 4 integer bits asks for 5 */
  int32_t fraction = 15 - bits, quarter = 1 << (fraction - 2);
  int32_t part = (a & (quarter - 1)) - quarter;
  int32_t x = part * (1 << bits) + (1 << 12);
  int32_t x2 = mb_tfl_high16(x, x), x3 = mb_tfl_high16(x2, x), x4 = mb_tfl_high16(x2, x2);
  int32_t tail = mb_tfl_right(mb_tfl_high16(mb_tfl_right(x4, 2) + x3, third) + x2, 1);
  int32_t y = mb_tfl_fit16(base + mb_tfl_high16(base, x + tail)), rest = part - a;
  for (int32_t e = 0; e < bits + 2; e++)
    if (rest & (1 << (fraction - 2 + e))) y = mb_tfl_high16(y, factors[e]);
  return a == 0 ? 32767 : y;
}

MB_INLINE int32_t mb_tfl_newton16(int32_t a) {
  int32_t half = (a + 32768) >> 1, x = 23130 + mb_tfl_high16(half, -15420);
  for (int k = 0; k < 3; k++)
    x = mb_tfl_fit16(x + mb_tfl_fit16(mb_tfl_high16(x, (1 << 13) - mb_tfl_high16(half, x)) * 4));
  return x;
}

MB_INLINE int32_t mb_tfl_logistic16(int32_t x) {
  int32_t y = mb_tfl_fit16(mb_tfl_newton16(mb_tfl_exp16(x > 0 ? -x : x, 3)) * 2);
  return x == 0 ? 1 << 14 : x > 0 ? y : 32767 - y;
}

MB_INLINE int32_t mb_tfl_tanh16(int32_t x, int32_t bits) {
  int32_t y = mb_tfl_fit16((mb_tfl_newton16(mb_tfl_exp16(x > 0 ? -x : x, bits + 1)) - (1 << 13)) * 4);
  return x == 0 ? 0 : x > 0 ? y : -y;
}

#endif
