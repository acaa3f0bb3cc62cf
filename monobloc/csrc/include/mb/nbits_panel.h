/* Many rows times packed weights (nbits.h): a panel of columns is unpacked once, in cache, for all of them.
 *
 * Bytes lie along a column, a panel has columns side by side: MB_VL words of MB_VL columns are turned in registers,
 * then every word gives its bits of each byte and plane. A panel is
 *
 *   floats  [planes][blocks of this part][blob][column]   dequantized; sums rest in y between parts of k
 *   bytes   [block][plane][word][column]                  words of 4 bytes, and [block][2][column] the scale and
 *                                                         scale * zero point of every column
 *
 * Bytes are summed exactly within a block and scaled once a block:
 * y += x_scale * (scale * sum(x * q)) - x_scale * sum(x) * (scale * zero).
 */
#ifndef MB_NBITS_PANEL_H
#define MB_NBITS_PANEL_H

#include "mb/nbits.h"
#include "mb/turn.h"

enum {
  MB_PANEL_NV = 2, MB_PANEL_NR = MB_PANEL_NV * MB_VL,
  MB_PANEL_ROWS = MB_NVREG >= 32 ? 12 : 6, MB_PANEL_REST = MB_NVREG >= 32 ? 4 : 3, /* of floats */
  MB_BYTE_ROWS = MB_NVREG >= 32 ? 6 : 3,
  MB_NBITS_MANY = 8, MB_NBITS_BYTE_MANY = 4 /* rows from which panels pay */
};

/* -- unpacking ---------------------------------------------------------------------------------- */
#if MB_VL == 16
MB_TURN_SQUARE(mb_turn_words, mb_vi, 16, MB_ZIP16)
#elif MB_VL == 8
MB_TURN_SQUARE(mb_turn_words, mb_vi, 8, MB_ZIP8)
#else
MB_TURN_SQUARE(mb_turn_words, mb_vi, 4, MB_ZIP4)
#endif

/* Words of MB_VL columns from b on, of which `columns` exist: lane l of v[i] is word i of column l. Those behind the
 * last column repeat it. Of `words`, MB_VL at most are loaded. */
MB_INLINE void mb_nbits_words(const mb_nbits *d, const uint8_t *b, long columns, long words, mb_vi v[MB_VL]) {
  const long step = mb_nbits_plane(d);
  MB_UNROLL for (int l = 0; l < MB_VL; l++)
    v[l] = mb_nbits_chunk(b + mb_min_long(l, columns - 1) * step, 4 * words);
  mb_turn_words(v);
}

/* Scales and zero points of block k of MB_VL columns. */
MB_INLINE void mb_nbits_numbers(const mb_nbits *d, const void *scale, const void *zero, long first, long columns, long k,
                                float by[MB_VL], float center[MB_VL]) {
  for (int l = 0; l < MB_VL; l++) {
    const long column = first + mb_min_long(l, columns - 1);
    by[l] = mb_nbits_scale(d, scale, column, k);
    center[l] = mb_nbits_zero(d, zero, column, k);
  }
}

/* Blocks k0 .. k0+kn-1 of the columns from `first` on as floats: the model's own dequantization. */
MB_INLINE void mb_nbits_unpack(const mb_nbits *d, const uint8_t *b, const void *scale, const void *zero, long first,
                               long columns, long k0, long kn, float *w) {
  const long words = kn * d->blob / 4, plane = kn * d->blob;
  float by[MB_VL], center[MB_VL];
  for (long q = 0; q < words; q += MB_VL) {
    mb_vi v[MB_VL];
    mb_nbits_words(d, b + first * mb_nbits_plane(d) + k0 * d->blob + 4 * q, columns, words - q, v);
    MB_NOUNROLL for (int i = 0; i < MB_VL && q + i < words; i++) {
      if ((q + i) * 4 % d->blob == 0)
        mb_nbits_numbers(d, scale, zero, first, columns, k0 + (q + i) * 4 / d->blob, by, center);
      MB_UNROLL for (int s = 0; s < 8; s += d->bits) MB_UNROLL for (int c = 0; c < 4; c++) {
        const mb_vi bits = (mb_vi)((mb_vu)v[i] >> (uint32_t)(8 * c + s)) & ((1 << d->bits) - 1);
        mb_store(w + (s / d->bits * plane + 4 * (q + i) + c) * MB_PANEL_NR,
                 (__builtin_convertvector(bits, mb_vf) - mb_load(center)) * mb_load(by));
      }
    }
  }
}

