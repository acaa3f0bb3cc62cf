/* Convolution as implicit GEMM, summed in float: NHWC output, weights [OC/NR][KH][KW][IC][NR].
 *
 *   static const mb_conv D = { .batch = 1, ... };
 *   MB_CONV(conv3, D, conv3_epi)                  defines the leaves and conv3(...)
 *   conv3(&ctx, x, w, y, next, scratch, tid, nt);
 *
 * ix = {batch, output row, output column, channel}. One tile is mr output pixels by nv vectors of
 * channels; a kernel row is one run of KW*IC floats where the input is contiguous. With padding
 * (or a layout the tile cannot walk) the input rows of a block of output rows are first copied
 * into the thread's scratch, zeros round them; without, tiles read x itself. Strides are free, so
 * an NCHW input (x_pix = 1, x_ch = H*W) is transposed by that same copy, and a half one widened.
 * Under a strong dilation most rows between a block's first and last are no tap's: `gather` copies
 * the KH rows of each output row only, one behind the other.
 *
 * Scratch: max_threads * mb_conv_scratch(&D) floats; thread tid uses the tid-th part.
 * Bottom and right padding follow from oh and ow.
 */
#ifndef MB_CONV_H
#define MB_CONV_H

#include "mb/tile.h"

enum { MB_SPLIT_ROWS = 0, MB_SPLIT_PANELS = 1 };

typedef struct {
  long batch, groups, h, w, ic, oh, ow, oc;  /* ic, oc: of one group */
  long kh, kw, sh, sw, dh, dw, pt, pl;
  long x_batch, x_row, x_pix, x_ch, x_group; /* strides in elements */
  long y_batch, y_row, y_pix, y_group;
  long w_group, w_panel, w_row;              /* packed: w_panel = KH*KW*IC*NR, w_row = NR */
  int w_kind;                                /* MB_B_PACKED or MB_B_PLAIN (HWIO, w_panel = NR) */
  int x_type, w_type, y_type;                /* MB_T_*; x other than float needs the copy */
  int nv;
  /* wide (narrow = 0): a row is n1 tiles of c1 pixels and n2 of c2; r1 = r2 = 1.
   * narrow: a tile is whole rows, c1 = c2 = ow; the image is n1 tiles of r1 rows and n2 of r2. */
  int narrow, r1, c1, n1, r2, c2, n2;
  long bh;                                   /* rows (wide) or tiles (narrow) of a block */
  int copy;                                  /* through scratch; needed if any tap lies outside */
  int gather;                                /* strong dilation: kh scratch rows per output row */
  int split, pf;
  long pf_step;                              /* elements per k step of the next panel */
  int epi_loop;                              /* the epilogue is long: keep it once */
} mb_conv;

typedef void mb_conv_leaf(const void *ctx, const float *x, const void *w, void *y, long b,
                          long i, long j, long n, const void *pf);

/* Columns and rows of the scratch image. */
MB_INLINE long mb_conv_cols(const mb_conv *d) { return (d->ow - 1) * d->sw + (d->kw - 1) * d->dw + 1; }
MB_INLINE long mb_conv_rows(const mb_conv *d, long out_rows) {
  if (d->gather) return out_rows * d->kh;
  return (out_rows - 1) * d->sh + (d->kh - 1) * d->dh + 1;
}
MB_INLINE long mb_conv_block_rows(const mb_conv *d) {
  return mb_min_long(d->bh * (d->narrow ? mb_max_long(d->r1, d->r2) : 1), d->oh);
}
/* Floats of one thread, a multiple of 16 (64 bytes). tiles.py: conv_scratch is the same formula. */
MB_INLINE long mb_conv_scratch(const mb_conv *d) {
  if (!d->copy) return 0;
  return (mb_conv_rows(d, mb_conv_block_rows(d)) * mb_conv_cols(d) * d->ic + 15) / 16 * 16;
}

/* Rows that x moves on by an output row, and by a row of taps. */
MB_INLINE long mb_conv_sh(const mb_conv *d) { return d->gather ? d->kh : d->sh; }
MB_INLINE long mb_conv_dh(const mb_conv *d) { return d->gather ? 1 : d->dh; }
MB_INLINE long mb_conv_xpix(const mb_conv *d) { return d->copy ? d->ic : d->x_pix; }
MB_INLINE long mb_conv_xrow(const mb_conv *d) {
  return d->copy ? mb_conv_cols(d) * d->ic : d->x_row;
}

