/* Products with weights of 2, 4 or 8 bits in blocks that have a scale and a zero point each:
 *
 *   y[m][n] = sum over blocks k of scale[n][k] * (sum over the block of x * (q - zero[n][k]))
 *
 *   x      [m][planes][blocks][blob]  plane p holds what the p-th bits of all bytes multiply
 *   b      [n][blocks][blob]          bytes, 8 / bits weights each, the first in the lowest bits
 *   scale  [n][blocks]                float or half
 *   zero   none (half of the range), packed like b with each row in whole bytes, or of the scale's type
 *
 *   static const mb_nbits D = { .n = 1024, ... };
 *   MB_NBITS(fc1, D)                                    x is float
 *   fc1(m, x, b, scale, zero, y, scratch, tid, nt);
 *   MB_NBITS_BYTES(fc1, D)                              x is int8 with a scale for every row and block
 *   fc1(m, x, x_scale, x_sum, b, scale, zero, y, scratch, tid, nt);
 *
 * Few rows widen weights in registers, a vector of bytes at a time, once for all rows of a tile: this header. Many
 * rows are worth unpacking a panel of columns first: nbits_panel.h. Which it is depends on m alone, and sums do not
 * depend on the rows of a tile. Threads part columns.
 */
#ifndef MB_NBITS_H
#define MB_NBITS_H

#include "mb/iconv.h"

enum { MB_ZERO_NONE = 0, MB_ZERO_PACKED = 1, MB_ZERO_FLOAT = 2 };

typedef struct {
  long n, blocks, blob; /* blob: bytes of a block; for panels and for x in bytes a multiple of 4 */
  int bits, scale_type, zero_kind;
  long kc;              /* blocks that a panel of floats holds at a time */
} mb_nbits;

MB_INLINE long mb_nbits_plane(const mb_nbits *d) { return d->blocks * d->blob; }
MB_INLINE long mb_nbits_row(const mb_nbits *d) { return mb_nbits_plane(d) * (8 / d->bits); }

MB_INLINE float mb_nbits_scale(const mb_nbits *d, const void *scale, long column, long block) {
  return mb_get(d->scale_type, scale, column * d->blocks + block);
}

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

/* -- few rows of floats ------------------------------------------------------------------------- */
enum { MB_NBITS_ROWS = MB_NVREG >= 32 ? 8 : 4, MB_NBITS_COLUMNS = 8 };

/* One column for some rows. */
MB_INLINE void mb_nbits_dot(const mb_nbits *d, int rows, const float *x, const uint8_t *b, const void *scale,
                            const void *zero, long column, float *y) {
  const long row = mb_nbits_row(d), plane = mb_nbits_plane(d);
  mb_vf total[MB_NBITS_ROWS] = {0};
  b += column * plane;
  for (long k = 0; k < d->blocks; k++, b += d->blob, x += d->blob) {
    const mb_vf by = mb_bcast(mb_nbits_scale(d, scale, column, k));
    const mb_vf center = mb_bcast(mb_nbits_zero(d, zero, column, k));
    mb_vf acc[MB_NBITS_ROWS] = {0};
    for (long c = 0; c < d->blob; c += MB_VL) {
      const mb_vu8u bytes = *(const mb_vu8u *)(b + c);
      MB_UNROLL for (int p = 0; p < 8 / d->bits; p++) {
        const mb_vu8u q = bytes >> (uint8_t)(d->bits * p) & (uint8_t)((1 << d->bits) - 1);
        const mb_vf w = __builtin_convertvector(q, mb_vf) - center;
        MB_UNROLL for (int r = 0; r < rows; r++)
          acc[r] = mb_fma(w, mb_load(x + r * row + p * plane + c), acc[r]);
      }
    }
    MB_UNROLL for (int r = 0; r < rows; r++) total[r] = mb_fma(by, acc[r], total[r]);
  }
  MB_UNROLL for (int r = 0; r < rows; r++) y[r * d->n + column] = mb_nbits_sum(total[r]);
}

/* Blocks of fewer bytes than a vector has lanes. */
MB_INLINE void mb_nbits_dot_small(const mb_nbits *d, const float *x, const uint8_t *b, const void *scale,
                                  const void *zero, long column, float *y) {
  const long plane = mb_nbits_plane(d);
  float total = 0;
  b += column * plane;
  for (long k = 0; k < d->blocks; k++, b += d->blob, x += d->blob) {
    const float center = mb_nbits_zero(d, zero, column, k);
    float acc = 0;
    for (int p = 0; p < 8 / d->bits; p++)
      for (long c = 0; c < d->blob; c++)
        acc = mb_fma((float)(b[c] >> d->bits * p & ((1 << d->bits) - 1)) - center, x[p * plane + c], acc);
    total = mb_fma(mb_nbits_scale(d, scale, column, k), acc, total);
  }
  y[column] = total;
}