/* All blocks as words, and their numbers. */
MB_INLINE void mb_nbits_unpack_bytes(const mb_nbits *d, const uint8_t *b, const void *scale, const void *zero, long first,
                                     long columns, int32_t *w, float *numbers) {
  const long words = mb_nbits_plane(d) / 4, per = d->blob / 4;
  for (long q = 0; q < words; q += MB_VL) {
    mb_vi v[MB_VL];
    mb_nbits_words(d, b + first * mb_nbits_plane(d) + 4 * q, columns, words - q, v);
    MB_NOUNROLL for (int i = 0; i < MB_VL && q + i < words; i++) {
      const long k = (q + i) / per, at = (q + i) % per;
      MB_UNROLL for (int p = 0; p < 8 / d->bits; p++)
        mb_istore(w + ((k * (8 / d->bits) + p) * per + at) * MB_PANEL_NR, mb_nbits_bits(d, v[i], p));
    }
  }
  for (long k = 0; k < d->blocks; k++) {
    float by[MB_VL], center[MB_VL];
    mb_nbits_numbers(d, scale, zero, first, columns, k, by, center);
    mb_store(numbers + 2 * k * MB_PANEL_NR, mb_load(by));
    mb_store(numbers + (2 * k + 1) * MB_PANEL_NR, mb_load(by) * (mb_load(center) - (float)mb_nbits_flip(d)));
  }
}

/* -- tiles -------------------------------------------------------------------------------------- */
/* The first n columns of a tile; a whole panel has all. */
MB_INLINE void mb_nbits_put(const mb_nbits *d, int rows, mb_vf acc[MB_MAX_MR][MB_PANEL_NV], float *y, long n) {
  if (n >= MB_PANEL_NR) {
    MB_UNROLL for (int r = 0; r < rows; r++)
      MB_UNROLL for (int j = 0; j < MB_PANEL_NV; j++) mb_store(y + r * d->n + j * MB_VL, acc[r][j]);
    return;
  }
  float t[MB_MAX_MR][MB_PANEL_NR];
  MB_UNROLL for (int r = 0; r < rows; r++)
    MB_UNROLL for (int j = 0; j < MB_PANEL_NV; j++) mb_store(t[r] + j * MB_VL, acc[r][j]);
  MB_NOUNROLL for (int r = 0; r < rows; r++)
    MB_NOUNROLL for (long c = 0; c < n; c++) y[r * d->n + c] = t[r][c];
}

MB_INLINE void mb_nbits_resume(const mb_nbits *d, int rows, mb_vf acc[MB_MAX_MR][MB_PANEL_NV], const float *y, long n) {
  if (n >= MB_PANEL_NR) {
    MB_UNROLL for (int r = 0; r < rows; r++)
      MB_UNROLL for (int j = 0; j < MB_PANEL_NV; j++) acc[r][j] = mb_load(y + r * d->n + j * MB_VL);
    return;
  }
  float t[MB_MAX_MR][MB_PANEL_NR] = {{0}};
  MB_NOUNROLL for (int r = 0; r < rows; r++)
    MB_NOUNROLL for (long c = 0; c < n; c++) t[r][c] = y[r * d->n + c];
  MB_UNROLL for (int r = 0; r < rows; r++)
    MB_UNROLL for (int j = 0; j < MB_PANEL_NV; j++) acc[r][j] = mb_load(t[r] + j * MB_VL);
}

/* kn blocks of rows of x times a panel, n columns of it; `more`: y has the sum of the blocks before. */
MB_INLINE void mb_nbits_float_body(const mb_nbits *d, int rows, const float *x, const float *w, float *y, long kn,
                                   int more, long n) {
  mb_vf acc[MB_MAX_MR][MB_PANEL_NV] = {{{0}}};
  if (more) mb_nbits_resume(d, rows, acc, y, n);
  const long row = mb_nbits_row(d);
  for (int p = 0; p < 8 / d->bits; p++, x += mb_nbits_plane(d))
    MB_UNROLL2 for (long k = 0; k < kn * d->blob; k++, w += MB_PANEL_NR) {
      mb_vf b[MB_PANEL_NV];
      MB_UNROLL for (int j = 0; j < MB_PANEL_NV; j++) b[j] = mb_load(w + j * MB_VL);
      MB_UNROLL for (int r = 0; r < rows; r++) {
        const mb_vf a = mb_bcast(x[r * row + k]);
        MB_UNROLL for (int j = 0; j < MB_PANEL_NV; j++) acc[r][j] = mb_mac(a, b[j], acc[r][j]);
      }
    }
  mb_nbits_put(d, rows, acc, y, n);
}

