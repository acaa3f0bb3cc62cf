/* Products with weights of 2, 4 or 8 bits in blocks that have a scale and a zero point each:
 *
 *   y[m][n] = sum over blocks k of scale[n][k] * (sum over the block of x * (q - zero[n][k]))
 *
 *   x      [m][blocks][planes][blob]  float; plane p of a block holds what the p-th bits of its bytes multiply
 *   b      [n][blocks][blob]          bytes, 8 / bits weights each, the first in the lowest bits
 *   scale  [n][blocks]                float or half
 *   zero   none (half of the range), packed like b with each row in whole bytes, or of the scale's type
 *
 * A vector of bytes is widened and centered in registers, once for all rows of a tile. Sums run over blocks in
 * order, MB_VL of them side by side; they do not depend on the rows of a tile. Threads part columns.
 */
#ifndef MB_NBITS_H
#define MB_NBITS_H

#include "mb/narrow.h"

enum { MB_NBITS_ROWS = MB_NVREG >= 32 ? 8 : 4, MB_NBITS_COLUMNS = 8 };
enum { MB_ZERO_NONE = 0, MB_ZERO_PACKED = 1, MB_ZERO_FLOAT = 2 };

typedef struct {
  long m, n, blocks, blob; /* blob: bytes of a block */
  int bits, scale_type, zero_kind;
} mb_nbits;

MB_INLINE float mb_nbits_zero(const mb_nbits *d, const void *zero, long column, long block) {
  if (d->zero_kind == MB_ZERO_NONE) return (float)(1 << (d->bits - 1));
  if (d->zero_kind == MB_ZERO_FLOAT) return mb_get(d->scale_type, zero, column * d->blocks + block);
  const uint8_t *row = (const uint8_t *)zero + column * ((d->blocks * d->bits + 7) / 8);
  return (float)(row[block * d->bits / 8] >> block * d->bits % 8 & ((1 << d->bits) - 1));
}

MB_INLINE float mb_nbits_sum(mb_vf v) {
  float t[MB_VL];
  mb_store(t, v);
  MB_UNROLL for (int w = MB_VL / 2; w > 0; w /= 2)
    MB_UNROLL for (int i = 0; i < w; i++) t[i] += t[i + w];
  return t[0];
}

/* One column for some rows. */
MB_INLINE void mb_nbits_dot(const mb_nbits *d, int rows, const float *x, const uint8_t *b, const void *scale,
                            const void *zero, long column, float *y) {
  const int planes = 8 / d->bits;
  const long row = d->blocks * planes * d->blob;
  mb_vf total[MB_NBITS_ROWS] = {0};
  b += column * d->blocks * d->blob;
  for (long k = 0; k < d->blocks; k++, b += d->blob) {
    const mb_vf by = mb_bcast(mb_get(d->scale_type, scale, column * d->blocks + k));
    const mb_vf center = mb_bcast(mb_nbits_zero(d, zero, column, k));
    mb_vf acc[MB_NBITS_ROWS] = {0};
    for (long c = 0; c < d->blob; c += MB_VL) {
      const mb_vu8u bytes = *(const mb_vu8u *)(b + c);
      MB_UNROLL for (int p = 0; p < planes; p++) {
        const mb_vu8u q = bytes >> (uint8_t)(d->bits * p) & (uint8_t)((1 << d->bits) - 1);
        const mb_vf w = __builtin_convertvector(q, mb_vf) - center;
        MB_UNROLL for (int r = 0; r < rows; r++)
          acc[r] = mb_fma(w, mb_load(x + r * row + (k * planes + p) * d->blob + c), acc[r]);
      }
    }
    MB_UNROLL for (int r = 0; r < rows; r++) total[r] = mb_fma(by, acc[r], total[r]);
  }
  MB_UNROLL for (int r = 0; r < rows; r++) y[r * d->n + column] = mb_nbits_sum(total[r]);
}

/* Blocks of fewer bytes than a vector has lanes. */
MB_INLINE void mb_nbits_dot_small(const mb_nbits *d, const float *x, const uint8_t *b, const void *scale,
                                  const void *zero, long column, float *y) {
  const int planes = 8 / d->bits;
  float total = 0;
  b += column * d->blocks * d->blob;
  for (long k = 0; k < d->blocks; k++, b += d->blob) {
    const float center = mb_nbits_zero(d, zero, column, k);
    float acc = 0;
    for (int p = 0; p < planes; p++)
      for (long c = 0; c < d->blob; c++, x++)
        acc = mb_fma((float)(b[c] >> d->bits * p & ((1 << d->bits) - 1)) - center, *x, acc);
    total = mb_fma(mb_get(d->scale_type, scale, column * d->blocks + k), acc, total);
  }
  y[column] = total;
}

MB_INLINE void mb_nbits_tile(const mb_nbits *d, int rows, const float *x, const uint8_t *b, const void *scale,
                             const void *zero, long lo, long hi, float *y) {
  for (long j = lo; j < hi; j++)
    if (d->blob % MB_VL == 0) mb_nbits_dot(d, rows, x, b, scale, zero, j, y);
    else
      for (long r = 0; r < rows; r++)
        mb_nbits_dot_small(d, x + r * d->blocks * (8 / d->bits) * d->blob, b, scale, zero, j, y + r * d->n);
}

MB_INLINE void mb_nbits_run(mb_nbits d, const float *x, const uint8_t *b, const void *scale, const void *zero,
                            float *y, int tid, int nt) {
  const long row = d.blocks * (8 / d.bits) * d.blob;
  long lo, hi;
  mb_share(d.n, tid, nt, &lo, &hi);
  for (; lo < hi; lo += MB_NBITS_COLUMNS) {
    const long end = mb_min_long(lo + MB_NBITS_COLUMNS, hi);
    long i = 0;
#define MB_NBITS_TILES(ROWS) \
  for (; i + (ROWS) <= d.m; i += (ROWS)) mb_nbits_tile(&d, ROWS, x + i * row, b, scale, zero, lo, end, y + i * d.n)
    MB_NBITS_TILES(MB_NBITS_ROWS);
    MB_NBITS_TILES(MB_NBITS_ROWS / 2);
    MB_NBITS_TILES(2);
    MB_NBITS_TILES(1);
#undef MB_NBITS_TILES
  }
}

#endif