MB_INLINE mb_tile mb_conv_tile(const mb_conv *d, int r, int c, int tail) {
  int rest = (int)(d->oc % (d->nv * MB_VL));
  int nv = tail && rest ? (rest + MB_VL - 1) / MB_VL : d->nv;
  int rem = tail && rest % MB_VL ? rest % MB_VL : MB_VL;
  long xpix = mb_conv_xpix(d), xrow = mb_conv_xrow(d), xch = d->copy ? 1 : d->x_ch;
  int flat = d->dw == 1 && xch == 1 && xpix == d->ic;
  return (mb_tile){.mr = r * c, .wrap = c ? c : 1, .xp = d->sw * xpix, .xw = mb_conv_sh(d) * xrow,
                   .yp = d->y_pix, .yw = d->y_row, .nv = nv, .rem = rem,
                   .n_small = d->oc < MB_VL, .n0 = (int)d->kh, .n1 = flat ? 1 : (int)d->kw,
                   .xs0 = mb_conv_dh(d) * xrow, .xs1 = d->dw * xpix, .xs2 = xch,
                   .b_row = d->w_kind == MB_B_PACKED ? (long)nv * MB_VL : d->w_row,
                   .b_kind = d->w_kind, .b_type = d->w_type, .y_type = d->y_type,
                   .pf = d->pf, .pf_step = d->pf_step,
                   .epi_loop = d->epi_loop};
}

/* Of n taps, d apart, from `first` on: the first and behind the last of which any of the outputs
 * (s apart) meets the image. */
typedef struct { long lo, hi; } mb_conv_span;
MB_INLINE mb_conv_span mb_conv_taps(long first, long outputs, long s, long n, long d, long size) {
  long before = -(first + (outputs - 1) * s), left = size - first;
  return (mb_conv_span){before > 0 ? mb_min_long((before + d - 1) / d, n) : 0,
                        left > 0 ? mb_min_long((left + d - 1) / d, n) : 0};
}

/* Tap by tap, without those that meet only padding: of strong dilations that is most of them. */
MB_INLINE void mb_conv_sum_inside(const mb_conv *d, mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV],
                                  const float *x, const void *w, int r, int c, mb_ix at,
                                  const void *pf) {
  const mb_conv_span rows = mb_conv_taps(at.i * d->sh - d->pt, r, d->sh, d->kh, d->dh, d->h);
  const mb_conv_span cols = mb_conv_taps(at.j * d->sw - d->pl, c, d->sw, d->kw, d->dw, d->w);
  const long xs0 = t.xs0, xs1 = d->dw * mb_conv_xpix(d);
  t.n0 = t.n1 = 1;
  for (long p = rows.lo; p < rows.hi; p++)
    for (long q = cols.lo; q < cols.hi; q++) {
      long k = (p * d->kw + q) * d->ic;
      mb_tile_sum(t, acc, x + p * xs0 + q * xs1, mb_at(t.b_type, w, k * t.b_row), d->ic,
                  mb_at(t.b_type, pf, k * t.pf_step));
    }
}

/* The body of one leaf. */
MB_INLINE void mb_conv_body(const mb_conv *d, int r, int c, int tail, const void *ctx,
                            const float *x, const void *w, void *y, mb_ix at, const void *pf,
                            mb_epi_vf epi_v, mb_epi_f epi_s) {
  mb_tile t = mb_conv_tile(d, r, c, tail);
  mb_vf acc[MB_MAX_MR][MB_MAX_NV];
  mb_tile_zero(t, acc);
  mb_tile_touch(t, y);
  if (d->gather) mb_conv_sum_inside(d, t, acc, x, w, r, c, at, pf);
  else mb_tile_sum(t, acc, x, w, t.n1 == 1 ? d->kw * d->ic : d->ic, pf);
  mb_tile_finish(t, acc, y, ctx, epi_v, epi_s, at);
}

MB_INLINE void mb_conv_zero(float *p, long n) {
  for (long i = 0; i < n; i++) p[i] = 0;
}

/* Scratch rows 0 .. rows-1 become input rows from first_row on, zeros outside the image. */
MB_INLINE void mb_conv_fill(const mb_conv *d, const void *x, long first_row, long rows,
                            float *scratch) {
  const long cols = mb_conv_cols(d), ic = d->ic;
  const long left = mb_min_long(d->pl, cols), in = mb_min_long(d->w, cols - left);
  for (long r = 0; r < rows; r++) {
    float *s = scratch + r * cols * ic;
    long row = first_row + (d->gather ? r / d->kh * d->sh + r % d->kh * d->dh : r);
    if (row < 0 || row >= d->h) {
      mb_conv_zero(s, cols * ic);
      continue;
    }
    const void *p = mb_at(d->x_type, x, row * d->x_row);
    mb_conv_zero(s, left * ic);
    s += left * ic;
    if (d->x_ch == 1 && d->x_pix == ic)
      for (long i = 0; i < in * ic; i++) s[i] = mb_get(d->x_type, p, i);
    else
      for (long q = 0; q < in; q++)
        for (long k = 0; k < ic; k++) s[q * ic + k] = mb_get(d->x_type, p, q * d->x_pix + k * d->x_ch);
    mb_conv_zero(s + in * ic, (cols - left - in) * ic);
  }
}