/* x_scale and x_sum of block k of row r lie at [r * blocks + k]. */
MB_INLINE void mb_nbits_byte_body(const mb_nbits *d, int rows, const int8_t *x, const float *x_scale,
                                  const float *x_sum, const int32_t *w, const float *numbers, float *y, long n) {
  const long row = mb_nbits_row(d);
  mb_vf total[MB_MAX_MR][MB_PANEL_NV] = {{{0}}};
  for (long k = 0; k < d->blocks; k++, numbers += 2 * MB_PANEL_NR) {
    mb_vi acc[MB_BYTE_ROWS][MB_PANEL_NV] = {{{0}}};
    for (int p = 0; p < 8 / d->bits; p++) {
      const int8_t *a = x + p * mb_nbits_plane(d) + k * d->blob;
      for (long q = 0; q < d->blob / 4; q++, w += MB_PANEL_NR) {
        mb_vi b[MB_PANEL_NV];
        MB_UNROLL for (int j = 0; j < MB_PANEL_NV; j++) b[j] = mb_iload(w + j * MB_VL);
        MB_UNROLL for (int r = 0; r < rows; r++) {
          const mb_vi v = mb_ibcast(mb_iconv_x((const char *)a + r * row + 4 * q));
          MB_UNROLL for (int j = 0; j < MB_PANEL_NV; j++) acc[r][j] = mb_dot4(acc[r][j], b[j], v);
        }
      }
    }
    MB_UNROLL for (int j = 0; j < MB_PANEL_NV; j++) {
      const mb_vf by = mb_load(numbers + j * MB_VL), center = mb_load(numbers + MB_PANEL_NR + j * MB_VL);
      MB_UNROLL for (int r = 0; r < rows; r++) {
        const mb_vf sum = __builtin_convertvector(acc[r][j], mb_vf) * by;
        total[r][j] = mb_fma(mb_bcast(x_scale[r * d->blocks + k]), sum, total[r][j]);
        total[r][j] = mb_fma(mb_bcast(-x_sum[r * d->blocks + k]), center, total[r][j]);
      }
    }
  }
  mb_nbits_put(d, rows, total, y, n);
}

/* -- the walk ----------------------------------------------------------------------------------- */
/* Floats of scratch of a thread; ops/nbits.py has the same formulas. */
MB_INLINE long mb_nbits_float_scratch(const mb_nbits *d) {
  return d->kc * d->blob * (8 / d->bits) * MB_PANEL_NR;
}
MB_INLINE long mb_nbits_byte_scratch(const mb_nbits *d) {
  return mb_max_long((mb_nbits_row(d) / 4 + 2 * d->blocks) * MB_PANEL_NR, mb_nbits_few_scratch(d));
}

typedef void mb_nbits_float_leaf(const float *x, const float *w, float *y, long kn, int more, long n);
typedef void mb_nbits_byte_leaf(const int8_t *x, const float *x_scale, const float *x_sum, const int32_t *w,
                                const float *numbers, float *y, long n);

MB_INLINE void mb_nbits_float_run(const mb_nbits *d, mb_nbits_float_leaf *whole, mb_nbits_float_leaf *rest,
                                  mb_nbits_float_leaf *one, long m, const float *x, const uint8_t *b, const void *scale,
                                  const void *zero, float *y, float *scratch, int tid, int nt) {
  if (m < MB_NBITS_MANY || d->blob % 4) {
    mb_nbits_few(d, m, x, b, scale, zero, y, tid, nt);
    return;
  }
  float *w = scratch + tid * mb_nbits_float_scratch(d);
  const long row = mb_nbits_row(d), panels = (d->n + MB_PANEL_NR - 1) / MB_PANEL_NR;
  long lo, hi;
  mb_share(panels, tid, nt, &lo, &hi);
  for (; lo < hi; lo++) {
    const long first = lo * MB_PANEL_NR, n = mb_min_long(d->n - first, MB_PANEL_NR);
    for (long k = 0; k < d->blocks; k += d->kc) {
      const long kn = mb_min_long(d->kc, d->blocks - k);
      for (long j = 0; j < n; j += MB_VL) mb_nbits_unpack(d, b, scale, zero, first + j, n - j, k, kn, w + j);
      long i = 0;
      for (; i + MB_PANEL_ROWS <= m; i += MB_PANEL_ROWS)
        whole(x + i * row + k * d->blob, w, y + i * d->n + first, kn, k > 0, n);
      for (; i + MB_PANEL_REST <= m; i += MB_PANEL_REST)
        rest(x + i * row + k * d->blob, w, y + i * d->n + first, kn, k > 0, n);
      for (; i < m; i++) one(x + i * row + k * d->blob, w, y + i * d->n + first, kn, k > 0, n);
    }
  }
}

