/* Depthwise convolution of bytes, or int16, by bytes, NHWC, summed exactly in int32: vectors of channels.
 *
 *   static const mb_idwconv D = { .batch = 1, ... };
 *   MB_IDWCONV(dw3, D, dw3_epi)
 *   dw3(at, x, w, zx, y, tid, nt);
 *
 * Weights are signed bytes [KH][KW][C]. Taps outside the image are left out, which is what padding with the
 * zero point means. A tile is px pixels of a row by one vector; the last, partial vector is shifted as in
 * mb/tile.h. Epilogues are those of mb/iconv.h.
 */
#ifndef MB_IDWCONV_H
#define MB_IDWCONV_H

#include "mb/iconv.h"

typedef struct {
  long batch, h, w, c, oh, ow, kh, kw, sh, sw, dh, dw, pt, pl;
  long x_batch, x_row, x_pix;         /* strides in bytes */
  long y_batch, y_row, y_pix;         /* in elements */
  int x_size, y_size, x_signed, zx, zx_given, zw;
  int px;                             /* pixels of a tile, at most MB_MAX_PX */
  int epi_loop;
} mb_idwconv;

enum { MB_MAX_PX = 8 };

/* The first n lanes from memory that ends behind them; n is a constant where this is inlined, so few loads do it. */
MB_INLINE mb_vi mb_idw_few(int is_signed, const void *p, long n) {
  mb_vb b = {0};
  __builtin_memcpy(&b, p, (unsigned long)n);
  const mb_vi v = __builtin_convertvector(b, mb_vi);
  return is_signed ? v : v & 0xff;
}

MB_INLINE mb_vi mb_idw_few16(int is_signed, const void *p, long n) {
  mb_v16u b = {0};
  __builtin_memcpy(&b, p, 2 * (unsigned long)n);
  const mb_vi v = __builtin_convertvector(b, mb_vi);
  return is_signed ? v : v & 0xffff;
}

MB_INLINE mb_vi mb_idw_x(const mb_idwconv *d, const uint8_t *x) {
  if (d->x_size == 2) {
    if (d->c < MB_VL) return mb_idw_few16(d->x_signed, x, d->c);
    if (d->x_signed) return __builtin_convertvector(*(const mb_v16u *)x, mb_vi);
    return __builtin_convertvector(*(const mb_vu16u *)x, mb_vi);
  }
  if (d->c < MB_VL) return mb_idw_few(d->x_signed, x, d->c);
  if (d->x_signed) return __builtin_convertvector(*(const mb_v8u *)x, mb_vi);
  return __builtin_convertvector(*(const mb_vu8u *)x, mb_vi);
}

/* Products of numbers of nine bits: of their lower halves, the upper ones of f being 0 where halves are multiplied.
 * Less its zero point, x of 16 bits has 17. */
MB_INLINE mb_vi mb_idw_f(const mb_idwconv *d, mb_vi w) {
#ifdef MB_MADD
  if (d->x_size == 1) return w & 0xffff;
#endif
  (void)d;
  return w;
}
MB_INLINE mb_vi mb_idw_mul(const mb_idwconv *d, mb_vi x, mb_vi f) {
#ifdef MB_MADD
  if (d->x_size == 1) return (mb_vi)MB_MADD(x, f);
#endif
  (void)d;
  return mb_mul(x, f);
}

MB_INLINE mb_vi mb_idw_w(const mb_idwconv *d, const int8_t *w) {
  if (d->c < MB_VL) return mb_idw_few(1, w, d->c);
  const mb_vb b = *(const mb_v8u *)w;
  return __builtin_convertvector(b, mb_vi);
}