MB_INLINE long mb_conv_units(const mb_conv *d) { return d->narrow ? d->n1 + d->n2 : d->oh; }
MB_INLINE long mb_conv_unit_row(const mb_conv *d, long u) {
  if (!d->narrow) return u;
  return u <= d->n1 ? u * d->r1 : (long)d->n1 * d->r1 + (u - d->n1) * d->r2;
}

/* What the loops of one block share. */
typedef struct {
  const void *ctx, *w, *next;
  const float *x;
  void *y;
  long b, g, row0, u0, u1;
} mb_conv_block;

MB_INLINE void mb_conv_unit(const mb_conv *d, mb_conv_leaf *f1, mb_conv_leaf *f2,
                            mb_conv_leaf *t1, mb_conv_leaf *t2, const mb_conv_block *k, long p,
                            long u) {
  const long nr = (long)d->nv * MB_VL, full = d->oc / nr, panels = (d->oc + nr - 1) / nr;
  const long taps = d->kh * d->kw * d->ic, row = mb_conv_unit_row(d, u);
  const long tiles = d->narrow ? 1 : d->n1 + d->n2, n = k->g * d->oc + p * nr;
  const void *w = mb_at(d->w_type, k->w, p * d->w_panel);
  for (long t = 0; t < tiles; t++) {
    int first = d->narrow ? u < d->n1 : t < d->n1;
    long col = d->narrow ? 0 : first ? t * d->c1 : (long)d->n1 * d->c1 + (t - d->n1) * d->c2;
    const float *x = k->x + (row - k->row0) * mb_conv_sh(d) * mb_conv_xrow(d) + col * d->sw * mb_conv_xpix(d);
    void *y = mb_at_out(d->y_type, k->y, row * d->y_row + col * d->y_pix + p * nr);
    const void *pf = w;
    long share = ((u - k->u0) * tiles + t) * d->pf_step * taps;
    if (d->pf == MB_PF_NEXT && share < d->w_panel)
      pf = mb_at(d->w_type, p + 1 < panels ? mb_at(d->w_type, w, d->w_panel) : k->next, share);
    if (p < full && first) f1(k->ctx, x, w, y, k->b, row, col, n, pf);
    else if (p < full) f2(k->ctx, x, w, y, k->b, row, col, n, pf);
    else if (first) t1(k->ctx, x, w, y, k->b, row, col, n, pf);
    else t2(k->ctx, x, w, y, k->b, row, col, n, pf);
  }
}

/* Where the sizes are known when it runs: leaves for a few widths of a tile, the largest first, the last of which
 * is 1; a row takes the widest that still fits, again and again. */
typedef struct {
  const int *widths;
  mb_conv_leaf *const *full, *const *tail;
} mb_conv_leaves;

MB_INLINE void mb_conv_open_row(const mb_conv *d, const mb_conv_leaves *l, const mb_conv_block *k, long p, long u) {
  const long nr = (long)d->nv * MB_VL, full = d->oc / nr, panels = (d->oc + nr - 1) / nr;
  const long taps = d->kh * d->kw * d->ic, tiles = d->ow / l->widths[0] + 1, n = k->g * d->oc + p * nr;
  const void *w = mb_at(d->w_type, k->w, p * d->w_panel);
  mb_conv_leaf *const *leaf = p < full ? l->full : l->tail;
  for (long col = 0, t = 0, i = 0; col < d->ow; col += l->widths[i], t++) {
    while (l->widths[i] > d->ow - col) i++;
    const float *x = k->x + (u - k->row0) * mb_conv_sh(d) * mb_conv_xrow(d) + col * d->sw * mb_conv_xpix(d);
    void *y = mb_at_out(d->y_type, k->y, u * d->y_row + col * d->y_pix + p * nr);
    const void *pf = w;
    long share = ((u - k->u0) * tiles + t) * d->pf_step * taps;
    if (d->pf == MB_PF_NEXT && share < d->w_panel)
      pf = mb_at(d->w_type, p + 1 < panels ? mb_at(d->w_type, w, d->w_panel) : k->next, share);
    leaf[i](k->ctx, x, w, y, k->b, u, col, n, pf);
  }
}

