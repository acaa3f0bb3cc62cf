/* Integer convolutions and matrix products: bytes, or int16, times bytes, summed exactly in int32.
 *
 *   static const mb_iconv D = { .batch = 1, ... };
 *   MB_ICONV(conv3, D, conv3_epi)
 *   conv3(at, x, w, zx, y, scratch, tid, nt);
 *
 * A matrix product is the convolution of a column of m pixels by one tap. The input rows of a block are
 * first copied into the thread's scratch, in the form that the machine multiplies in one step:
 *
 *   quads   4 bytes, signed or not as the machine's dot product wants x (MB_DOT4); the zero point is
 *           taken off by starting each sum at -zero * (sum of the channel's weights)
 *   pairs   2 x int16, the zero point of bytes taken off; every machine, and x of 16 bits, whose zero point
 *           is taken off as in quads: the difference has 17 bits
 *
 * so padding, strides of any kind and zero points are the copy's business alone, and sums see runs of
 * contiguous x. A run whose length is no multiple of a step reads a little of what follows: weights are
 * zero there. Weights are signed bytes: per group and panel [run][step of k][column][4 or 2], panels and
 * the last, partial vector as in mb/tile.h; where they take zero points off, the sums of all columns (int32) stand
 * first.
 *
 * An epilogue takes sums and returns what is stored, as int32; of a float, its bits (mb/epilogue.h).
 *
 * Integer sums do not depend on order, so all forms and machines give the same integers. They wrap around
 * on overflow, as two's complement does.
 */
#ifndef MB_ICONV_H
#define MB_ICONV_H

#include "mb/epilogue.h"
#include "mb/tile.h"

typedef int16_t mb_vh __attribute__((vector_size(4 * MB_VL))); /* twice the lanes */
typedef int8_t mb_vb2 __attribute__((vector_size(2 * MB_VL)));

enum { MB_QUADS = 4, MB_PAIRS = 2, MB_CHUNK = 4 * MB_VL /* bytes of a vector */ };

typedef struct {
  long batch, groups, h, w, ic, oh, ow, oc;  /* ic, oc: of one group */
  long kh, kw, sh, sw, dh, dw, pt, pl;
  long x_batch, x_row, x_pix, x_ch, x_group; /* strides in bytes */
  long y_batch, y_row, y_pix, y_group;       /* in elements */
  int x_size, y_size;                        /* bytes of an element: 1 or 2; 1, 2 or 4 */
  long w_group, w_panel;                     /* bytes; panels begin behind the sums of a group */
  int form;                                  /* MB_QUADS or MB_PAIRS */
  int x_signed, zx, zx_given;                /* sign of x; its zero point; it is given when it runs */
  int zw;                                    /* zero point of the weights, in pairs only */
  int nv, narrow, r1, c1, n1, r2, c2, n2;    /* tiles as in mb_conv */
  long bh;                                   /* rows (wide) or tiles (narrow) of a block */
  int gather;                                /* strong dilation: kh scratch rows per output row, as in mb_conv */
  int split, epi_loop;
} mb_iconv;

/* -- one step of the sums ----------------------------------------------------------------------- */
/* Bytes of x are unsigned for the dot product of x86, signed for that of Arm: the highest bit is turned. */
#define MB_HAS_DOT4 1
#if defined(__AVX512VNNI__) && MB_VL == 16
#define MB_DOT4_UNSIGNED 1
typedef char mb_vbytes __attribute__((vector_size(64)));
MB_INLINE mb_vi mb_dot4(mb_vi acc, mb_vi x, mb_vi w) {
  return (mb_vi)__builtin_ia32_vpdpbusd512(acc, (mb_vbytes)x, (mb_vbytes)w);
}
#elif (defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))) && MB_VL == 8
#define MB_DOT4_UNSIGNED 1
typedef char mb_vbytes __attribute__((vector_size(32)));
MB_INLINE mb_vi mb_dot4(mb_vi acc, mb_vi x, mb_vi w) {
  return (mb_vi)__builtin_ia32_vpdpbusd256(acc, (mb_vbytes)x, (mb_vbytes)w);
}
#elif defined(__ARM_FEATURE_DOTPROD) && MB_VL == 4
#define MB_DOT4_UNSIGNED 0
typedef __attribute__((neon_vector_type(16))) signed char mb_vbytes;
MB_INLINE mb_vi mb_dot4(mb_vi acc, mb_vi x, mb_vi w) {
  return (mb_vi)__builtin_neon_vdotq_s32((mb_vbytes)acc, (mb_vbytes)x, (mb_vbytes)w, 34);
}
#else /* the same on any machine, byte by byte */
#undef MB_HAS_DOT4
#define MB_HAS_DOT4 0
#define MB_DOT4_UNSIGNED 1
MB_INLINE mb_vi mb_dot4(mb_vi acc, mb_vi x, mb_vi w) {
  mb_vu s = (mb_vu)acc;
  MB_UNROLL for (int b = 0; b < 32; b += 8)
    s += (((mb_vu)x >> b) & 0xff) * (mb_vu)((mb_vi)((mb_vu)w << (24 - b)) >> 24);
  return (mb_vi)s;
}
#endif

