/* The audio front end of TFLite Micro, in whole numbers: Fourier transforms, filter banks, roots, logarithms, gains.
 *
 * A transform of n real numbers is one of n / 2 complex ones, in steps of four and at most one of two, and a last
 * step that takes them apart. Every step divides first, so that sums fit. `turns` are n / 2 roots of unity, `half`
 * n / 4 of those between them; numbers have FRAC bits behind the point.
 */
#ifndef MB_TFLSIGNAL_H
#define MB_TFLSIGNAL_H

#include "mb/base.h"

#define MB_FIXED_FFT(T, W, FRAC)                                                                                     \
  typedef struct {                                                                                                   \
    T r, i;                                                                                                          \
  } mb_##T##_pair;                                                                                                   \
  MB_INLINE T mb_##T##_cut(W x) { return (T)((x + ((W)1 << (FRAC - 1))) >> FRAC); }                                  \
  MB_INLINE mb_##T##_pair mb_##T##_part(mb_##T##_pair x, int k) {                                                    \
    const W by = (((W)1 << FRAC) - 1) / k;                                                                           \
    return (mb_##T##_pair){mb_##T##_cut(x.r * by), mb_##T##_cut(x.i * by)};                                          \
  }                                                                                                                  \
  MB_INLINE mb_##T##_pair mb_##T##_times(mb_##T##_pair a, mb_##T##_pair b) {                                         \
    return (mb_##T##_pair){mb_##T##_cut((W)a.r * b.r - (W)a.i * b.i), mb_##T##_cut((W)a.r * b.i + (W)a.i * b.r)};    \
  }                                                                                                                  \
  MB_INLINE mb_##T##_pair mb_##T##_plus(mb_##T##_pair a, mb_##T##_pair b, int sign) {                                \
    return (mb_##T##_pair){(T)((W)a.r + sign * (W)b.r), (T)((W)a.i + sign * (W)b.i)};                                \
  }                                                                                                                  \
  MB_INLINE void mb_##T##_two(mb_##T##_pair *x, const mb_##T##_pair *turns, long step, long m) {                     \
    for (long k = 0; k < m; k++) {                                                                                   \
      const mb_##T##_pair a = mb_##T##_part(x[k], 2);                                                                \
      const mb_##T##_pair b = mb_##T##_times(mb_##T##_part(x[k + m], 2), turns[k * step]);                           \
      x[k] = mb_##T##_plus(a, b, 1), x[k + m] = mb_##T##_plus(a, b, -1);                                             \
    }                                                                                                                \
  }                                                                                                                  \
  MB_INLINE void mb_##T##_four(mb_##T##_pair *x, const mb_##T##_pair *turns, long step, long m, int sign) {          \
    for (long k = 0; k < m; k++) {                                                                                   \
      const mb_##T##_pair a = mb_##T##_part(x[k], 4);                                                                \
      const mb_##T##_pair b = mb_##T##_times(mb_##T##_part(x[k + m], 4), turns[k * step]);                           \
      const mb_##T##_pair c = mb_##T##_times(mb_##T##_part(x[k + 2 * m], 4), turns[2 * k * step]);                   \
      const mb_##T##_pair d = mb_##T##_times(mb_##T##_part(x[k + 3 * m], 4), turns[3 * k * step]);                   \
      const mb_##T##_pair even = mb_##T##_plus(a, c, 1), odd = mb_##T##_plus(a, c, -1);                              \
      const mb_##T##_pair sum = mb_##T##_plus(b, d, 1), rest = mb_##T##_plus(b, d, -1);                              \
      const mb_##T##_pair turned = {(T)(-sign * (W)rest.i), (T)(sign * (W)rest.r)};                                  \
      x[k] = mb_##T##_plus(even, sum, 1), x[k + 2 * m] = mb_##T##_plus(even, sum, -1);                               \
      x[k + m] = mb_##T##_plus(odd, turned, 1), x[k + 3 * m] = mb_##T##_plus(odd, turned, -1);                       \
    }                                                                                                                \
  }                                                                                                                  \
  /* y = the transform of n numbers x, of which the first `taken` scalars are there and the others zero */           \
  MB_INLINE void mb_##T##_fft(long n, const T *x, long taken, const mb_##T##_pair *turns, int sign,                  \
                              mb_##T##_pair *y) {                                                                    \
    for (long p = 0; p < n; p++) {                                                                                   \
      long from = 0, weight = 1, rest = p, span = n;                                                                 \
      while (span > 1) {                                                                                             \
        const long f = span % 4 ? 2 : 4;                                                                             \
        span /= f, from += rest / span * weight, rest %= span, weight *= f;                                          \
      }                                                                                                              \
      y[p].r = 2 * from < taken ? x[2 * from] : 0, y[p].i = 2 * from + 1 < taken ? x[2 * from + 1] : 0;              \
    }                                                                                                                \
    long m = 1;                                                                                                      \
    if (__builtin_ctzl((unsigned long)n) % 2)                                                                        \
      for (long at = (m = 2, 0); at < n; at += 2) mb_##T##_two(y + at, turns, n / 2, 1);                             \
    for (; m < n; m *= 4)                                                                                            \
      for (long at = 0; at < n; at += 4 * m) mb_##T##_four(y + at, turns, n / (4 * m), m, sign);                     \
  }                                                                                                                  \
  MB_INLINE void mb_##T##_rfft(long n, const T *x, long taken, const mb_##T##_pair *turns,                           \
                               const mb_##T##_pair *half, mb_##T##_pair *work, mb_##T##_pair *y) {                   \
    mb_##T##_fft(n, x, taken, turns, -1, work);                                                                      \
    const mb_##T##_pair first = mb_##T##_part(work[0], 2);                                                           \
    y[0] = (mb_##T##_pair){(T)((W)first.r + first.i), 0}, y[n] = (mb_##T##_pair){(T)((W)first.r - first.i), 0};      \
    for (long k = 1; k <= n / 2; k++) {                                                                              \
      const mb_##T##_pair a = mb_##T##_part(work[k], 2), far = {work[n - k].r, (T)(-(W)work[n - k].i)};              \
      const mb_##T##_pair b = mb_##T##_part(far, 2), sum = mb_##T##_plus(a, b, 1);                                   \
      const mb_##T##_pair t = mb_##T##_times(mb_##T##_plus(a, b, -1), half[k - 1]);                                  \
      y[k] = (mb_##T##_pair){(T)(((W)sum.r + t.r) >> 1), (T)(((W)sum.i + t.i) >> 1)};                                \
      y[n - k] = (mb_##T##_pair){(T)(((W)sum.r - t.r) >> 1), (T)(((W)t.i - sum.i) >> 1)};                            \
    }                                                                                                                \
  }                                                                                                                  \
  MB_INLINE void mb_##T##_irfft(long n, const mb_##T##_pair *x, const mb_##T##_pair *turns,                          \
                                const mb_##T##_pair *half, mb_##T##_pair *work, mb_##T##_pair *y) {                  \
    const mb_##T##_pair both = {(T)((W)x[0].r + x[n].r), (T)((W)x[0].r - x[n].r)};                                   \
    work[0] = mb_##T##_part(both, 2);                                                                                \
    for (long k = 1; k <= n / 2; k++) {                                                                              \
      const mb_##T##_pair a = mb_##T##_part(x[k], 2), far = {x[n - k].r, (T)(-(W)x[n - k].i)};                       \
      const mb_##T##_pair b = mb_##T##_part(far, 2), sum = mb_##T##_plus(a, b, 1);                                   \
      const mb_##T##_pair t = mb_##T##_times(mb_##T##_plus(a, b, -1), half[k - 1]);                                  \
      work[k] = mb_##T##_plus(sum, t, 1), work[n - k] = mb_##T##_plus(sum, t, -1);                                   \
      work[n - k].i = (T)(-(W)work[n - k].i);                                                                        \
    }                                                                                                                \
    mb_##T##_fft(n, (const T *)work, 2 * n, turns, 1, y);                                                            \
  }

MB_FIXED_FFT(int16_t, int32_t, 15)
MB_FIXED_FFT(int32_t, int64_t, 31)

/* How many bits the largest number may go to the left; the lowest number's opposite is itself */
MB_INLINE int32_t mb_tfl_room(const int16_t *x, long n) {
  int16_t most = 0;
  for (long i = 0; i < n; i++) {
    if (x[i] > most)
      most = x[i];
    else if (-x[i] > most)
      most = (int16_t)-x[i];
  }
  const int32_t room = most > 0 ? __builtin_clz((unsigned)most) - 17 : 0;
  return room > 0 ? room : 0;
}

/* The root, rounded to the nearest number, which has half of the bits at most */
MB_INLINE uint32_t mb_tfl_root(uint64_t x) {
  const uint64_t most = x >> 32 ? 0xFFFFFFFF : 0xFFFF;
  uint64_t root = 0;
  for (uint64_t bit = (uint64_t)1 << 62; bit; bit >>= 2) {
    const int fits = x >= root + bit;
    x -= fits ? root + bit : 0;
    root = (root >> 1) + (fits ? bit : 0);
  }
  return (uint32_t)(root + (x > root && root != most));
}

MB_INLINE int32_t mb_tfl_bits(uint32_t x) { return x ? 32 - __builtin_clz(x) : 32; }

/* scale * ln(x) in 16 bits, by `table`: what log2(1 + k / 128) has beyond k / 128 */
MB_INLINE int16_t mb_tfl_log(uint32_t x, uint32_t scale, const uint16_t *table) {
  if (x <= 1) return 0;
  const int32_t whole = mb_tfl_bits(x) - 1, rest = (int32_t)(x - ((uint32_t)1 << whole));
  const int32_t part = whole < 16 ? rest << (16 - whole) : rest >> (whole - 16), k = part >> 9;
  const int32_t between = ((table[k + 1] - table[k]) * (part - (k << 9))) >> 16;
  const uint32_t log2 = ((uint32_t)whole << 16) + (uint32_t)(part + table[k] + between);
  const uint32_t log = (uint32_t)((45426 * (uint64_t)log2 + 32768) >> 16), y = (scale * log + 32768) >> 16;
  return (int16_t)(y < 32767 ? y : 32767);
}

/* The gain for a level of noise, by parabolas between powers of two; x by it, less one, without becoming negative */
MB_INLINE int16_t mb_tfl_gain(uint32_t x, const int16_t *table) {
  if (x <= 2) return table[x];
  const int32_t bits = mb_tfl_bits(x), part = (int32_t)((bits < 11 ? x << (11 - bits) : x >> (bits - 11)) & 0x3FF);
  const int16_t *t = table + 4 * bits - 6;
  const int32_t y = ((t[2] * part) >> 5) + (int32_t)((uint32_t)t[1] << 5);
  return (int16_t)((((int32_t)((uint32_t)y * (uint32_t)part) + (1 << 14)) >> 15) + t[0]);
}

MB_INLINE uint32_t mb_tfl_pcan(uint32_t x, uint32_t noise, int shift, const int16_t *table) {
  const uint32_t y = (uint32_t)(((uint64_t)x * (uint32_t)(int32_t)mb_tfl_gain(noise, table)) >> shift);
  return y < 2 << 12 ? (y * y) >> 20 : (y >> 6) - 64;
}

#endif