/* Sums of pixels at.j .. at.j+px-1 of output row `at.i`, channels from at.n on. */
MB_INLINE void mb_idw_sums(const mb_idwconv *d, int px, int inside, const uint8_t *x, const int8_t *w, int32_t zx,
                           mb_ix at, mb_vi acc[MB_MAX_PX]) {
  MB_UNROLL for (int p = 0; p < px; p++) acc[p] = (mb_vi){0};
  for (long r = 0; r < d->kh; r++) {
    const long row = at.i * d->sh - d->pt + r * d->dh;
    if (row < 0 || row >= d->h) continue;
    const uint8_t *pixels = x + row * d->x_row + at.n * d->x_size;
    for (long s = 0; s < d->kw; s++) {
      const mb_vi f = mb_idw_f(d, mb_idw_w(d, w + (r * d->kw + s) * d->c + at.n) - d->zw);
      MB_UNROLL for (int p = 0; p < px; p++) {
        const long col = (at.j + p) * d->sw - d->pl + s * d->dw;
        if (inside || (col >= 0 && col < d->w))
          acc[p] = mb_add(acc[p], mb_idw_mul(d, mb_idw_x(d, pixels + col * d->x_pix) - zx, f));
      }
    }
  }
}

/* The last n channels are stored. */
MB_INLINE void mb_idw_tile(const mb_idwconv *d, int px, int inside, const void *ctx, const uint8_t *x,
                           const int8_t *w, char *y, int32_t zx, mb_ix at, int n, mb_epi_vi epi) {
  mb_vi acc[MB_MAX_PX];
  mb_idw_sums(d, px, inside, x, w, zx, at, acc);
  MB_UNROLL for (int p = 0; p < px; p++) acc[p] = epi(ctx, acc[p], (mb_ix){at.b, at.i, at.j + p, at.n});
  MB_UNROLL for (int p = 0; p < px; p++) mb_iput_last(d->y_size, y + p * d->y_pix * d->y_size, acc[p], n);
}

/* Fewer channels than lanes: one by one what may read an array of them. All of it runs before anything is stored:
 * it may read the very place that it writes. */
MB_INLINE void mb_idw_small(const mb_idwconv *d, int px, int inside, const void *ctx, const uint8_t *x,
                            const int8_t *w, char *y, int32_t zx, mb_ix at, mb_epi_i epi) {
  mb_vi acc[MB_MAX_PX];
  int32_t out[MB_MAX_PX][MB_VL];
  mb_idw_sums(d, px, inside, x, w, zx, at, acc);
  MB_UNROLL for (int p = 0; p < px; p++) mb_istore(out[p], acc[p]);
  MB_UNROLL for (int p = 0; p < px; p++)
    MB_NOUNROLL for (long c = 0; c < d->c; c++) out[p][c] = epi(ctx, out[p][c], (mb_ix){at.b, at.i, at.j + p, c});
  MB_UNROLL for (int p = 0; p < px; p++)
    for (long c = 0; c < d->c; c++) mb_iput(d->y_size, y + p * d->y_pix * d->y_size, c, out[p][c]);
}

typedef void mb_idw_leaf(const void *ctx, const uint8_t *x, const int8_t *w, char *y, int32_t zx, mb_ix at, int n);

MB_INLINE void mb_idw_row(const mb_idwconv *d, mb_idw_leaf *whole, mb_idw_leaf *edge, mb_idw_leaf *one,
                          const void *ctx, const uint8_t *x, const int8_t *w, char *y, int32_t zx, long b, long i) {
  for (long c = 0; c < d->c; c += MB_VL) {
    const long left = d->c - c, first = left >= MB_VL || d->c < MB_VL ? c : d->c - MB_VL;
    const int n = (int)mb_min_long(left, MB_VL);
    for (long j = 0; j < d->ow;) {
      const long px = j + d->px <= d->ow ? d->px : 1, lo = j * d->sw - d->pl;
      const int inside = lo >= 0 && lo + (px - 1) * d->sw + (d->kw - 1) * d->dw < d->w;
      (px == 1 ? one : inside ? whole : edge)(ctx, x, w, y + (j * d->y_pix + first) * d->y_size, zx,
                                              (mb_ix){b, i, j, first}, n);
      j += px;
    }
  }
}