/* Two products of int16 in every lane. */
#if defined(__AVX512BW__) && MB_VL == 16
typedef short mb_vshorts __attribute__((vector_size(64)));
#define MB_MADD(X, W) __builtin_ia32_pmaddwd512((mb_vshorts)(X), (mb_vshorts)(W))
#if defined(__AVX512VNNI__)
#define MB_MADD_TO(ACC, X, W) __builtin_ia32_vpdpwssd512(ACC, (mb_vshorts)(X), (mb_vshorts)(W))
#endif
#elif defined(__AVX2__) && MB_VL == 8
typedef short mb_vshorts __attribute__((vector_size(32)));
#define MB_MADD(X, W) __builtin_ia32_pmaddwd256((mb_vshorts)(X), (mb_vshorts)(W))
#elif defined(__SSE2__) && MB_VL == 4
typedef short mb_vshorts __attribute__((vector_size(16)));
#define MB_MADD(X, W) __builtin_ia32_pmaddwd128((mb_vshorts)(X), (mb_vshorts)(W))
#endif
MB_INLINE mb_vi mb_dot2(mb_vi acc, int32_t x, mb_vi w) {
#if defined(MB_MADD_TO)
  return (mb_vi)MB_MADD_TO(acc, mb_ibcast(x), w);
#elif defined(MB_MADD)
  return mb_add(acc, (mb_vi)MB_MADD(mb_ibcast(x), w));
#else
  typedef int16_t half __attribute__((vector_size(2 * MB_VL)));
  half lo, hi, one = {0};
  MB_UNROLL for (int i = 0; i < MB_VL; i++) lo[i] = ((mb_vh)w)[2 * i], hi[i] = ((mb_vh)w)[2 * i + 1];
  mb_vi a = __builtin_convertvector(one + (int16_t)x, mb_vi);
  mb_vi b = __builtin_convertvector(one + (int16_t)(x >> 16), mb_vi);
  acc = mb_add(acc, mb_mul(a, __builtin_convertvector(lo, mb_vi)));
  return mb_add(acc, mb_mul(b, __builtin_convertvector(hi, mb_vi)));
#endif
}

/* An integer of 1 or 2 bytes, signed or not. */
MB_INLINE int32_t mb_iload_one(int size, int is_signed, const void *p) {
  if (size == 2) return is_signed ? *(const int16_t *)p : *(const uint16_t *)p;
  return is_signed ? *(const int8_t *)p : *(const uint8_t *)p;
}

MB_INLINE int mb_iconv_flip(const mb_iconv *d) { return d->x_signed == MB_DOT4_UNSIGNED ? 0x80 : 0; }
/* Whether the sums of columns take the zero point off. */
MB_INLINE int mb_iconv_sums(const mb_iconv *d) { return d->form == MB_QUADS || d->x_size == 2; }
/* An element of x as the products see it, where sums take the zero point off. */
MB_INLINE int32_t mb_iconv_seen(const mb_iconv *d, int32_t x) {
  if (d->x_size == 2) return d->x_signed ? x : x - 0x8000;
  int32_t b = (x ^ mb_iconv_flip(d)) & 0xff;
  return MB_DOT4_UNSIGNED ? b : (int8_t)b;
}

