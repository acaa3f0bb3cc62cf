/* C[b][m][n] = epilogue(sum_k A[b][m][k] * B[b][k][n]), summed in float; B and C may be narrower.
 *
 *   static const mb_gemm D = { .m = 128, ... };         constants, chosen by the code generator
 *   MB_GEMM(fc1, D, fc1_epi)                            defines the leaves and fc1(...)
 *   fc1(&ctx, a, b, c, next, tid, nt);                  computes share tid of nt
 *
 * fc1_epi_v and fc1_epi_s are the epilogue (base.h) with ix = {batch, 0, row, column}. Each tile
 * shape is one noinline leaf, so register allocation sees only its K loop and epilogue.
 *
 * B packed: panels [N/NR][K][NR], NR = nv*MB_VL, then the rest of N as one narrower panel of whole
 * vectors; b_panel = K*NR, b_row = NR. In the last, partial vector of N the columns are shifted: it
 * holds columns N-VL .. N-1 (N >= VL), or columns 0 .. N-1 and zeros (N < VL). B plain: row-major, b_panel = NR, b_row = its row stride.
 * Rows of B behind the last are never read, nor is anything outside the N columns.
 */
#ifndef MB_GEMM_H
#define MB_GEMM_H

#include "mb/tile.h"

typedef struct {
  long batch, m, n, k;
  long a_batch, a_row, a_k;      /* strides in elements; 0 repeats; a_k = 1 for ordinary rows */
  long b_batch, b_panel, b_row;
  long c_batch, c_row;
  int b_kind;                    /* MB_B_PACKED or MB_B_PLAIN */
  int b_type, c_type;            /* MB_T_*; C is float or a half */
  int nv, mr1, n1, mr2, n2;      /* n1 tiles of mr1 rows, then n2 of mr2, are exactly m */
  int rb;                        /* row tiles that run over one panel before the next panel */
  long kc;                       /* K block; if kc < k, c is float and aliases nothing the epilogue reads */
  int pf;                        /* MB_PF_NONE, MB_PF_NEXT (packed), MB_PF_STREAM */
  long pf_step, pf_dist;         /* elements per k step of the next panel; elements ahead */
  int ku;                        /* chains of the sum (1, 2, 4, 8) for few accumulators; kc = k */
  int epi_loop;                  /* the epilogue is long: keep it once */
  int joined;                    /* packed panels that one leaf takes side by side; 0: one. nv is that of all of them */
  int parts;                     /* tiles of a leaf that are as wide, one after the other; 0: one */
  int n_open;                    /* n is known when it runs: MB_N_SHIFTED or MB_N_SMALL, and nv is 1 */
} mb_gemm;

enum { MB_N_SHIFTED = 1, MB_N_SMALL = 2 };

typedef void mb_gemm_leaf(const void *ctx, const float *a, const void *b, void *c, long batch,
                          long row, long col, const void *pf, long k0);

MB_INLINE long mb_gemm_panels(const mb_gemm *d) {
  return (d->n + d->nv * MB_VL - 1) / (d->nv * MB_VL);
}

MB_INLINE mb_tile mb_gemm_tile(const mb_gemm *d, int mr, int tail) {
  int rest = (int)(d->n % (d->nv * MB_VL));
  int nv = d->n_open ? d->nv : tail && rest ? (rest + MB_VL - 1) / MB_VL : d->nv / (d->parts ? d->parts : 1);
  int rem = tail && rest % MB_VL ? rest % MB_VL : MB_VL;
  return (mb_tile){.mr = mr, .wrap = mr ? mr : 1, .xp = d->a_row, .xw = 0, .yp = d->c_row,
                   .yw = 0, .nv = nv, .rem = rem, .n_small = d->n_open ? d->n_open == MB_N_SMALL : d->n < MB_VL, .n0 = 1, .n1 = 1,
                   .xs2 = d->a_k,
                   .b_row = d->b_kind == MB_B_PACKED ? (long)(d->joined ? d->nv / d->joined : nv) * MB_VL : d->b_row,
                   .b_nv = d->joined ? d->nv / d->joined : 0, .b_panel = d->joined ? d->b_panel / d->joined : 0,
                   .b_kind = d->b_kind, .pf = d->pf,
                   .b_type = d->b_type, .y_type = d->c_type,
                   .pf_step = d->pf_step, .pf_dist = d->pf_dist, .epi_loop = d->epi_loop};
}

/* The body of one tile. */
MB_INLINE void mb_gemm_part(const mb_gemm *d, mb_tile t, const void *ctx, const float *a, const void *b, void *c,
                            mb_ix at, const void *pf, long k0, mb_epi_vf epi_v, mb_epi_f epi_s) {
  mb_vf acc[MB_MAX_MR][MB_MAX_NV];
  int whole = d->kc >= d->k;
  if (whole || k0 == 0) mb_tile_zero(t, acc);
  else mb_tile_resume(t, acc, (const float *)c);
  if (whole) mb_tile_touch(t, c);
  if (d->ku > 1) mb_tile_sum_chains(t, acc, d->ku, a, b, d->k);
  else if (d->joined && d->pf == MB_PF_STREAM) mb_tile_sum_joined(t, acc, a, b, d->k);
  else mb_tile_sum(t, acc, a + k0 * d->a_k, mb_at(d->b_type, b, k0 * t.b_row),
                   whole ? d->k : mb_min_long(d->kc, d->k - k0), pf);
  if (whole || k0 + d->kc >= d->k) mb_tile_finish(t, acc, c, ctx, epi_v, epi_s, at);
  else mb_tile_pause(t, acc, c);
}