MB_INLINE void mb_nbits_tile(const mb_nbits *d, int rows, const float *x, const uint8_t *b, const void *scale,
                             const void *zero, long lo, long hi, float *y) {
  for (long j = lo; j < hi; j++)
    if (d->blob % MB_VL == 0) mb_nbits_dot(d, rows, x, b, scale, zero, j, y);
    else
      for (long r = 0; r < rows; r++)
        mb_nbits_dot_small(d, x + r * mb_nbits_row(d), b, scale, zero, j, y + r * d->n);
}

MB_INLINE void mb_nbits_few(const mb_nbits *d, long m, const float *x, const uint8_t *b, const void *scale,
                            const void *zero, float *y, int tid, int nt) {
  const long row = mb_nbits_row(d);
  long lo, hi;
  mb_share(d->n, tid, nt, &lo, &hi);
  for (; lo < hi; lo += MB_NBITS_COLUMNS) {
    const long end = mb_min_long(lo + MB_NBITS_COLUMNS, hi);
    long i = 0;
#define MB_NBITS_TILES(ROWS) \
  for (; i + (ROWS) <= m; i += (ROWS)) mb_nbits_tile(d, ROWS, x + i * row, b, scale, zero, lo, end, y + i * d->n)
    MB_NBITS_TILES(MB_NBITS_ROWS);
    MB_NBITS_TILES(MB_NBITS_ROWS / 2);
    MB_NBITS_TILES(2);
    MB_NBITS_TILES(1);
#undef MB_NBITS_TILES
  }
}

/* -- few rows of bytes -------------------------------------------------------------------------- */
/* A chunk is what a vector of bytes holds of a column: MB_VL lanes of 4 bytes, each of one block. Weights are the
 * unsigned operand of the dot product where the machine wants one; a signed one takes 8 bits less half of the range. */
MB_INLINE int mb_nbits_flip(const mb_nbits *d) { return d->bits == 8 && !MB_DOT4_UNSIGNED ? 0x80 : 0; }
MB_INLINE mb_vi mb_nbits_bits(const mb_nbits *d, mb_vi raw, int p) {
  const int32_t mask = 0x01010101 * ((1 << d->bits) - 1);
  return ((mb_vi)((mb_vu)raw >> (uint32_t)(d->bits * p)) & mask) ^ 0x01010101 * mb_nbits_flip(d);
}

/* Lanes first.. of a row of numbers, one for each block; 0 behind the last block. */
#define MB_NBITS_LANES(NAME, T)                                                                       \
  MB_INLINE mb_vf NAME T {                                                                            \
    const long per = d->blob / 4, k0 = chunk * MB_VL / per;                                           \
    if (per % MB_VL == 0) return mb_bcast(AT(k0));                                                    \
    mb_vf v = {0};                                                                                    \
    MB_UNROLL for (int l = 0; l < MB_VL; l++) {                                                       \
      const long k = per <= MB_VL && MB_VL % per == 0 ? k0 + l / per : (chunk * MB_VL + l) / per;     \
      v[l] = k < d->blocks ? AT(k) : 0;                                                               \
    }                                                                                                 \
    return v;                                                                                         \
  }
#define AT(K) x[K]
MB_NBITS_LANES(mb_nbits_lanes, (const mb_nbits *d, const float *x, long chunk))
#undef AT
#define AT(K) mb_nbits_scale(d, scale, column, K)
MB_NBITS_LANES(mb_nbits_scales, (const mb_nbits *d, const void *scale, long column, long chunk))
#undef AT
#define AT(K) mb_nbits_zero(d, zero, column, K)
MB_NBITS_LANES(mb_nbits_zeros, (const mb_nbits *d, const void *zero, long column, long chunk))
#undef AT
#undef MB_NBITS_LANES

/* n bytes of a chunk, zeros behind them. */
MB_INLINE mb_vi mb_nbits_chunk(const void *p, long n) {
  if (n >= MB_CHUNK) return mb_iload((const int32_t *)p);
  int32_t t[MB_VL] = {0};
  __builtin_memcpy(t, p, (unsigned long)n);
  return mb_iload(t);
}

