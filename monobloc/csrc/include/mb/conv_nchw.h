/* Convolution with few output channels, summed in float: NCHW, vectors along a row of pixels.
 *
 *   static const mb_conv_nchw D = { .batch = 1, ... };
 *   MB_CONV_NCHW(conv9, D, conv9_epi)
 *   conv9(&ctx, x, w, y, scratch, tid, nt);          w is ONNX's [OC][IC][KH][KW], unpacked
 *
 * With OC < MB_VL, vectors of channels would be part empty; here a tile is several output channels
 * by several vectors of one output row, and weights are the broadcast operand. So the lanes of an
 * epilogue lie along j, not n: ix = {batch, row, column of lane 0, channel}.
 *
 * Padded, strided or channels-last inputs go through scratch: [IC][rows][stride phases][columns], so that every
 * tap of a vector is one contiguous load whatever the stride. The last, partial vector of a row is
 * shifted left as in tile.h; rows shorter than a vector are computed whole and stored in part.
 * Scratch: max_threads * mb_conv_nchw_scratch(&D) floats.
 */
#ifndef MB_CONV_NCHW_H
#define MB_CONV_NCHW_H

#include "mb/tile.h"

typedef struct {
  long batch, h, w, ic, oh, ow, oc;
  long kh, kw, sh, sw, dh, dw, pt, pl;
  long x_batch, x_ch, x_row, x_pix;  /* strides in elements */
  long y_batch, y_ch, y_row;         /* pixels of a row of y are contiguous */
  int x_type, y_type;                /* MB_T_*; x other than float needs the copy */
  int nv, n_mid, nv_last;            /* a row is n_mid tiles of nv vectors and one of nv_last */
  int oc1, n1, oc2, n2;              /* channels: n1 tiles of oc1 and n2 of oc2 */
  long bh;                           /* output rows of a block */
  int copy, epi_loop;
} mb_conv_nchw;

typedef void mb_nchw_leaf(const void *ctx, const float *x, const float *w, void *y, long b,
                          long i, long j, long n);

/* Columns of one phase of a scratch row, rows, and floats of one thread (a multiple of 16).
 * tiles.py: conv_nchw_scratch is the same formula. */
MB_INLINE long mb_nchw_cols(const mb_conv_nchw *d) {
  return mb_max_long(d->ow, MB_VL) + (d->kw - 1) * d->dw / d->sw;
}
MB_INLINE long mb_nchw_rows(const mb_conv_nchw *d) {
  return (mb_min_long(d->bh, d->oh) - 1) * d->sh + (d->kh - 1) * d->dh + 1;
}
MB_INLINE long mb_conv_nchw_scratch(const mb_conv_nchw *d) {
  if (!d->copy) return 0;
  return (d->ic * mb_nchw_rows(d) * d->sw * mb_nchw_cols(d) + 15) / 16 * 16;
}

MB_INLINE long mb_nchw_row(const mb_conv_nchw *d) {
  return d->copy ? d->sw * mb_nchw_cols(d) : d->x_row;
}
MB_INLINE long mb_nchw_ch(const mb_conv_nchw *d) {
  return d->copy ? mb_nchw_rows(d) * mb_nchw_row(d) : d->x_ch;
}
MB_INLINE long mb_nchw_tap(const mb_conv_nchw *d, long s) {
  if (!d->copy) return s * d->dw;
  return s * d->dw % d->sw * mb_nchw_cols(d) + s * d->dw / d->sw;
}

MB_INLINE void mb_nchw_sum(const mb_conv_nchw *d, mb_tile t, const float *x, const float *w,
                           mb_vf acc[MB_MAX_MR][MB_MAX_NV]) {
  mb_tile_zero(t, acc);
  for (long c = 0; c < d->ic; c++)
    for (long r = 0; r < d->kh; r++) {
      const float *row = x + c * mb_nchw_ch(d) + r * d->dh * mb_nchw_row(d);
      if (d->kw <= 3) {
        MB_UNROLL for (long s = 0; s < d->kw; s++)
          mb_tile_step(t, acc, w + s, row + mb_nchw_tap(d, s));
      } else {
        MB_NOUNROLL for (long s = 0; s < d->kw; s++)
          mb_tile_step(t, acc, w + s, row + mb_nchw_tap(d, s));
      }
      w += d->kw;
    }
}

MB_INLINE void mb_nchw_put(const mb_conv_nchw *d, void *y, long n, mb_vf v, int partial) {
  const int rem = (int)(d->ow % MB_VL);
  void *q = mb_at_out(d->y_type, y, n);
  if (!partial || !rem) mb_put_v(d->y_type, q, 0, v);
  else if (d->ow < MB_VL) mb_put_n(d->y_type, q, v, rem);
  else mb_put_last(d->y_type, q, v, rem);
}

