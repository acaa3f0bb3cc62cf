/* Scalar functions of generated loops that are no mathematics: indices, clipping, vectors by stride. */
#ifndef MB_SCALAR_H
#define MB_SCALAR_H

#include "mb/base.h"
#include "mb/half.h"

/* A run-time index into an axis of n: negatives count from the end; outside is an error, and 0. */
MB_INLINE long mb_index(long i, long n, int *bad) {
  i += i < 0 ? n : 0;
  int out = i < 0 || i >= n;
  *bad |= out;
  return out ? 0 : i;
}

/* Of indices that are known not to be negative; of indices that are known to fit. */
MB_INLINE long mb_index_below(long i, long n, int *bad) {
  int out = i >= n;
  *bad |= out;
  return out ? 0 : i;
}
MB_INLINE long mb_index_wrap(long i, long n) { return i < 0 ? i + n : i; }

MB_INLINE long mb_floordiv(long a, long b) { return a / b - (a % b < 0); }
MB_INLINE long mb_floormod(long a, long b) { return a % b < 0 ? a % b + b : a % b; }

MB_OVERLOAD int mb_isnan(float x) { return x != x; }
MB_OVERLOAD int mb_isnan(double x) { return x != x; }

/* Integers: without these they would go through float. Smaller types promote to int. */
#define MB_EXTREMES(T)                                        \
  MB_OVERLOAD T mb_max(T a, T b) { return a > b ? a : b; }    \
  MB_OVERLOAD T mb_min(T a, T b) { return a < b ? a : b; }    \
  MB_OVERLOAD T mb_relu(T x) { return x > 0 ? x : 0; }
MB_EXTREMES(int)
MB_EXTREMES(long)
MB_EXTREMES(long long)
MB_EXTREMES(unsigned)
MB_EXTREMES(unsigned long)
MB_EXTREMES(unsigned long long)
#undef MB_EXTREMES

/* A NaN bound does not bound, a NaN value stays. */
#define MB_CLIP(T)                                                         \
  MB_OVERLOAD T mb_clip_lo(T x, T lo) { return lo > x ? lo : x; }          \
  MB_OVERLOAD T mb_clip_hi(T x, T hi) { return hi < x ? hi : x; }
MB_CLIP(float)
MB_CLIP(double)
MB_CLIP(int8_t)
MB_CLIP(int16_t)
MB_CLIP(int32_t)
MB_CLIP(long)
MB_CLIP(uint8_t)
MB_CLIP(uint16_t)
MB_CLIP(uint32_t)
MB_CLIP(unsigned long)
#undef MB_CLIP
MB_OVERLOAD mb_vf mb_clip_lo(mb_vf x, mb_vf lo) { return mb_select(mb_gt(lo, x), lo, x); }
MB_OVERLOAD mb_vf mb_clip_hi(mb_vf x, mb_vf hi) { return mb_select(mb_lt(hi, x), hi, x); }
MB_OVERLOAD mb_vf mb_clip_lo(mb_vf x, float lo) { return mb_clip_lo(x, mb_bcast(lo)); }
MB_OVERLOAD mb_vf mb_clip_hi(mb_vf x, float hi) { return mb_clip_hi(x, mb_bcast(hi)); }

/* Lanes that lie `step` floats apart. */
MB_OVERLOAD float mb_ld_strided(float like, const float *p, long step) {
  (void)like, (void)step;
  return *p;
}
MB_OVERLOAD mb_vf mb_ld_strided(mb_vf like, const float *p, long step) {
  (void)like;
  mb_vf v;
  MB_UNROLL for (int i = 0; i < MB_VL; i++) v[i] = p[i * step];
  return v;
}

#endif