MB_INLINE void mb_idw_run(const mb_idwconv *d, mb_idw_leaf *whole, mb_idw_leaf *edge, mb_idw_leaf *one,
                          const void *ctx, const void *x, const void *w, const void *zx, void *y, int tid, int nt) {
  const int32_t zero = d->zx_given ? mb_iload_one(d->x_size, d->x_signed, zx) : d->zx;
  long lo, hi;
  mb_share(d->batch * d->oh, tid, nt, &lo, &hi);
  for (long at = lo; at < hi; at++) {
    const long b = at / d->oh, i = at % d->oh;
    mb_idw_row(d, whole, edge, one, ctx, (const uint8_t *)x + b * d->x_batch, (const int8_t *)w,
               (char *)y + (b * d->y_batch + i * d->y_row) * d->y_size, zero, b, i);
  }
}

#define MB_IDW_LEAF(LEAF, D, EPI, PX, INSIDE)                                                               \
  MB_LEAF void LEAF(const void *ctx, const uint8_t *x, const int8_t *w, char *y, int32_t zx, mb_ix at, int n) { \
    if ((D).c < MB_VL) mb_idw_small(&(D), PX, INSIDE, ctx, x, w, y, zx, at, EPI##_s);                       \
    else if (n == MB_VL) mb_idw_tile(&(D), PX, INSIDE, ctx, x, w, y, zx, at, MB_VL, EPI##_v);               \
    else mb_idw_tile(&(D), PX, INSIDE, ctx, x, w, y, zx, at, (int)((D).c % MB_VL), EPI##_v);                \
  }
#define MB_IDWCONV(NAME, D, EPI)                                                                            \
  MB_IDW_LEAF(NAME##_inside, D, EPI, (D).px, 1)                                                             \
  MB_IDW_LEAF(NAME##_edge, D, EPI, (D).px, 0)                                                               \
  MB_IDW_LEAF(NAME##_one, D, EPI, 1, 0)                                                                     \
  MB_INLINE void NAME(const void *ctx, const void *x, const void *w, const void *zx, void *y, int tid, int nt) { \
    mb_idw_run(&(D), NAME##_inside, NAME##_edge, NAME##_one, ctx, x, w, zx, y, tid, nt);                    \
  }
/* Where the sizes are known when it runs: the descriptor is AT(ctx). */
#define MB_IDWCONV_OPEN_LEAF(LEAF, AT, EPI, PX, INSIDE)                                                     \
  MB_LEAF void LEAF(const void *ctx, const uint8_t *x, const int8_t *w, char *y, int32_t zx, mb_ix at, int n) { \
    const mb_idwconv d = AT(ctx);                                                                           \
    if (d.c < MB_VL) mb_idw_small(&d, PX, INSIDE, ctx, x, w, y, zx, at, EPI##_s);                           \
    else if (n == MB_VL) mb_idw_tile(&d, PX, INSIDE, ctx, x, w, y, zx, at, MB_VL, EPI##_v);                 \
    else mb_idw_tile(&d, PX, INSIDE, ctx, x, w, y, zx, at, (int)(d.c % MB_VL), EPI##_v);                    \
  }
#define MB_IDWCONV_OPEN(NAME, AT, EPI, PX)                                                                  \
  MB_IDWCONV_OPEN_LEAF(NAME##_inside, AT, EPI, PX, 1)                                                       \
  MB_IDWCONV_OPEN_LEAF(NAME##_edge, AT, EPI, PX, 0)                                                         \
  MB_IDWCONV_OPEN_LEAF(NAME##_one, AT, EPI, 1, 0)                                                           \
  MB_INLINE void NAME(const void *ctx, const void *x, const void *w, const void *zx, void *y, int tid, int nt) { \
    const mb_idwconv d = AT(ctx);                                                                           \
    mb_idw_run(&d, NAME##_inside, NAME##_edge, NAME##_one, ctx, x, w, zx, y, tid, nt);                      \
  }

#endif
