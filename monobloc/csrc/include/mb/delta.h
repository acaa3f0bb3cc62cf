/* One token of an attention whose state is a matrix s [width][size], in two walks over it. Four vectors of a row at a
 * time: sums along the width stay in registers.
 *
 *   mb_delta_ask   s *= f, then r -= s' k       f has a number for every row, or one (`by` 0); k may be absent
 *   mb_delta_add   s += k r', then y = s' q     q times scale, for each of `outs` queries
 */
#ifndef MB_DELTA_H
#define MB_DELTA_H

#include "mb/base.h"

enum { MB_DELTA_TILE = 4 };

#define MB_DELTA_EACH MB_UNROLL for (int v = 0; v < MB_DELTA_TILE; v++) if (v < count)

MB_INLINE void mb_delta_ask_tile(long width, long size, float *s, const float *f, long by, const float *k, float *r,
                                 int count) {
  mb_vf sum[MB_DELTA_TILE];
  MB_DELTA_EACH sum[v] = mb_load(r + v * MB_VL);
  for (long i = 0; i < width; i++) {
    float *row = s + i * size;
    const mb_vf decay = mb_bcast(f ? f[i * by] : 1), key = mb_bcast(k ? k[i] : 0);
    MB_DELTA_EACH {
      mb_vf x = mb_load(row + v * MB_VL);
      if (f) x *= decay, mb_store(row + v * MB_VL, x);
      if (k) sum[v] -= key * x;
    }
  }
  MB_DELTA_EACH mb_store(r + v * MB_VL, sum[v]);
}

MB_INLINE void mb_delta_add_tile(long width, long size, float *s, const float *k, const float *r, const float *q,
                                 float scale, float *y, int count) {
  mb_vf fresh[MB_DELTA_TILE], sum[MB_DELTA_TILE];
  MB_DELTA_EACH {
    fresh[v] = k ? mb_load(r + v * MB_VL) : mb_zero();
    sum[v] = mb_zero();
  }
  for (long i = 0; i < width; i++) {
    float *row = s + i * size;
    const mb_vf key = mb_bcast(k ? k[i] : 0), query = mb_bcast(scale * q[i]);
    MB_DELTA_EACH {
      mb_vf x = mb_load(row + v * MB_VL);
      if (k) x += key * fresh[v], mb_store(row + v * MB_VL, x);
      sum[v] += query * x;
    }
  }
  MB_DELTA_EACH mb_store(y + v * MB_VL, sum[v]);
}

MB_INLINE void mb_delta_ask(long width, long size, float *s, const float *f, long by, const float *k, float *r) {
  long j = 0;
  for (; j + MB_DELTA_TILE * MB_VL <= size; j += MB_DELTA_TILE * MB_VL)
    mb_delta_ask_tile(width, size, s + j, f, by, k, r + j, MB_DELTA_TILE);
  for (; j + MB_VL <= size; j += MB_VL) mb_delta_ask_tile(width, size, s + j, f, by, k, r + j, 1);
  for (; j < size; j++)
    for (long i = 0; i < width; i++) {
      if (f) s[i * size + j] *= f[i * by];
      if (k) r[j] -= k[i] * s[i * size + j];
    }
}

/* The first query sees the new state made; for the others `k` is absent. */
MB_INLINE void mb_delta_add(long width, long size, float *s, const float *k, const float *r, const float *q,
                            float scale, float *y) {
  long j = 0;
  for (; j + MB_DELTA_TILE * MB_VL <= size; j += MB_DELTA_TILE * MB_VL)
    mb_delta_add_tile(width, size, s + j, k, r + j, q, scale, y + j, MB_DELTA_TILE);
  for (; j + MB_VL <= size; j += MB_VL) mb_delta_add_tile(width, size, s + j, k, r + j, q, scale, y + j, 1);
  for (; j < size; j++) {
    float sum = 0;
    for (long i = 0; i < width; i++) {
      if (k) s[i * size + j] += k[i] * r[j];
      sum += scale * q[i] * s[i * size + j];
    }
    y[j] = sum;
  }
}

#endif