MB_INLINE void mb_nchw_finish_small(const mb_conv_nchw *d, int ocs, void *y, const void *ctx,
                                    mb_vf acc[MB_MAX_MR][MB_MAX_NV], mb_epi_f epi, mb_ix at) {
  float tmp[MB_MAX_MR][MB_VL];
  MB_UNROLL for (int p = 0; p < ocs; p++) mb_store(tmp[p], acc[p][0]);
  MB_NOUNROLL for (int p = 0; p < ocs; p++) {
    float out[MB_VL];
    for (int l = 0; l < d->ow; l++)
      out[l] = epi(ctx, tmp[p][l], (mb_ix){at.b, at.i, at.j + l, at.n + p});
    for (int l = 0; l < d->ow; l++) mb_put(d->y_type, y, p * d->y_ch + l, out[l]);
  }
}

/* The body of one leaf: ocs channels by nv vectors; the last tile of a row ends with its end. */
MB_INLINE void mb_nchw_body(const mb_conv_nchw *d, int ocs, int nv, int last, const void *ctx,
                            const float *x, const float *w, void *y, mb_ix at, mb_epi_vf epi_v,
                            mb_epi_f epi_s) {
  const int rem = (int)(d->ow % MB_VL), shift = last && rem && d->ow >= MB_VL ? MB_VL - rem : 0;
  mb_vf acc[MB_MAX_MR][MB_MAX_NV];
  mb_tile t = {.mr = ocs, .wrap = ocs ? ocs : 1, .xp = d->ic * d->kh * d->kw, .nv = nv,
               .rem = shift ? rem : MB_VL, .b_kind = MB_B_PLAIN};
  mb_nchw_sum(d, t, x, w, acc);
  if (d->ow < MB_VL) {
    mb_nchw_finish_small(d, ocs, y, ctx, acc, epi_s, at);
    return;
  }
  if (d->epi_loop) {
    float tmp[MB_MAX_MR][MB_MAX_NV][MB_VL];
    MB_UNROLL for (int p = 0; p < ocs; p++)
      MB_UNROLL for (int j = 0; j < nv; j++) mb_store(tmp[p][j], acc[p][j]);
    MB_NOUNROLL for (int p = 0; p < ocs; p++) MB_UNROLL for (int j = 0; j < nv; j++) {
      mb_ix ix = {at.b, at.i, at.j + mb_tile_col(t, j), at.n + p};
      mb_nchw_put(d, y, p * d->y_ch + j * MB_VL, epi_v(ctx, mb_load(tmp[p][j]), ix),
                  last && j == nv - 1);
    }
    return;
  }
  MB_UNROLL for (int p = 0; p < ocs; p++) MB_UNROLL for (int j = 0; j < nv; j++)
    acc[p][j] = epi_v(ctx, acc[p][j], (mb_ix){at.b, at.i, at.j + mb_tile_col(t, j), at.n + p});
  MB_UNROLL for (int p = 0; p < ocs; p++) MB_UNROLL for (int j = 0; j < nv; j++)
    mb_nchw_put(d, y, p * d->y_ch + j * MB_VL, acc[p][j], last && j == nv - 1);
}

MB_INLINE long mb_nchw_ceil(long a, long b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }

/* One phase of one scratch row: input columns f - pl, f - pl + sw, ..., zeros outside. */
MB_INLINE void mb_nchw_fill_row(const mb_conv_nchw *d, const void *x, long f, float *s) {
  const long cols = mb_nchw_cols(d);
  const long lo = mb_min_long(cols, mb_max_long(0, mb_nchw_ceil(d->pl - f, d->sw)));
  const long hi = mb_max_long(lo, mb_min_long(cols, mb_nchw_ceil(d->w + d->pl - f, d->sw)));
  const void *p = mb_at(d->x_type, x, (f - d->pl) * d->x_pix);
  for (long q = 0; q < lo; q++) s[q] = 0;
  if (d->sw * d->x_pix == 1)
    for (long q = lo; q < hi; q++) s[q] = mb_get(d->x_type, p, q);
  else
    for (long q = lo; q < hi; q++) s[q] = mb_get(d->x_type, p, q * d->sw * d->x_pix);
  for (long q = hi; q < cols; q++) s[q] = 0;
}

/* A channels-last input (x_ch = 1): one pass over its pixels, each channel to its own plane. */
MB_INLINE void mb_nchw_fill_pixels(const mb_conv_nchw *d, const void *x, float *s) {
  const long cols = mb_nchw_cols(d), ch = mb_nchw_ch(d);
  for (long f = 0; f < d->sw; f++)
    for (long q = 0; q < cols; q++) {
      long col = q * d->sw + f - d->pl;
      const void *p = mb_at(d->x_type, x, col * d->x_pix);
      float *to = s + f * cols + q;
      if (col < 0 || col >= d->w)
        for (long c = 0; c < d->ic; c++) to[c * ch] = 0;
      else
        for (long c = 0; c < d->ic; c++) to[c * ch] = mb_get(d->x_type, p, c);
    }
}

