/* TFLite's fixed-point scaling, as its reference kernels do it. A factor is multiplier * 2^(shift - 31), with a
 * multiplier that is not negative and a shift above -32.
 *
 * mb_tfl_scale doubles the product and rounds its high half, then shifts right and rounds half away from
 * zero: two roundings. mb_tfl_scale64, for sums of 64 bits, has a multiplier of 15 bits and rounds once. */
#ifndef MB_TFL_H
#define MB_TFL_H

#include "mb/epilogue.h"

MB_OVERLOAD int32_t mb_tfl_scale(int32_t x, int32_t multiplier, int32_t shift) {
  int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
  int32_t v = (int32_t)((uint32_t)x << left);
  int32_t high = (int32_t)(((int64_t)v * multiplier + (1LL << 30)) >> 31);
  int32_t mask = (int32_t)((1LL << right) - 1), rest = high & mask;
  return (high >> right) + (rest > (mask >> 1) + (high < 0));
}

/* The same on the sums of integer kernels. A comparison that holds is -1. */
typedef int64_t mb_vl __attribute__((vector_size(8 * MB_VL)));
MB_OVERLOAD mb_vi mb_tfl_scale(mb_vi x, mb_vi multiplier, mb_vi shift) {
  const mb_vi left = mb_max(shift, 0), right = mb_max(-shift, 0), one = mb_ibcast(1);
  const mb_vi v = (mb_vi)((mb_vu)x << (mb_vu)left);
  const mb_vl product = __builtin_convertvector(v, mb_vl) * __builtin_convertvector(multiplier, mb_vl);
  const mb_vi high = __builtin_convertvector((product + (1LL << 30)) >> 31, mb_vi);
  const mb_vi mask = (mb_vi)(((mb_vu)one << (mb_vu)right) - (mb_vu)one);
  return (high >> right) - ((high & mask) > (mask >> 1) - (high < 0));
}

MB_OVERLOAD mb_vi mb_tfl_scale(mb_vi x, int32_t multiplier, int32_t shift) { /* one scale for all channels */
  return mb_tfl_scale(x, mb_ibcast(multiplier), mb_ibcast(shift));
}

MB_INLINE int64_t mb_tfl_scale64(int64_t x, int64_t multiplier, int64_t shift) {
  int64_t total = 15 - shift;
  return (int64_t)((uint64_t)x * (uint64_t)multiplier + (1ULL << (total - 1))) >> total;
}

/* Fixed point of 32 bits: the doubled product's high half; shifts that round or saturate; then reciprocals, roots
 * and logarithms of rows, whose arguments are not known before. */
MB_INLINE int32_t mb_tfl_high32(int32_t a, int32_t b) {
  int64_t ab = (int64_t)a * b, nudged = ab + (ab >= 0 ? 1LL << 30 : 1 - (1LL << 30));
  int64_t v = (nudged + ((nudged >> 63) & 0x7fffffff)) >> 31;
  return v > INT32_MAX ? INT32_MAX : (int32_t)v;
}

MB_INLINE int32_t mb_tfl_right32(int32_t x, int32_t by) {
  int32_t mask = (int32_t)((1LL << by) - 1);
  return (x >> by) + ((x & mask) > (mask >> 1) + (x < 0));
}

MB_INLINE int32_t mb_tfl_left32(int32_t x, int32_t by) {
  int64_t v = (int64_t)((uint64_t)(int64_t)x << by);
  return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
}

MB_INLINE int32_t mb_tfl_half_sum32(int32_t a, int32_t b) {
  int64_t total = (int64_t)a + b;
  return (int32_t)((total + (total >= 0 ? 1 : -1)) / 2);
}

MB_INLINE int32_t mb_tfl_reciprocal32(int32_t x) { /* 1 / (1 + x) */
  int32_t half = mb_tfl_half_sum32(x, INT32_MAX), y = 1515870810 + mb_tfl_high32(half, -1010580540);
  for (int k = 0; k < 3; k++)
    y += mb_tfl_left32(mb_tfl_high32(y, (1 << 29) - mb_tfl_high32(half, y)), 2);
  return mb_tfl_left32(y, 1);
}

/* 1 / x, x > 0: a number in [1/2, 1), and the zeros in front of x */
MB_INLINE int32_t mb_tfl_reciprocal_of(int32_t x, int32_t *zeros) {
  *zeros = __builtin_clz((uint32_t)x);
  return mb_tfl_reciprocal32((int32_t)(((uint32_t)x << *zeros) - (1u << 31)));
}

