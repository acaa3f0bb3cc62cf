/* TFLite's fixed-point scaling, as its reference kernels do it. A factor is multiplier * 2^(shift - 31).
 *
 * mb_tfl_scale doubles the product and rounds its high half, then shifts right and rounds half away from
 * zero: two roundings. mb_tfl_scale_once rounds once, half up. mb_tfl_scale64, for sums of 64 bits, has a multiplier of 15 bits and rounds once. */
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

#endif
