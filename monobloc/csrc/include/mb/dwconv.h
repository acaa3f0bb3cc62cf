/* Depthwise convolution, summed in float, NHWC, weights [KH][KW][C*multiplier].
 *
 *   static const mb_dwconv D = { .batch = 1, ... };
 *   MB_DWCONV(dw3, D, dw3_epi)            defines the leaves and dw3(...)
 *   dw3(&ctx, x, w, y, tid, nt);
 *
 * ix = {batch, output row, output column, channel}. A tile is up to xb output pixels of one row by
 * one vector of channels; each input pixel is loaded once per kernel row and feeds all outputs it
 * reaches. No scratch: rows outside the image shorten the loop over kernel rows; columns outside
 * are known at compile time, since the first and the last tile of a row are leaves of their own.
 * The vector with the last C % MB_VL channels is shifted as in tile.h.
 */
#ifndef MB_DWCONV_H
#define MB_DWCONV_H

#include "mb/tile.h"

enum { MB_DW_MAX_XB = 28, MB_DW_MAX_KW = 7 };
enum { MB_DW_FIRST, MB_DW_MID1, MB_DW_MID2, MB_DW_LAST };
enum { MB_SPLIT_DW_ROWS = 0, MB_SPLIT_DW_CHANNELS = 1 };

typedef struct {
  long batch, h, w, c, oh, ow;      /* c: output channels */
  long mult;                        /* output channel n reads input channel n / mult */
  long kh, kw, sh, sw, dh, dw, pt, pl;
  long x_batch, x_row, x_pix, y_batch, y_row, y_pix;
  int x_type, w_type, y_type;       /* MB_T_*; y is float or a half */
  int xb1, n1, xb2, n2;             /* n1 tiles of xb1 pixels and n2 of xb2 are exactly ow */
  int split;
  int epi_loop;                     /* the epilogue is long: keep it once */
} mb_dwconv;

/* One output row of one thread: kernel rows [r0, r1) are inside, vectors [v0, v1) are ours. */
typedef struct {
  const void *ctx, *x, *w;
  void *y;
  long b, i, r0, r1, v0, v1;
} mb_dw_row;

typedef void mb_dw_leaf(const mb_dw_row *k, long j0);

MB_INLINE long mb_ceil_div(long a, long b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }

/* Taps of one axis that lie inside [0, size): first, and one behind the last. */
MB_INLINE long mb_tap_lo(long origin, long dil) { return mb_max_long(0, mb_ceil_div(-origin, dil)); }
MB_INLINE long mb_tap_hi(long origin, long dil, long size, long taps) {
  return mb_max_long(0, mb_min_long(taps, mb_ceil_div(size - origin, dil)));
}

/* Sum of xb pixels from output column j0. Checked tiles have a constant j0. */
MB_INLINE void mb_dw_sum(const mb_dwconv *d, int xb, int checked, const mb_dw_row *k, long j0,
                         long c, mb_vf *acc) {
  const long span = (xb - 1) * d->sw + (d->kw - 1) * d->dw + 1, left = j0 * d->sw - d->pl;
  MB_UNROLL for (int i = 0; i < xb; i++) acc[i] = mb_zero();
  for (long r = k->r0; r < k->r1; r++) {
    const long row = k->i * d->sh - d->pt + r * d->dh;
    const void *x = mb_at(d->x_type, k->x, row * d->x_row + left * d->x_pix + c);
    const void *w = mb_at(d->w_type, k->w, r * d->kw * d->c + c);
    mb_vf tap[MB_DW_MAX_KW];
    MB_UNROLL for (int s = 0; s < d->kw; s++) tap[s] = mb_get_v(d->w_type, w, s * d->c);
    MB_UNROLL for (int q = 0; q < span; q++) {
      if (checked && (left + q < 0 || left + q >= d->w)) continue;
      mb_vf v = mb_get_v(d->x_type, x, q * d->x_pix);
      MB_UNROLL for (int s = 0; s < d->kw; s++) {
        const long at = q - s * d->dw;
        if (at >= 0 && at % d->sw == 0 && at / d->sw < xb)
          acc[at / d->sw] = mb_mac(v, tap[s], acc[at / d->sw]);
      }
    }
  }
}

MB_INLINE void mb_dw_put(const mb_dwconv *d, void *y, mb_vf v, int rem) {
  if (rem == MB_VL) mb_put_v(d->y_type, y, 0, v);
  else mb_put_last(d->y_type, y, v, rem);
}

MB_INLINE void mb_dw_finish_loop(const mb_dwconv *d, int xb, const mb_dw_row *k, long j0, long v,
                                 int rem, const mb_vf *acc, mb_epi_vf epi) {
  float tmp[MB_DW_MAX_XB][MB_VL];
  void *y = mb_at_out(d->y_type, k->y, k->i * d->y_row + j0 * d->y_pix + v * MB_VL);
  MB_UNROLL for (int i = 0; i < xb; i++) mb_store(tmp[i], acc[i]);
  MB_NOUNROLL for (int i = 0; i < xb; i++) {
    mb_ix ix = {k->b, k->i, j0 + i, v * MB_VL - (MB_VL - rem)};
    mb_vf out = epi(k->ctx, mb_load(tmp[i]), ix);
    mb_dw_put(d, mb_at_out(d->y_type, y, i * d->y_pix), out, rem);
  }
}