MB_INLINE int32_t mb_tfl_inverse_root(int32_t x, int32_t *exponent) {
  int32_t shift = 11, three = (1 << 28) + (1 << 27), y = 1 << 28;
  if (x <= 1) {
    *exponent = 0;
    return INT32_MAX;
  }
  for (; x >= 1 << 29; shift++) x /= 4;
  int32_t pairs = (__builtin_clz((uint32_t)x) - 1) / 2 - 1;
  shift -= pairs, x <<= 2 * pairs;
  int32_t half = mb_tfl_right32(x >> 1, 1);
  for (int k = 0; k < 5; k++) {
    int32_t cube = mb_tfl_left32(mb_tfl_high32(mb_tfl_high32(y, y), y), 6);
    y = mb_tfl_left32(mb_tfl_high32(three, y) - mb_tfl_high32(half, cube), 3);
  }
  y = mb_tfl_high32(y, 1518500250);
  *exponent = shift < 0 ? 0 : -shift;
  return shift < 0 ? (int32_t)((uint32_t)y << -shift) : y;
}

MB_INLINE int32_t mb_tfl_log32(int32_t x, int32_t bits, int32_t to) {
  int32_t more = to + 1, quarter = mb_tfl_right32(536870912, more), zeros = __builtin_clz((uint32_t)x);
  int32_t r_a = mb_tfl_left32(mb_tfl_high32(mb_tfl_left32(x, zeros - 1), 1518500250), 1);
  int32_t pow_a = (bits - zeros) * (1 << (31 - more)) + quarter;
  int32_t z_b = mb_tfl_high32(x, 1518500250), room = __builtin_clz((uint32_t)z_b) - 1;
  int32_t r_b = mb_tfl_left32(x, room), pow_b = (bits - room) * (1 << (31 - more)) - quarter;
  int32_t r = r_a < r_b ? r_a : r_b, power = pow_a > pow_b ? pow_a : pow_b;
  int32_t p = mb_tfl_half_sum32(r, 1805811301), q = 2 * (r - 1805811301), square = mb_tfl_high32(q, q);
  int32_t num = mb_tfl_high32(q, r) + mb_tfl_high32(mb_tfl_high32(q, square), 117049297);
  int32_t under = mb_tfl_high32(p, 1057819769 + q + mb_tfl_high32(127690142, square)) + mb_tfl_high32(638450708, q);
  int32_t total = mb_tfl_high32(power, 1488522236) +
                  mb_tfl_high32(mb_tfl_right32(num, more), mb_tfl_reciprocal32(under));
  return mb_tfl_left32(total, 1);
}

/* a / b * multiplier * 2^(shift - 31); 0 where b is 0 */
MB_INLINE int32_t mb_tfl_divide(int32_t a, int32_t b, int32_t multiplier, int32_t shift) {
  int32_t zeros, sign = b < 0 ? -1 : 1;
  if (b == 0) return 0;
  a *= sign;
  int32_t inverse = mb_tfl_reciprocal_of(b * sign, &zeros);
  int32_t room = a == 0 ? 31 : __builtin_clz((uint32_t)(a < 0 ? ~a : a)) - 1;
  int32_t quotient = mb_tfl_high32((int32_t)((uint32_t)a << room), inverse);
  int32_t right = 31 - zeros + room - shift; /* by 31 or more nothing is left */
  return right > 31 ? 0 : mb_tfl_right32(mb_tfl_high32(quotient, multiplier), right);
}

/* A function of 16 bits by its values at every 128th place, with a line between two. */
MB_INLINE int32_t mb_tfl_table16(int32_t x, const int16_t *table) {
  int32_t at = (x >> 7) + 256, here = table[at];
  return here + (((table[at + 1] - here) * (x & 127) + 64) >> 7);
}

/* Fixed point of 16 bits: logistic and tanh of a value with 3, or `bits`, integer bits; the result has none.
 * exp by halving powers and a polynomial for the last quarter, 1 / (1 + x) by Newton's method. */
MB_INLINE int32_t mb_tfl_fit16(int32_t x) { return x < -32768 ? -32768 : x > 32767 ? 32767 : x; }

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
  int32_t tail = mb_tfl_right32(mb_tfl_high16(mb_tfl_right32(x4, 2) + x3, third) + x2, 1);
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

/* A gate of 16 bits with mean 0 and variance 1, in 10 bits more; times w, plus bias, scaled. */
MB_INLINE void mb_tfl_normal16(int32_t *x, const int16_t *w, const int32_t *bias, long n, int32_t m, int32_t s,
                               int32_t guard) {
  int64_t sum = 0, squares = 0;
  for (long j = 0; j < n; j++) sum += x[j], squares += (int64_t)x[j] * x[j];
  int32_t mean = (int32_t)(sum * 1024 / n), exponent;
  int32_t spread = (int32_t)((squares * ((1 << 20) / n) - (int64_t)mean * mean) / (1 << 20));
  int32_t inverse = mb_tfl_inverse_root(spread < 1 ? guard : spread, &exponent);
  for (long j = 0; j < n; j++) {
    int64_t v = (int64_t)mb_tfl_scale(1024 * x[j] - mean, inverse, exponent) * w[j] + bias[j];
    x[j] = mb_tfl_fit16(mb_tfl_scale((int32_t)((v > 0 ? v + 512 : v - 512) / 1024), m, s));
  }
}

#endif