MB_INLINE void mb_nbits_byte_run(const mb_nbits *d, mb_nbits_byte_leaf *whole, mb_nbits_byte_leaf *rest,
                                 mb_nbits_byte_leaf *one, long m, const int8_t *x, const float *x_scale,
                                 const float *x_sum, const uint8_t *b, const void *scale, const void *zero, float *y,
                                 float *scratch, int tid, int nt) {
  float *own = scratch + tid * mb_nbits_byte_scratch(d);
  if (m < MB_NBITS_BYTE_MANY) {
    mb_nbits_byte_few(d, m, x, x_scale, b, scale, zero, y, own, tid, nt);
    return;
  }
  int32_t *w = (int32_t *)own;
  float *numbers = own + mb_nbits_row(d) / 4 * MB_PANEL_NR;
  const long row = mb_nbits_row(d), panels = (d->n + MB_PANEL_NR - 1) / MB_PANEL_NR;
  long lo, hi;
  mb_share(panels, tid, nt, &lo, &hi);
  for (; lo < hi; lo++) {
    const long first = lo * MB_PANEL_NR, n = mb_min_long(d->n - first, MB_PANEL_NR);
    for (long j = 0; j < n; j += MB_VL) mb_nbits_unpack_bytes(d, b, scale, zero, first + j, n - j, w + j, numbers + j);
    long i = 0;
#define MB_BYTE_TILES(LEAF, ROWS)                                                                                     \
  for (; i + (ROWS) <= m; i += (ROWS))                                                                                \
    LEAF(x + i * row, x_scale + i * d->blocks, x_sum + i * d->blocks, w, numbers, y + i * d->n + first, n)
    MB_BYTE_TILES(whole, MB_BYTE_ROWS);
    MB_BYTE_TILES(rest, 2);
    MB_BYTE_TILES(one, 1);
#undef MB_BYTE_TILES
  }
}

#define MB_NBITS_LEAF(LEAF, D, ROWS)                                                                  \
  MB_LEAF void LEAF(const float *x, const float *w, float *y, long kn, int more, long n) {            \
    mb_nbits_float_body(&(D), ROWS, x, w, y, kn, more, n);                                            \
  }
#define MB_NBITS(NAME, D)                                                                             \
  MB_NBITS_LEAF(NAME##_whole, D, MB_PANEL_ROWS)                                                       \
  MB_NBITS_LEAF(NAME##_rest, D, MB_PANEL_REST)                                                        \
  MB_NBITS_LEAF(NAME##_one, D, 1)                                                                     \
  MB_INLINE void NAME(long m, const float *x, const uint8_t *b, const void *scale, const void *zero,  \
                      float *y, float *scratch, int tid, int nt) {                                    \
    mb_nbits_float_run(&(D), NAME##_whole, NAME##_rest, NAME##_one, m, x, b, scale, zero, y, scratch, \
                       tid, nt);                                                                      \
  }
#define MB_NBITS_BYTE_LEAF(LEAF, D, ROWS)                                                             \
  MB_LEAF void LEAF(const int8_t *x, const float *x_scale, const float *x_sum, const int32_t *w,      \
                    const float *numbers, float *y, long n) {                                         \
    mb_nbits_byte_body(&(D), ROWS, x, x_scale, x_sum, w, numbers, y, n);                              \
  }
#define MB_NBITS_BYTES(NAME, D)                                                                       \
  MB_NBITS_BYTE_LEAF(NAME##_whole, D, MB_BYTE_ROWS)                                                   \
  MB_NBITS_BYTE_LEAF(NAME##_rest, D, 2)                                                               \
  MB_NBITS_BYTE_LEAF(NAME##_one, D, 1)                                                                \
  MB_INLINE void NAME(long m, const int8_t *x, const float *x_scale, const float *x_sum,              \
                      const uint8_t *b, const void *scale, const void *zero, float *y,                \
                      float *scratch, int tid, int nt) {                                              \
    mb_nbits_byte_run(&(D), NAME##_whole, NAME##_rest, NAME##_one, m, x, x_scale, x_sum, b, scale,    \
                      zero, y, scratch, tid, nt);                                                     \
  }

#endif