/* -- scratch ------------------------------------------------------------------------------------ */
MB_INLINE long mb_iconv_cols(const mb_iconv *d) { return (d->ow - 1) * d->sw + (d->kw - 1) * d->dw + 1; }
MB_INLINE long mb_iconv_rows(const mb_iconv *d, long out_rows) {
  if (d->gather) return out_rows * d->kh;
  return (out_rows - 1) * d->sh + (d->kh - 1) * d->dh + 1;
}
/* Rows that x moves on by an output row, and by a row of taps. */
MB_INLINE long mb_iconv_sh(const mb_iconv *d) { return d->gather ? d->kh : d->sh; }
MB_INLINE long mb_iconv_dh(const mb_iconv *d) { return d->gather ? 1 : d->dh; }
MB_INLINE int mb_iconv_size(const mb_iconv *d) { return d->form == MB_QUADS ? 1 : 2; }
/* Bytes of one thread; tiles.py: iconv_scratch is the same formula. */
MB_INLINE long mb_iconv_scratch(const mb_iconv *d) {
  long unit = d->narrow ? mb_max_long(d->r1, d->r2) : 1;
  long rows = mb_iconv_rows(d, mb_min_long(d->bh * unit, d->oh));
  return (rows * mb_iconv_cols(d) * d->ic * mb_iconv_size(d) + 4 + 63) / 64 * 64;
}

/* n elements of the scratch: x as it is seen, or nothing but zero points where x is 0; steps are bytes. */
MB_INLINE void mb_iconv_copy(const mb_iconv *d, char *s, const uint8_t *x, long step, long n, int32_t zx) {
  if (d->form == MB_QUADS) {
    const uint8_t flip = (uint8_t)mb_iconv_flip(d), zero = (uint8_t)(zx ^ flip);
    if (!x) for (long i = 0; i < n; i++) s[i] = (char)zero;
    else if (step == 1) for (long i = 0; i < n; i++) s[i] = (char)(x[i] ^ flip);
    else for (long i = 0; i < n; i++) s[i] = (char)(x[i * step] ^ flip);
    return;
  }
  int16_t *h = (int16_t *)s;
  if (d->x_size == 2) {
    const uint16_t flip = d->x_signed ? 0 : 0x8000, *x2 = (const uint16_t *)x;
    const int16_t zero = (int16_t)mb_iconv_seen(d, zx);
    step /= 2;
    if (!x) for (long i = 0; i < n; i++) h[i] = zero;
    else if (step == 1) for (long i = 0; i < n; i++) h[i] = (int16_t)(x2[i] ^ flip);
    else for (long i = 0; i < n; i++) h[i] = (int16_t)(x2[i * step] ^ flip);
  } else if (!x) for (long i = 0; i < n; i++) h[i] = 0;
  else if (d->x_signed) for (long i = 0; i < n; i++) h[i] = (int16_t)((int8_t)x[i * step] - zx);
  else for (long i = 0; i < n; i++) h[i] = (int16_t)(x[i * step] - zx);
}

/* Scratch rows 0 .. rows-1 become input rows from first_row on, zero points outside the image. */
MB_INLINE void mb_iconv_fill(const mb_iconv *d, const uint8_t *x, long first_row, long rows, char *scratch,
                             int32_t zx) {
  const long cols = mb_iconv_cols(d), ic = d->ic, size = mb_iconv_size(d), one = d->x_size;
  const long left = mb_min_long(d->pl, cols), in = mb_min_long(d->w, cols - left);
  for (long r = 0; r < rows; r++) {
    char *s = scratch + r * cols * ic * size;
    const long row = first_row + (d->gather ? r / d->kh * d->sh + r % d->kh * d->dh : r);
    if (row < 0 || row >= d->h) {
      mb_iconv_copy(d, s, 0, 1, cols * ic, zx);
      continue;
    }
    const uint8_t *p = x + row * d->x_row;
    mb_iconv_copy(d, s, 0, 1, left * ic, zx);
    s += left * ic * size;
    if ((d->x_ch == one || ic == 1) && (d->x_pix == ic * one || in == 1)) mb_iconv_copy(d, s, p, one, in * ic, zx);
    else if (ic == 1) mb_iconv_copy(d, s, p, d->x_pix, in, zx);
    else for (long q = 0; q < in; q++) mb_iconv_copy(d, s + q * ic * size, p + q * d->x_pix, d->x_ch, ic, zx);
    mb_iconv_copy(d, s + in * ic * size, 0, 1, (cols - left - in) * ic, zx);
  }
}