MB_INLINE long mb_nbits_chunks(const mb_nbits *d) { return (mb_nbits_plane(d) + MB_CHUNK - 1) / MB_CHUNK; }

/* What all columns share of a row: the scale of x in each lane, and scale times the sum of its x. */
MB_INLINE void mb_nbits_prepare(const mb_nbits *d, const int8_t *x, const float *x_scale, float *own) {
  const long plane = mb_nbits_plane(d), chunks = mb_nbits_chunks(d);
  for (long q = 0; q < chunks; q++) {
    const mb_vf by = mb_nbits_lanes(d, x_scale, q);
    mb_vi sum = {0};
    for (int p = 0; p < 8 / d->bits; p++)
      sum = mb_dot4(sum, (mb_vi){0} + 0x01010101, mb_nbits_chunk(x + p * plane + q * MB_CHUNK, plane - q * MB_CHUNK));
    mb_store(own + 2 * q * MB_VL, by);
    mb_store(own + (2 * q + 1) * MB_VL, by * __builtin_convertvector(sum, mb_vf));
  }
}

enum { MB_NBITS_FEW = 4 }; /* rows of a tile */

MB_INLINE void mb_nbits_byte_dot(const mb_nbits *d, int rows, const int8_t *x, const float *own, const uint8_t *b,
                                 const void *scale, const void *zero, long column, float *y) {
  const long row = mb_nbits_row(d), plane = mb_nbits_plane(d), chunks = mb_nbits_chunks(d);
  mb_vf total[MB_NBITS_FEW] = {0};
  b += column * plane;
  for (long q = 0; q < chunks; q++) {
    const long at = q * MB_CHUNK, left = plane % MB_CHUNK ? plane - at : MB_CHUNK;
    const mb_vi raw = mb_nbits_chunk(b + at, left);
    const mb_vf by = mb_nbits_scales(d, scale, column, q);
    const mb_vf center = (d->zero_kind == MB_ZERO_NONE ? mb_bcast((float)(1 << (d->bits - 1)))
                                                       : mb_nbits_zeros(d, zero, column, q)) - (float)mb_nbits_flip(d);
    MB_UNROLL for (int r = 0; r < rows; r++) {
      mb_vi acc = {0};
      MB_UNROLL for (int p = 0; p < 8 / d->bits; p++)
        acc = mb_dot4(acc, mb_nbits_bits(d, raw, p), mb_nbits_chunk(x + r * row + p * plane + at, left));
      const float *o = own + (r * chunks + q) * 2 * MB_VL;
      const mb_vf v = mb_fma(-center, mb_load(o + MB_VL), __builtin_convertvector(acc, mb_vf) * mb_load(o));
      total[r] = mb_fma(by, v, total[r]);
    }
  }
  MB_UNROLL for (int r = 0; r < rows; r++) y[r * d->n + column] = mb_nbits_sum(total[r]);
}

/* Floats of scratch of a thread. */
MB_INLINE long mb_nbits_few_scratch(const mb_nbits *d) { return MB_NBITS_FEW * mb_nbits_chunks(d) * 2 * MB_VL; }

MB_INLINE void mb_nbits_byte_few(const mb_nbits *d, long m, const int8_t *x, const float *x_scale, const uint8_t *b,
                                 const void *scale, const void *zero, float *y, float *own, int tid, int nt) {
  const long row = mb_nbits_row(d), part = mb_nbits_chunks(d) * 2 * MB_VL;
  long lo, hi;
  mb_share(d->n, tid, nt, &lo, &hi);
  for (long i = 0; i < m; i += MB_NBITS_FEW) {
    const int rows = (int)mb_min_long(m - i, MB_NBITS_FEW);
    for (int r = 0; r < rows; r++) mb_nbits_prepare(d, x + (i + r) * row, x_scale + (i + r) * d->blocks, own + r * part);
#define MB_NBITS_TILE(ROWS) \
  if (rows == (ROWS)) for (long j = lo; j < hi; j++) \
    mb_nbits_byte_dot(d, ROWS, x + i * row, own, b, scale, zero, j, y + i * d->n)
    MB_NBITS_TILE(1);
    MB_NBITS_TILE(2);
    MB_NBITS_TILE(3);
    MB_NBITS_TILE(4);
#undef MB_NBITS_TILE
  }
}

#endif