/* The body of one leaf: a tile, or several side by side that share panels. */
MB_INLINE void mb_gemm_body(const mb_gemm *d, int mr, int tail, const void *ctx, const float *a,
                            const void *b, void *c, mb_ix at, const void *pf, long k0,
                            mb_epi_vf epi_v, mb_epi_f epi_s) {
  mb_tile t = mb_gemm_tile(d, mr, tail);
  const int parts = d->parts ? d->parts : 1;
  t.pf_step /= parts;
  MB_UNROLL for (int p = 0; p < parts; p++) {
    const long col = (long)p * t.nv * MB_VL;
    t.b_first = p * t.nv;
    mb_gemm_part(d, t, ctx, a, b, mb_at_out(d->c_type, c, col), (mb_ix){at.b, at.i, at.j, at.n + col},
                 mb_at(d->b_type, pf, p * t.pf_step * d->k), k0, epi_v, epi_s);
  }
}

/* One walk over items [lo, hi) of (batch, row block, panel, row tile), last fastest. */
MB_INLINE void mb_gemm_walk(const mb_gemm *d, mb_gemm_leaf *f1, mb_gemm_leaf *f2,
                            mb_gemm_leaf *t1, mb_gemm_leaf *t2, const void *ctx, const float *a,
                            const void *b, void *c, const void *next, long lo, long hi,
                            long k0) {
  const long tiles = d->n1 + d->n2, panels = mb_gemm_panels(d), nr = (long)d->nv * MB_VL;
  const long rb = mb_min_long(d->rb, tiles), full = d->n / nr;
  long q = lo % (tiles * panels), bt = lo / (tiles * panels);
  long r0 = q / (rb * panels) * rb, r1 = mb_min_long(r0 + rb, tiles);
  long p = (q - r0 * panels) / (r1 - r0), r = r0 + (q - r0 * panels) % (r1 - r0);
  for (long it = lo; it < hi; it++) {
    long row = r < d->n1 ? r * d->mr1 : (long)d->n1 * d->mr1 + (r - d->n1) * d->mr2;
    const float *pa = a + bt * d->a_batch + row * d->a_row;
    const void *pb = mb_at(d->b_type, b, bt * d->b_batch + p * d->b_panel);
    void *pc = mb_at_out(d->c_type, c, bt * d->c_batch + row * d->c_row + p * nr);
    const void *pf = pb;
    if (d->pf == MB_PF_NEXT && (r - r0) * d->pf_step * d->k < d->b_panel)
      pf = mb_at(d->b_type, p + 1 < panels ? mb_at(d->b_type, pb, d->b_panel) : next, (r - r0) * d->pf_step * d->k);
    if (p < full && r < d->n1) f1(ctx, pa, pb, pc, bt, row, p * nr, pf, k0);
    else if (p < full) f2(ctx, pa, pb, pc, bt, row, p * nr, pf, k0);
    else if (r < d->n1) t1(ctx, pa, pb, pc, bt, row, p * nr, pf, k0);
    else t2(ctx, pa, pb, pc, bt, row, p * nr, pf, k0);
    if (++r < r1) continue;
    r = r0;
    if (++p < panels) continue;
    p = 0;
    r0 = r1 < tiles ? r1 : 0;
    bt += r0 == 0;
    r1 = mb_min_long(r0 + rb, tiles);
    r = r0;
  }
}

MB_INLINE void mb_gemm_run(const mb_gemm *d, mb_gemm_leaf *f1, mb_gemm_leaf *f2,
                           mb_gemm_leaf *t1, mb_gemm_leaf *t2, const void *ctx, const float *a,
                           const void *b, void *c, const void *next, int tid, int nt) {
  long lo, hi;
  mb_share(d->batch * (d->n1 + d->n2) * mb_gemm_panels(d), tid, nt, &lo, &hi);
  if (lo >= hi) return;
  for (long k0 = 0; k0 == 0 || k0 < d->k; k0 += d->kc)
    mb_gemm_walk(d, f1, f2, t1, t2, ctx, a, b, c, next ? next : b, lo, hi, k0);
}