/* -- one tile: r x c pixels by nv vectors of channels --------------------------------------------- */
typedef struct {
  const void *ctx;
  const char *x;         /* in scratch */
  const int8_t *w;       /* panel */
  const int32_t *sums;   /* of the panel's columns */
  char *y;
  int32_t zx;            /* as it is seen */
  mb_ix at;
} mb_iconv_at;

typedef void mb_iconv_leaf(const mb_iconv_at *t);

/* Where elements lie in y, and which lanes of the last vector count; the rest is the form's own. */
MB_INLINE mb_tile mb_iconv_tile(const mb_iconv *d, int r, int c, int tail) {
  int rest = (int)(d->oc % (d->nv * MB_VL));
  int nv = tail && rest ? (rest + MB_VL - 1) / MB_VL : d->nv;
  int rem = tail && rest % MB_VL ? rest % MB_VL : MB_VL;
  int flat = d->dw == 1;
  long pix = d->ic * mb_iconv_size(d), row = mb_iconv_cols(d) * pix;
  return (mb_tile){.mr = r * c, .wrap = c ? c : 1, .xp = d->sw * pix, .xw = mb_iconv_sh(d) * row, .yp = d->y_pix,
                   .yw = d->y_row, .nv = nv, .rem = rem, .n_small = d->oc < MB_VL, .n0 = (int)d->kh,
                   .n1 = flat ? 1 : (int)d->kw, .xs0 = mb_iconv_dh(d) * row, .xs1 = d->dw * pix,
                   .b_row = (long)nv * MB_VL * d->form, .epi_loop = d->epi_loop};
}

MB_INLINE mb_vi mb_iconv_w(const mb_iconv *d, const int8_t *w, int j) {
  if (d->form == MB_QUADS) return mb_iload(w + (long)j * MB_VL * 4);
  mb_vb2 b;
  __builtin_memcpy(&b, w + (long)j * MB_VL * 2, sizeof b);
  mb_vh h = __builtin_convertvector(b, mb_vh);
  return (mb_vi)(d->zw ? h - (int16_t)d->zw : h);
}

MB_INLINE int32_t mb_iconv_x(const char *x) {
  int32_t v;
  __builtin_memcpy(&v, x, 4);
  return v;
}

MB_INLINE void mb_iconv_step(const mb_iconv *d, mb_tile t, mb_vi acc[MB_MAX_MR][MB_MAX_NV], const char *x,
                             const int8_t *w) {
  mb_vi b[MB_MAX_NV];
  MB_UNROLL for (int j = 0; j < t.nv; j++) b[j] = mb_iconv_w(d, w, j);
  MB_UNROLL for (int i = 0; i < t.mr; i++) {
    const int32_t a = mb_iconv_x(x + mb_tile_x(t, i));
    MB_UNROLL for (int j = 0; j < t.nv; j++)
      acc[i][j] = d->form == MB_QUADS ? mb_dot4(acc[i][j], mb_ibcast(a), b[j]) : mb_dot2(acc[i][j], a, b[j]);
  }
}