MB_INLINE void mb_dw_vector(const mb_dwconv *d, int xb, int checked, const mb_dw_row *k, long j0,
                            long v, int rem, mb_epi_vf epi) {
  mb_vf acc[MB_DW_MAX_XB];
  const long c = v * MB_VL - (MB_VL - rem);
  mb_dw_sum(d, xb, checked, k, j0, c, acc);
  if (d->epi_loop) {
    mb_dw_finish_loop(d, xb, k, j0, v, rem, acc, epi);
    return;
  }
  MB_UNROLL for (int i = 0; i < xb; i++)
    acc[i] = epi(k->ctx, acc[i], (mb_ix){k->b, k->i, j0 + i, c});
  void *y = mb_at_out(d->y_type, k->y, k->i * d->y_row + j0 * d->y_pix + v * MB_VL);
  MB_UNROLL for (int i = 0; i < xb; i++) mb_dw_put(d, mb_at_out(d->y_type, y, i * d->y_pix), acc[i], rem);
}

/* The body of one leaf: all our channels of one tile of pixels. */
MB_INLINE void mb_dw_body(const mb_dwconv *d, int kind, const mb_dw_row *k, long j0,
                          mb_epi_vf epi) {
  const int last = d->n2 ? d->xb2 : d->xb1;
  const int xb = kind == MB_DW_LAST ? last : kind == MB_DW_MID2 ? d->xb2 : d->xb1;
  const int checked = kind == MB_DW_FIRST || kind == MB_DW_LAST;
  const int rem = (int)(d->c % MB_VL);
  const long full = d->c / MB_VL;
  if (kind == MB_DW_FIRST) j0 = 0;
  if (kind == MB_DW_LAST) j0 = d->ow - last;
  for (long v = k->v0; v < mb_min_long(k->v1, full); v++)
    mb_dw_vector(d, xb, checked, k, j0, v, MB_VL, epi);
  if (rem && k->v1 > full) mb_dw_vector(d, xb, checked, k, j0, full, rem, epi);
}

/* Any shape, one element at a time: multipliers, fewer channels than lanes, very wide kernels. */
MB_INLINE void mb_dw_any(const mb_dwconv *d, const mb_dw_row *k, mb_epi_f epi) {
  for (long j = 0; j < d->ow; j++) {
    const long left = j * d->sw - d->pl, top = k->i * d->sh - d->pt;
    const long s0 = mb_tap_lo(left, d->dw), s1 = mb_tap_hi(left, d->dw, d->w, d->kw);
    for (long n = k->v0 * MB_VL; n < mb_min_long(k->v1 * MB_VL, d->c); n++) {
      float acc = 0;
      for (long r = k->r0; r < k->r1; r++)
        for (long s = s0; s < s1; s++)
          acc = mb_mac(mb_get(d->x_type, k->x, (top + r * d->dh) * d->x_row + (left + s * d->dw) * d->x_pix + n / d->mult),
                       mb_get(d->w_type, k->w, (r * d->kw + s) * d->c + n), acc);
      mb_put(d->y_type, k->y, k->i * d->y_row + j * d->y_pix + n,
             epi(k->ctx, acc, (mb_ix){k->b, k->i, j, n}));
    }
  }
}

/* Whether the tiles between the first and the last of a row never reach outside the image. */
MB_INLINE int mb_dw_tiled(const mb_dwconv *d) {
  const long last = d->n2 ? d->xb2 : d->xb1, tiles = d->n1 + d->n2;
  const long right = (d->ow - last - 1) * d->sw - d->pl + (d->kw - 1) * d->dw;
  return d->mult == 1 && d->c >= MB_VL && d->kw <= MB_DW_MAX_KW &&
         (tiles <= 2 || d->xb1 * d->sw >= d->pl) && (tiles <= 2 || right < d->w);
}

MB_INLINE void mb_dw_tiles(const mb_dwconv *d, mb_dw_leaf *first, mb_dw_leaf *mid1,
                           mb_dw_leaf *mid2, mb_dw_leaf *last, const mb_dw_row *k) {
  const long tiles = d->n1 + d->n2;
  first(k, 0);
  for (long t = 1; t < mb_min_long(d->n1, tiles - 1); t++) mid1(k, t * d->xb1);
  for (long t = d->n1; t < tiles - 1; t++) mid2(k, d->n1 * d->xb1 + (t - d->n1) * d->xb2);
  if (tiles > 1) last(k, 0);
}

/* Where the sizes are known when it runs: leaves for a few widths of a tile, the widest first, the last of which is
 * 1; `inside` is of the widest where no column is outside, the others look. */
typedef struct {
  const int *widths;
  mb_dw_leaf *inside, *const *edge;
} mb_dw_leaves;