#define MB_GEMM_LEAF(LEAF, D, EPI, MR, TAIL)                                                      \
  MB_LEAF void LEAF(const void *ctx, const float *a, const void *b, void *c, long batch,          \
                    long row, long col, const void *pf, long k0) {                                \
    mb_gemm_body(&(D), MR, TAIL, ctx, a, b, c, (mb_ix){batch, 0, row, col}, pf, k0, EPI##_v,      \
                 EPI##_s);                                                                        \
  }
/* Where m is known when it runs: a leaf for every height up to `most`, of which m takes two. The descriptor is
 * AT(ctx), made of the run's sizes; what is constant in it is so in the leaf. */
MB_INLINE mb_gemm mb_gemm_cover(mb_gemm d, int most) {
  const long tiles = mb_max_long((d.m + most - 1) / most, 1), low = d.m / tiles, more = d.m % tiles;
  d.mr1 = (int)(more ? low + 1 : mb_max_long(low, 1));
  d.n1 = (int)(more ? more : d.m ? tiles : 0);
  d.mr2 = (int)mb_max_long(low, 1);
  d.n2 = (int)(more ? tiles - more : 0);
  return d;
}
/* Weights packed for many rows, and few: some panels at a time, as more accumulators hide more, and widen a weight
 * for more of them. n is whole groups of so many. */
MB_INLINE mb_gemm mb_gemm_join(mb_gemm d, int panels, int parts) {
  d.pf_dist /= (panels + parts - 1) / parts; /* as far ahead in all of them as it would be in one */
  d.pf_step = panels * d.nv * MB_VL / 2;     /* of few tiles the first two ask for all of the next group */
  d.joined = panels;
  d.parts = parts;
  d.nv *= panels;
  d.b_panel *= panels;
  return d;
}
#define MB_GEMM_JOINED_LEAF(LEAF, AT, EPI, MR, KU, PANELS, PARTS, PF)                             \
  MB_INLINE mb_gemm LEAF##_d(const void *ctx) { return mb_gemm_join(AT(ctx), PANELS, PARTS); }    \
  MB_GEMM_OPEN_LEAF(LEAF, LEAF##_d, EPI, MR, KU, 0, 0, PF)
#define MB_GEMM_OPEN_LEAF(LEAF, AT, EPI, MR, KU, TAIL, OPEN, PF)                                  \
  MB_LEAF void LEAF(const void *ctx, const float *a, const void *b, void *c, long batch,          \
                    long row, long col, const void *pf, long k0) {                                \
    mb_gemm d = AT(ctx);                                                                          \
    d.n_open = OPEN;                                                                              \
    d.pf = PF;                                                                                    \
    d.ku = KU;                                                                                    \
    mb_gemm_body(&d, MR, TAIL, ctx, a, b, c, (mb_ix){batch, 0, row, col}, pf, k0, EPI##_v,        \
                 EPI##_s);                                                                        \
  }
/* What so many rows take: panels and tiles of a leaf, rows of a tile at most, and the leaves of its two heights. All
 * rows run over a group of panels before the next. Where threads had few groups each, wide tiles are not worth it. */
typedef struct {
  int panels, parts, most;
  mb_gemm_leaf *high, *low;
} mb_gemm_few;

#define MB_GEMM_FEW(TABLE, AT, ROWS)                                                              \
    if (d.m <= ROWS && TABLE[d.m].panels) {                                                       \
      const mb_gemm_few *took = &TABLE[d.m];                                                      \
      mb_gemm side = mb_gemm_join(mb_gemm_cover(AT(ctx), took->most), took->panels, took->parts); \
      side.rb = side.n1 + side.n2;                                                                \
      if (nt == 1 || mb_gemm_panels(&side) * side.rb >= 4 * nt) {                                 \
        mb_gemm_run(&side, took->high, took->low, 0, 0, ctx, a, b, c, next, tid, nt);             \
        return;                                                                                   \
      }                                                                                           \
    }
#define MB_GEMM_OPEN(NAME, AT, MOST, FULL, TAIL, JOIN)                                                  \
  MB_INLINE void NAME(const void *ctx, const float *a, const void *b, void *c,                    \
                      const void *next, int tid, int nt) {                                        \
    const mb_gemm d = mb_gemm_cover(AT(ctx), MOST);                                               \
    mb_gemm_leaf *const *full = FULL, *const *tail = TAIL;                                        \
    JOIN                                                                                          \
    mb_gemm_run(&d, full[d.mr1], full[d.mr2], tail[d.mr1], tail[d.mr2], ctx, a, b, c, next, tid, nt); \
  }
#define MB_GEMM(NAME, D, EPI)                                                                     \
  MB_GEMM_LEAF(NAME##_tile1, D, EPI, (D).mr1, 0)                                                  \
  MB_GEMM_LEAF(NAME##_tile2, D, EPI, (D).mr2, 0)                                                  \
  MB_GEMM_LEAF(NAME##_tail1, D, EPI, (D).mr1, 1)                                                  \
  MB_GEMM_LEAF(NAME##_tail2, D, EPI, (D).mr2, 1)                                                  \
  MB_INLINE void NAME(const void *ctx, const float *a, const void *b, void *c,                    \
                      const void *next, int tid, int nt) {                                        \
    mb_gemm_run(&(D), NAME##_tile1, NAME##_tile2, NAME##_tail1, NAME##_tail2, ctx, a, b, c, next, \
                tid, nt);                                                                         \
  }

#endif