/* Results of `size` bytes, 1, 2 or 4; of a vector that belongs at y the last n lanes. */
MB_INLINE void mb_iput(int size, char *y, long i, int32_t v) {
  const int16_t half = (int16_t)v;
  if (size == 4) __builtin_memcpy(y + 4 * i, &v, 4);
  else if (size == 2) __builtin_memcpy(y + 2 * i, &half, 2);
  else y[i] = (char)v;
}
MB_INLINE void mb_iput_last(int size, char *y, mb_vi v, int n) {
  if (n < MB_VL) {
    const mb_vb b = __builtin_convertvector(v, mb_vb);
    MB_UNROLL for (int l = 0; l < MB_VL; l++)
      if (l >= MB_VL - n) mb_iput(size, y, l, size == 1 ? b[l] : v[l]);
  } else if (size == 4) mb_istore(y, v);
  else if (size == 2) *(mb_v16u *)y = __builtin_convertvector(v, mb_v16u);
  else *(mb_v8u *)y = __builtin_convertvector(v, mb_vb);
}

MB_INLINE void mb_iconv_put(const mb_iconv *d, mb_tile t, char *y, int p, int j, mb_vi v) {
  mb_iput_last(d->y_size, y + (mb_tile_y(t, p) + mb_tile_col(t, j)) * d->y_size, v, j < t.nv - 1 ? MB_VL : t.rem);
}

/* Fewer channels than lanes: element by element, as a vector would read behind the last channel. */
MB_INLINE void mb_iconv_small(const mb_iconv *d, mb_tile t, mb_vi acc[MB_MAX_MR][MB_MAX_NV], const mb_iconv_at *k,
                              mb_epi_i epi) {
  int32_t tmp[MB_MAX_MR][MB_VL];
  MB_UNROLL for (int i = 0; i < t.mr; i++) mb_istore(tmp[i], acc[i][0]);
  MB_NOUNROLL for (int i = 0; i < t.mr; i++) {
    MB_NOUNROLL for (int l = 0; l < t.rem; l++) tmp[i][l] = epi(k->ctx, tmp[i][l], mb_tile_ix(t, k->at, i, l));
    char *q = k->y + mb_tile_y(t, i) * d->y_size;
    MB_NOUNROLL for (int l = 0; l < t.rem; l++) mb_iput(d->y_size, q, l, tmp[i][l]);
  }
}

/* A long epilogue is in the code once. All of it runs before anything is stored: it may read the very
 * place that it writes. */
MB_INLINE void mb_iconv_loop(const mb_iconv *d, mb_tile t, mb_vi acc[MB_MAX_MR][MB_MAX_NV], const mb_iconv_at *k,
                             mb_epi_vi epi) {
  int32_t tmp[MB_MAX_MR][MB_MAX_NV][MB_VL];
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++) mb_istore(tmp[i][j], acc[i][j]);
  MB_NOUNROLL for (int i = 0; i < t.mr; i++) {
    MB_NOUNROLL for (int j = 0; j < t.nv; j++) {
      const long col = mb_tile_col(t, j);
      mb_istore(tmp[i][j], epi(k->ctx, mb_iload(tmp[i][j]), mb_tile_ix(t, k->at, i, col)));
    }
    MB_UNROLL for (int j = 0; j < t.nv; j++) mb_iconv_put(d, t, k->y, i, j, mb_iload(tmp[i][j]));
  }
}

MB_INLINE void mb_iconv_body(const mb_iconv *d, int r, int c, int tail, const mb_iconv_at *k, mb_epi_vi epi_v,
                             mb_epi_i epi_s) {
  const mb_tile t = mb_iconv_tile(d, r, c, tail);
  mb_vi acc[MB_MAX_MR][MB_MAX_NV];
  const int corrects = mb_iconv_sums(d) && (d->zx_given || mb_iconv_seen(d, d->zx));
  MB_UNROLL for (int j = 0; j < t.nv; j++) {
    const mb_vi first = corrects ? mb_mul(mb_iload(k->sums + j * MB_VL), -k->zx) : (mb_vi){0};
    MB_UNROLL for (int i = 0; i < t.mr; i++) acc[i][j] = first;
  }
  const long run = (t.n1 == 1 ? d->kw : 1) * d->ic;
  const int8_t *w = k->w;
  for (int o = 0; o < t.n0; o++)
    for (int s = 0; s < t.n1; s++) {
      const char *x = k->x + o * t.xs0 + s * t.xs1;
      MB_UNROLL2 for (long q = 0; q < (run + d->form - 1) / d->form; q++, x += 4, w += t.b_row)
        mb_iconv_step(d, t, acc, x, w);
    }
  if (t.n_small) {
    mb_iconv_small(d, t, acc, k, epi_s);
    return;
  }
  if (t.epi_loop) {
    mb_iconv_loop(d, t, acc, k, epi_v);
    return;
  }
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++)
      acc[i][j] = epi_v(k->ctx, acc[i][j], mb_tile_ix(t, k->at, i, mb_tile_col(t, j)));
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++) mb_iconv_put(d, t, k->y, i, j, acc[i][j]);
}