/* `open`: leaves where sizes are known when it runs, instead of f1, f2, t1, t2. */
MB_INLINE void mb_conv_run(const mb_conv *d, mb_conv_leaf *f1, mb_conv_leaf *f2, mb_conv_leaf *t1,
                           mb_conv_leaf *t2, const mb_conv_leaves *open, const void *ctx, const void *x,
                           const void *w, void *y, const void *next, float *scratch, int tid, int nt) {
  const long units = mb_conv_units(d), nr = (long)d->nv * MB_VL;
  long lo = 0, hi = d->batch * d->groups * units, p0 = 0, p1 = (d->oc + nr - 1) / nr;
  if (d->split == MB_SPLIT_ROWS) mb_share(hi, tid, nt, &lo, &hi);
  else mb_share(p1, tid, nt, &p0, &p1);
  if (p0 >= p1) return;
  scratch += tid * mb_conv_scratch(d);
  for (long at = lo; at < hi;) {
    long bg = at / units, u0 = at % units;
    long u1 = mb_min_long(mb_min_long(u0 + d->bh, units), u0 + hi - at);
    mb_conv_block k = {.ctx = ctx, .next = next ? next : w, .b = bg / d->groups,
                       .g = bg % d->groups, .row0 = mb_conv_unit_row(d, u0), .u0 = u0, .u1 = u1};
    const void *image = mb_at(d->x_type, x, k.b * d->x_batch + k.g * d->x_group);
    k.y = mb_at_out(d->y_type, y, k.b * d->y_batch + k.g * d->y_group);
    k.w = mb_at(d->w_type, w, k.g * d->w_group);
    if (d->copy) {
      long out_rows = mb_conv_unit_row(d, u1) - k.row0;
      mb_conv_fill(d, image, k.row0 * d->sh - d->pt, mb_conv_rows(d, out_rows), scratch);
      k.x = scratch;
    } else {
      k.x = (const float *)image + k.row0 * d->sh * d->x_row;
    }
    for (long p = p0; p < p1; p++)
      for (long u = u0; u < u1; u++)
        if (open) mb_conv_open_row(d, open, &k, p, u);
        else mb_conv_unit(d, f1, f2, t1, t2, &k, p, u);
    at += u1 - u0;
  }
}

#define MB_CONV_LEAF(LEAF, D, EPI, R, C, TAIL)                                                    \
  MB_LEAF void LEAF(const void *ctx, const float *x, const void *w, void *y, long b, long i,      \
                    long j, long n, const void *pf) {                                             \
    mb_conv_body(&(D), R, C, TAIL, ctx, x, w, y, (mb_ix){b, i, j, n}, pf, EPI##_v, EPI##_s);      \
  }
#define MB_CONV(NAME, D, EPI)                                                                     \
  MB_CONV_LEAF(NAME##_tile1, D, EPI, (D).r1, (D).c1, 0)                                           \
  MB_CONV_LEAF(NAME##_tile2, D, EPI, (D).r2, (D).c2, 0)                                           \
  MB_CONV_LEAF(NAME##_tail1, D, EPI, (D).r1, (D).c1, 1)                                           \
  MB_CONV_LEAF(NAME##_tail2, D, EPI, (D).r2, (D).c2, 1)                                           \
  MB_INLINE void NAME(const void *ctx, const void *x, const void *w, void *y,                     \
                      const void *next, float *scratch, int tid, int nt) {                        \
    mb_conv_run(&(D), NAME##_tile1, NAME##_tile2, NAME##_tail1, NAME##_tail2, 0, ctx, x, w, y,    \
                next, scratch, tid, nt);                                                          \
  }
/* The descriptor is AT(ctx), made of the run's sizes; what is constant in it is so in the leaf. */
#define MB_CONV_OPEN_LEAF(LEAF, AT, EPI, C, TAIL)                                                 \
  MB_LEAF void LEAF(const void *ctx, const float *x, const void *w, void *y, long b, long i,      \
                    long j, long n, const void *pf) {                                             \
    const mb_conv d = AT(ctx);                                                                    \
    mb_conv_body(&d, 1, C, TAIL, ctx, x, w, y, (mb_ix){b, i, j, n}, pf, EPI##_v, EPI##_s);        \
  }
#define MB_CONV_OPEN(NAME, AT, WIDTHS, FULL, TAIL)                                                \
  MB_INLINE void NAME(const void *ctx, const void *x, const void *w, void *y,                     \
                      const void *next, float *scratch, int tid, int nt) {                        \
    const mb_conv d = AT(ctx);                                                                    \
    const mb_conv_leaves leaves = {WIDTHS, FULL, TAIL};                                           \
    mb_conv_run(&d, 0, 0, 0, 0, &leaves, ctx, x, w, y, next, scratch, tid, nt);                   \
  }

#endif