MB_INLINE void mb_nchw_fill(const mb_conv_nchw *d, const void *x, long first_row, long rows,
                            float *scratch) {
  const long cols = mb_nchw_cols(d);
  if (d->x_ch == 1 && d->ic > 1)
    for (long r = mb_max_long(0, -first_row); r < mb_min_long(rows, d->h - first_row); r++)
      mb_nchw_fill_pixels(d, mb_at(d->x_type, x, (first_row + r) * d->x_row), scratch + r * mb_nchw_row(d));
  for (long c = 0; c < d->ic; c++)
    for (long r = 0; r < rows; r++) {
      float *s = scratch + c * mb_nchw_ch(d) + r * mb_nchw_row(d);
      long row = first_row + r;
      if (row < 0 || row >= d->h)
        for (long q = 0; q < d->sw * cols; q++) s[q] = 0;
      else if (d->x_ch != 1 || d->ic == 1)
        for (long f = 0; f < d->sw; f++)
          mb_nchw_fill_row(d, mb_at(d->x_type, x, c * d->x_ch + row * d->x_row), f, s + f * cols);
    }
}

/* One output row, all channels. x: the first input row under it. */
MB_INLINE void mb_nchw_line(const mb_conv_nchw *d, mb_nchw_leaf *m1, mb_nchw_leaf *m2,
                            mb_nchw_leaf *l1, mb_nchw_leaf *l2, const void *ctx, const float *x,
                            const float *w, void *y, long b, long i) {
  const long taps = d->ic * d->kh * d->kw, step = (long)d->nv * MB_VL;
  for (long q = 0; q < d->n1 + d->n2; q++) {
    long n = q < d->n1 ? q * d->oc1 : (long)d->n1 * d->oc1 + (q - d->n1) * d->oc2;
    const float *wn = w + n * taps;
    void *yn = mb_at_out(d->y_type, y, n * d->y_ch);
    for (long t = 0; t < d->n_mid; t++) {
      if (q < d->n1) m1(ctx, x + t * step, wn, mb_at_out(d->y_type, yn, t * step), b, i, t * step, n);
      else m2(ctx, x + t * step, wn, mb_at_out(d->y_type, yn, t * step), b, i, t * step, n);
    }
    long j = d->n_mid * step;
    if (q < d->n1) l1(ctx, x + j, wn, mb_at_out(d->y_type, yn, j), b, i, j, n);
    else l2(ctx, x + j, wn, mb_at_out(d->y_type, yn, j), b, i, j, n);
  }
}

MB_INLINE void mb_nchw_run(const mb_conv_nchw *d, mb_nchw_leaf *m1, mb_nchw_leaf *m2,
                           mb_nchw_leaf *l1, mb_nchw_leaf *l2, const void *ctx, const void *x,
                           const float *w, void *y, float *scratch, int tid, int nt) {
  long lo, hi;
  mb_share(d->batch * d->oh, tid, nt, &lo, &hi);
  scratch += tid * mb_conv_nchw_scratch(d);
  while (lo < hi) {
    long b = lo / d->oh, i0 = lo % d->oh;
    long i1 = mb_min_long(mb_min_long(i0 + d->bh, d->oh), i0 + hi - lo);
    const void *image = mb_at(d->x_type, x, b * d->x_batch);
    const float *rows = (const float *)image + i0 * d->sh * d->x_row;
    if (d->copy) {
      mb_nchw_fill(d, image, i0 * d->sh - d->pt, (i1 - i0 - 1) * d->sh + (d->kh - 1) * d->dh + 1,
                   scratch);
      rows = scratch;
    }
    for (long i = i0; i < i1; i++)
      mb_nchw_line(d, m1, m2, l1, l2, ctx, rows + (i - i0) * d->sh * mb_nchw_row(d), w,
                   mb_at_out(d->y_type, y, b * d->y_batch + i * d->y_row), b, i);
    lo += i1 - i0;
  }
}

#define MB_NCHW_LEAF(LEAF, D, EPI, OCS, NV, LAST)                                                 \
  MB_LEAF void LEAF(const void *ctx, const float *x, const float *w, void *y, long b, long i,     \
                    long j, long n) {                                                             \
    mb_nchw_body(&(D), OCS, NV, LAST, ctx, x, w, y, (mb_ix){b, i, j, n}, EPI##_v, EPI##_s);       \
  }
#define MB_CONV_NCHW(NAME, D, EPI)                                                                \
  MB_NCHW_LEAF(NAME##_mid1, D, EPI, (D).oc1, (D).nv, 0)                                           \
  MB_NCHW_LEAF(NAME##_mid2, D, EPI, (D).oc2, (D).nv, 0)                                           \
  MB_NCHW_LEAF(NAME##_last1, D, EPI, (D).oc1, (D).nv_last, 1)                                     \
  MB_NCHW_LEAF(NAME##_last2, D, EPI, (D).oc2, (D).nv_last, 1)                                     \
  MB_INLINE void NAME(const void *ctx, const void *x, const float *w, void *y, float *scratch,    \
                      int tid, int nt) {                                                          \
    mb_nchw_run(&(D), NAME##_mid1, NAME##_mid2, NAME##_last1, NAME##_last2, ctx, x, w, y,         \
                scratch, tid, nt);                                                                \
  }

#endif