/* -- the walk over tiles -------------------------------------------------------------------------- */
MB_INLINE long mb_iconv_units(const mb_iconv *d) { return d->narrow ? d->n1 + d->n2 : d->oh; }
MB_INLINE long mb_iconv_unit_row(const mb_iconv *d, long u) {
  if (!d->narrow) return u;
  return u <= d->n1 ? u * d->r1 : (long)d->n1 * d->r1 + (u - d->n1) * d->r2;
}

/* The tile of panel p at a row and column; `k` holds the bases of the block, whose first row is row0. */
MB_INLINE mb_iconv_at mb_iconv_tile_at(const mb_iconv *d, const mb_iconv_at *k, long row0, long row, long col,
                                       long p) {
  const long nr = (long)d->nv * MB_VL, pix = d->ic * mb_iconv_size(d);
  mb_iconv_at a = *k;
  a.x += ((row - row0) * mb_iconv_sh(d) * mb_iconv_cols(d) + col * d->sw) * pix;
  a.w += p * d->w_panel;
  a.sums += p * nr;
  a.y += (row * d->y_row + col * d->y_pix + p * nr) * d->y_size;
  a.at = (mb_ix){k->at.b, row, col, k->at.n + p * nr};
  return a;
}

/* One panel over one unit: the tiles of a row, or a tile of rows. */
MB_INLINE void mb_iconv_unit(const mb_iconv *d, mb_iconv_leaf *f1, mb_iconv_leaf *f2, mb_iconv_leaf *t1,
                             mb_iconv_leaf *t2, const mb_iconv_at *k, long row0, long p, long u) {
  const long full = d->oc / ((long)d->nv * MB_VL), row = mb_iconv_unit_row(d, u);
  const long tiles = d->narrow ? 1 : d->n1 + d->n2;
  for (long t = 0; t < tiles; t++) {
    const int first = d->narrow ? u < d->n1 : t < d->n1;
    const long col = d->narrow ? 0 : first ? t * d->c1 : (long)d->n1 * d->c1 + (t - d->n1) * d->c2;
    const mb_iconv_at a = mb_iconv_tile_at(d, k, row0, row, col, p);
    if (p < full && first) f1(&a);
    else if (p < full) f2(&a);
    else if (first) t1(&a);
    else t2(&a);
  }
}

/* Where the sizes are known when it runs: leaves for a few widths of a tile, as in `mb_conv_leaves`. */
typedef struct {
  const int *widths;
  mb_iconv_leaf *const *full, *const *tail;
} mb_iconv_leaves;

MB_INLINE void mb_iconv_open_row(const mb_iconv *d, const mb_iconv_leaves *l, const mb_iconv_at *k, long row0, long p,
                                 long u) {
  mb_iconv_leaf *const *leaf = p < d->oc / ((long)d->nv * MB_VL) ? l->full : l->tail;
  for (long col = 0, i = 0; col < d->ow; col += l->widths[i]) {
    while (l->widths[i] > d->ow - col) i++;
    const mb_iconv_at a = mb_iconv_tile_at(d, k, row0, u, col, p);
    leaf[i](&a);
  }
}