MB_INLINE int mb_dw_open_tiled(const mb_dwconv *d) {
  return d->mult == 1 && d->c >= MB_VL && d->kw <= MB_DW_MAX_KW;
}

MB_INLINE void mb_dw_open_body(const mb_dwconv *d, int xb, int checked, const mb_dw_row *k, long j0, mb_epi_vf epi) {
  const int rem = (int)(d->c % MB_VL);
  const long full = d->c / MB_VL;
  if (!mb_dw_open_tiled(d)) return;
  for (long v = k->v0; v < mb_min_long(k->v1, full); v++) mb_dw_vector(d, xb, checked, k, j0, v, MB_VL, epi);
  if (rem && k->v1 > full) mb_dw_vector(d, xb, checked, k, j0, full, rem, epi);
}

MB_INLINE void mb_dw_open_tiles(const mb_dwconv *d, const mb_dw_leaves *l, const mb_dw_row *k) {
  const long span = (l->widths[0] - 1) * d->sw + (d->kw - 1) * d->dw + 1;
  for (long j = 0, i = 0; j < d->ow; j += l->widths[i]) {
    while (l->widths[i] > d->ow - j) i++;
    const long left = j * d->sw - d->pl;
    if (i == 0 && left >= 0 && left + span <= d->w) l->inside(k, j);
    else l->edge[i](k, j);
  }
}

MB_INLINE void mb_dw_run(const mb_dwconv *d, mb_dw_leaf *first, mb_dw_leaf *mid1, mb_dw_leaf *mid2,
                         mb_dw_leaf *last, const mb_dw_leaves *open, mb_epi_f epi_s, const void *ctx,
                         const void *x, const void *w, void *y, int tid, int nt) {
  long lo = 0, hi = d->batch * d->oh, v0 = 0, v1 = (d->c + MB_VL - 1) / MB_VL;
  if (d->split == MB_SPLIT_DW_ROWS) mb_share(hi, tid, nt, &lo, &hi);
  else mb_share(v1, tid, nt, &v0, &v1);
  if (v0 >= v1) return;
  for (long at = lo; at < hi; at++) {
    mb_dw_row k = {.ctx = ctx, .w = w, .b = at / d->oh, .i = at % d->oh, .v0 = v0, .v1 = v1};
    k.x = mb_at(d->x_type, x, k.b * d->x_batch);
    k.y = mb_at_out(d->y_type, y, k.b * d->y_batch);
    k.r0 = mb_tap_lo(k.i * d->sh - d->pt, d->dh);
    k.r1 = mb_tap_hi(k.i * d->sh - d->pt, d->dh, d->h, d->kh);
    if (open && mb_dw_open_tiled(d)) mb_dw_open_tiles(d, open, &k);
    else if (!open && mb_dw_tiled(d)) mb_dw_tiles(d, first, mid1, mid2, last, &k);
    else mb_dw_any(d, &k, epi_s);
  }
}

#define MB_DWCONV_LEAF(LEAF, D, EPI, KIND)                                                        \
  MB_LEAF void LEAF(const mb_dw_row *k, long j0) {                                                \
    if (mb_dw_tiled(&(D))) mb_dw_body(&(D), KIND, k, j0, EPI##_v);                                \
  }
#define MB_DWCONV(NAME, D, EPI)                                                                   \
  MB_DWCONV_LEAF(NAME##_first, D, EPI, MB_DW_FIRST)                                               \
  MB_DWCONV_LEAF(NAME##_mid1, D, EPI, MB_DW_MID1)                                                 \
  MB_DWCONV_LEAF(NAME##_mid2, D, EPI, MB_DW_MID2)                                                 \
  MB_DWCONV_LEAF(NAME##_last, D, EPI, MB_DW_LAST)                                                 \
  MB_INLINE void NAME(const void *ctx, const void *x, const void *w, void *y, int tid,            \
                      int nt) {                                                                   \
    mb_dw_run(&(D), NAME##_first, NAME##_mid1, NAME##_mid2, NAME##_last, 0, EPI##_s, ctx, x, w,   \
              y, tid, nt);                                                                        \
  }
/* The descriptor is AT(ctx), made of the run's sizes. */
#define MB_DWCONV_OPEN_LEAF(LEAF, AT, EPI, XB, CHECKED)                                           \
  MB_LEAF void LEAF(const mb_dw_row *k, long j0) {                                                \
    const mb_dwconv d = AT(k->ctx);                                                               \
    mb_dw_open_body(&d, XB, CHECKED, k, j0, EPI##_v);                                             \
  }
#define MB_DWCONV_OPEN(NAME, AT, WIDTHS, INSIDE, EDGE, EPI)                                       \
  MB_INLINE void NAME(const void *ctx, const void *x, const void *w, void *y, int tid,            \
                      int nt) {                                                                   \
    const mb_dwconv d = AT(ctx);                                                                  \
    const mb_dw_leaves leaves = {WIDTHS, INSIDE, EDGE};                                           \
    mb_dw_run(&d, 0, 0, 0, 0, &leaves, EPI##_s, ctx, x, w, y, tid, nt);                           \
  }

#endif