MB_INLINE void mb_iconv_run(const mb_iconv *d, mb_iconv_leaf *f1, mb_iconv_leaf *f2, mb_iconv_leaf *t1,
                            mb_iconv_leaf *t2, const mb_iconv_leaves *open, const void *ctx, const void *x,
                            const void *w, const void *zx, void *y, void *scratch, int tid, int nt) {
  const long units = mb_iconv_units(d), nr = (long)d->nv * MB_VL, panels = (d->oc + nr - 1) / nr;
  const long sums = mb_iconv_sums(d) ? (d->oc + MB_VL - 1) / MB_VL * MB_VL : 0;
  const int32_t zero = d->zx_given ? mb_iload_one(d->x_size, d->x_signed, zx) : d->zx;
  long lo = 0, hi = d->batch * d->groups * units, p0 = 0, p1 = panels;
  if (d->split == 0) mb_share(hi, tid, nt, &lo, &hi);
  else mb_share(panels, tid, nt, &p0, &p1);
  if (p0 >= p1) return;
  char *own = (char *)scratch + tid * mb_iconv_scratch(d);
  for (long at = lo; at < hi;) {
    const long bg = at / units, u0 = at % units, b = bg / d->groups, g = bg % d->groups;
    const long u1 = mb_min_long(mb_min_long(u0 + d->bh, units), u0 + hi - at);
    const long row0 = mb_iconv_unit_row(d, u0), rows = mb_iconv_rows(d, mb_iconv_unit_row(d, u1) - row0);
    const int8_t *wg = (const int8_t *)w + g * d->w_group;
    mb_iconv_fill(d, (const uint8_t *)x + b * d->x_batch + g * d->x_group, row0 * d->sh - d->pt, rows, own, zero);
    const mb_iconv_at k = {.ctx = ctx, .x = own, .w = wg + 4 * sums, .sums = (const int32_t *)wg,
                           .y = (char *)y + (b * d->y_batch + g * d->y_group) * d->y_size,
                           .zx = mb_iconv_seen(d, zero), .at = {b, 0, 0, g * d->oc}};
    for (long p = p0; p < p1; p++)
      for (long u = u0; u < u1; u++)
        if (open) mb_iconv_open_row(d, open, &k, row0, p, u);
        else mb_iconv_unit(d, f1, f2, t1, t2, &k, row0, p, u);
    at += u1 - u0;
  }
}

#define MB_ICONV_LEAF(LEAF, D, EPI, R, C, TAIL)                                                  \
  MB_LEAF void LEAF(const mb_iconv_at *t) { mb_iconv_body(&(D), R, C, TAIL, t, EPI##_v, EPI##_s); }
#define MB_ICONV(NAME, D, EPI)                                                                   \
  MB_ICONV_LEAF(NAME##_tile1, D, EPI, (D).r1, (D).c1, 0)                                         \
  MB_ICONV_LEAF(NAME##_tile2, D, EPI, (D).r2, (D).c2, 0)                                         \
  MB_ICONV_LEAF(NAME##_tail1, D, EPI, (D).r1, (D).c1, 1)                                         \
  MB_ICONV_LEAF(NAME##_tail2, D, EPI, (D).r2, (D).c2, 1)                                         \
  MB_INLINE void NAME(const void *ctx, const void *x, const void *w, const void *zx, void *y,    \
                      void *scratch, int tid, int nt) {                                          \
    mb_iconv_run(&(D), NAME##_tile1, NAME##_tile2, NAME##_tail1, NAME##_tail2, 0, ctx, x, w, zx, \
                 y, scratch, tid, nt);                                                           \
  }
/* The descriptor is AT(ctx), made of the run's sizes. */
#define MB_ICONV_OPEN_LEAF(LEAF, AT, EPI, C, TAIL)                                               \
  MB_LEAF void LEAF(const mb_iconv_at *t) {                                                      \
    const mb_iconv d = AT(t->ctx);                                                               \
    mb_iconv_body(&d, 1, C, TAIL, t, EPI##_v, EPI##_s);                                          \
  }
#define MB_ICONV_OPEN(NAME, AT, WIDTHS, FULL, TAIL)                                              \
  MB_INLINE void NAME(const void *ctx, const void *x, const void *w, const void *zx, void *y,    \
                      void *scratch, int tid, int nt) {                                          \
    const mb_iconv d = AT(ctx);                                                                  \
    const mb_iconv_leaves leaves = {WIDTHS, FULL, TAIL};                                         \
    mb_iconv_run(&d, 0, 0, 0, 0, &leaves, ctx, x, w, zx, y, scratch, tid, nt);                   \
  }

#endif
