/* The register tile under every float contraction: mr pixels (or rows) times nv vectors of channels.
 *
 *   acc[p][j] = sum over (o, s, k) of x[pixel(p) + o*xs0 + s*xs1 + k*xs2] * w[..][j]
 *
 * A GEMM is the case without o and s; an implicit-GEMM convolution walks kernel rows (o), kernel
 * columns (s) and channels (k), in that order and with one accumulator per output, so the order of
 * the sum depends only on the shape: never on the tile, the K block or the number of threads.
 *
 * All fields are constants of the caller; after inlining, the accumulators live in registers
 * (MR*NV + NV + 1 <= MB_NVREG - 1), pixel offsets are displacements and unused paths are gone.
 */
#ifndef MB_TILE_H
#define MB_TILE_H

#include "mb/narrow.h"

enum { MB_MAX_MR = 32, MB_MAX_NV = 16 };

/* How B (the weights) is stored: panels with the tail rule below, or a plain row-major matrix. */
enum { MB_B_PACKED = 0, MB_B_PLAIN = 1 };
enum { MB_PF_NONE = 0, MB_PF_NEXT = 1, MB_PF_STREAM = 2 };

typedef struct {
  int mr, wrap;        /* pixels; pixels per output row inside the tile (mr when it is one row) */
  long xp, xw;         /* x step of a pixel, of a wrapped row */
  long yp, yw;         /* y step of a pixel, of a wrapped row */
  int nv, rem;         /* vectors; elements that the last one stores (MB_VL: all) */
  int n_small;         /* whole N < MB_VL: the only vector is padded, not shifted */
  int n0, n1;          /* trip counts of o and s */
  long xs0, xs1, xs2;  /* x steps of o, s, k */
  long b_row;          /* w step of k */
  int b_nv;            /* packed: vectors of one panel where the tile takes several of them; 0: it takes one */
  long b_panel;        /* step to the next of them */
  int b_first;         /* vectors before the first */
  int b_kind, pf;
  int b_type, y_type;  /* MB_T_*: how weights are stored, and what the result is rounded to */
  long pf_step;        /* MB_PF_NEXT: floats a k step advances in the next panel */
  long pf_dist;        /* MB_PF_STREAM: floats ahead */
  int epi_loop;        /* run the epilogue in a loop over a small buffer, not unrolled */
} mb_tile;

MB_INLINE long mb_tile_x(mb_tile t, int p) { return (p / t.wrap) * t.xw + (p % t.wrap) * t.xp; }
MB_INLINE long mb_tile_y(mb_tile t, int p) { return (p / t.wrap) * t.yw + (p % t.wrap) * t.yp; }

/* Column of vector j. The last, partial vector of an N >= MB_VL is shifted left, so that it ends
 * with the last column: every load and every epilogue sees a whole vector inside the tensor, and
 * only the rem lanes that are not yet written are stored. */
MB_INLINE long mb_tile_col(mb_tile t, int j) {
  int partial = j == t.nv - 1 && t.rem < MB_VL && !t.n_small;
  return (long)j * MB_VL - (partial ? MB_VL - t.rem : 0);
}

/* Where vector j of packed weights lies. */
MB_INLINE long mb_tile_at(mb_tile t, int j) {
  j += t.b_first;
  return t.b_nv ? j / t.b_nv * t.b_panel + (long)(j % t.b_nv) * MB_VL : (long)j * MB_VL;
}

MB_INLINE mb_vf mb_tile_b(mb_tile t, const void *w, int j) {
  if (t.b_kind == MB_B_PACKED) return mb_get_v(t.b_type, w, mb_tile_at(t, j));
  if (t.n_small) return mb_get_n(t.b_type, w, t.rem);
  return mb_get_v(t.b_type, w, mb_tile_col(t, j));
}

MB_INLINE void mb_tile_zero(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV]) {
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++) acc[i][j] = mb_zero();
}

MB_INLINE void mb_tile_step(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV], const float *x,
                            const void *w) {
  mb_vf b[MB_MAX_NV];
  MB_UNROLL for (int j = 0; j < t.nv; j++) b[j] = mb_tile_b(t, w, j);
  if (t.pf == MB_PF_STREAM)
    MB_UNROLL for (int j = 0; j < t.nv; j++)
      if ((t.b_nv ? (j + t.b_first) % t.b_nv : j) * MB_VL * mb_bytes(t.b_type) % 64 == 0)
        __builtin_prefetch(mb_at(t.b_type, w, mb_tile_at(t, j) + t.pf_dist), 0, 3);
  MB_UNROLL for (int i = 0; i < t.mr; i++) {
    mb_vf a = mb_bcast(x[mb_tile_x(t, i)]);
    MB_UNROLL for (int j = 0; j < t.nv; j++) acc[i][j] = mb_mac(a, b[j], acc[i][j]);
  }
}

/* pf: this call's share of the next weight panel, which goes towards L2 at an even pace: a burst
 * would take the line buffers that the loads of this panel need. */
MB_INLINE void mb_tile_sum(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV], const float *x,
                           const void *w, long kn, const void *pf) {
  for (int o = 0; o < t.n0; o++)
    for (int s = 0; s < t.n1; s++) {
      const float *a = x + o * t.xs0 + s * t.xs1;
      MB_UNROLL2 for (long k = 0; k < kn; k++) {
        mb_tile_step(t, acc, a + k * t.xs2, w);
        w = mb_at(t.b_type, w, t.b_row);
        if (t.pf == MB_PF_NEXT) {
          MB_UNROLL for (int q = 0; q < (t.pf_step * mb_bytes(t.b_type) + 63) / 64; q++)
            __builtin_prefetch((const char *)pf + 64 * q, 0, 2);
          pf = mb_at(t.b_type, pf, t.pf_step);
        }
      }
    }
}

/* Over several panels, which end together: what their last rows ask for lies behind all of them, in the next ones.
 * Where rows are narrow, the first of a line asks for it. */
MB_INLINE void mb_tile_sum_joined(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV], const float *x,
                                  const void *w, long kn) {
  const long bytes = t.b_row * mb_bytes(t.b_type), line = bytes < 64 ? 64 / bytes : 1, turn = line > 1 ? line : 2;
  const long own = mb_max_long(kn - t.pf_dist / t.b_row, 0) / turn * turn;
  const long behind = ((t.nv + t.b_nv - 1) / t.b_nv - 1) * t.b_panel;
  long k = 0;
  MB_NOUNROLL for (int last = 0; last < 2; last++, t.pf_dist += behind)
    MB_NOUNROLL for (; k < (last ? kn / turn * turn : own); k += turn)
      MB_UNROLL for (int u = 0; u < turn; u++) {
        mb_tile step = t;
        step.pf = u % line ? MB_PF_NONE : t.pf;
        mb_tile_step(step, acc, x + (k + u) * t.xs2, mb_at(t.b_type, w, (k + u) * t.b_row));
      }
  MB_NOUNROLL for (; k < kn; k++) mb_tile_step(t, acc, x + k * t.xs2, mb_at(t.b_type, w, k * t.b_row));
}

/* Brings the output lines in while the sum runs. */
MB_INLINE void mb_tile_touch(mb_tile t, void *y) {
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++) if (j * MB_VL * mb_bytes(t.y_type) % 64 == 0)
      __builtin_prefetch(mb_at(t.y_type, y, mb_tile_y(t, i) + j * MB_VL), 1, 3);
}

MB_INLINE mb_ix mb_tile_ix(mb_tile t, mb_ix at, int p, long col) {
  return (mb_ix){at.b, at.i + p / t.wrap, at.j + p % t.wrap, at.n + col};
}

MB_INLINE void mb_tile_put(mb_tile t, void *y, int p, int j, mb_vf v) {
  void *q = mb_at_out(t.y_type, y, mb_tile_y(t, p) + (long)j * MB_VL);
  if (j < t.nv - 1 || t.rem == MB_VL) mb_put_v(t.y_type, q, 0, v);
  else if (t.n_small) mb_put_n(t.y_type, q, v, t.rem);
  else mb_put_last(t.y_type, q, v, t.rem);
}

/* The same sum in ku interleaved chains, added at the end in halving order: for the few accumulators
 * of a matrix times a vector, whose FMA latency would else be the limit. ku is a power of two. */
MB_INLINE void mb_tile_sum_chains(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV], const int ku,
                                  const float *x, const void *w, long kn) {
  mb_vf part[8][MB_MAX_MR][MB_MAX_NV];
  MB_UNROLL for (int u = 0; u < ku; u++) mb_tile_zero(t, part[u]);
  long k = 0;
  MB_NOUNROLL for (; k + ku <= kn; k += ku)
    MB_UNROLL for (int u = 0; u < ku; u++)
      mb_tile_step(t, part[u], x + (k + u) * t.xs2, mb_at(t.b_type, w, (k + u) * t.b_row));
  MB_NOUNROLL for (; k < kn; k++) 
    mb_tile_step(t, part[0], x + k * t.xs2, mb_at(t.b_type, w, k * t.b_row));
  MB_UNROLL for (int h = 4; h > 0; h /= 2)
    MB_UNROLL for (int u = 0; u < 4; u++) if (u < h && u + h < ku)
      MB_UNROLL for (int i = 0; i < t.mr; i++)
        MB_UNROLL for (int j = 0; j < t.nv; j++) part[u][i][j] += part[u + h][i][j];
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++) acc[i][j] = part[0][i][j];
}

/* N < MB_VL: the epilogue runs element by element, since a vector would read behind bias[N-1]. */
MB_INLINE void mb_tile_finish_small(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV], void *y,
                                    const void *ctx, mb_epi_f epi, mb_ix at) {
  float tmp[MB_MAX_MR][MB_VL];
  MB_UNROLL for (int i = 0; i < t.mr; i++) mb_store(tmp[i], acc[i][0]);
  MB_NOUNROLL for (int i = 0; i < t.mr; i++) {
    float out[MB_VL];
    for (int l = 0; l < t.rem; l++) out[l] = epi(ctx, tmp[i][l], mb_tile_ix(t, at, i, l));
    for (int l = 0; l < t.rem; l++) mb_put(t.y_type, y, mb_tile_y(t, i) + l, out[l]);
  }
}

/* A long epilogue is kept once, in a loop over the sums in memory. In place is still right: lanes
 * that a shifted vector reads after they were written are not stored. */
MB_INLINE void mb_tile_finish_loop(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV], void *y,
                                   const void *ctx, mb_epi_vf epi, mb_ix at) {
  float tmp[MB_MAX_MR][MB_MAX_NV][MB_VL];
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++) mb_store(tmp[i][j], acc[i][j]);
  const int whole = t.rem == MB_VL ? t.nv : t.nv - 1;
  MB_NOUNROLL for (int i = 0; i < t.mr; i++) {
    void *q = mb_at_out(t.y_type, y, mb_tile_y(t, i));
    MB_NOUNROLL for (int j = 0; j < whole; j++)
      mb_put_v(t.y_type, q, j * MB_VL, epi(ctx, mb_load(tmp[i][j]), mb_tile_ix(t, at, i, j * MB_VL)));
    if (whole < t.nv)
      mb_put_last(t.y_type, mb_at_out(t.y_type, q, whole * MB_VL), epi(ctx, mb_load(tmp[i][whole]),
                    mb_tile_ix(t, at, i, mb_tile_col(t, whole))), t.rem);
  }
}

/* Epilogue of all, then all stores: what the epilogue reads may be the very place it writes. */
MB_INLINE void mb_tile_finish(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV], void *y,
                              const void *ctx, mb_epi_vf epi_v, mb_epi_f epi_s, mb_ix at) {
  if (t.n_small) {
    mb_tile_finish_small(t, acc, y, ctx, epi_s, at);
    return;
  }
  if (t.epi_loop) {
    mb_tile_finish_loop(t, acc, y, ctx, epi_v, at);
    return;
  }
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++)
      acc[i][j] = epi_v(ctx, acc[i][j], mb_tile_ix(t, at, i, mb_tile_col(t, j)));
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++) mb_tile_put(t, y, i, j, acc[i][j]);
}

/* Partial sums of a K block rest in y itself, which is float; bits are the same as without blocking. */
MB_INLINE void mb_tile_resume(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV], const float *y) {
  MB_UNROLL for (int i = 0; i < t.mr; i++) MB_UNROLL for (int j = 0; j < t.nv; j++) {
    const float *q = y + mb_tile_y(t, i) + (long)j * MB_VL;
    if (j < t.nv - 1 || t.rem == MB_VL) acc[i][j] = mb_load(q);
    else if (t.n_small) acc[i][j] = mb_load_n(q, t.rem);
    else {
      mb_vf v = {0};
      MB_UNROLL for (int l = 0; l < MB_VL; l++)
        if (l >= MB_VL - t.rem) v[l] = q[l - (MB_VL - t.rem)];
      acc[i][j] = v;
    }
  }
}

MB_INLINE void mb_tile_pause(mb_tile t, mb_vf acc[MB_MAX_MR][MB_MAX_NV], void *y) {
  MB_UNROLL for (int i = 0; i < t.mr; i++)
    MB_UNROLL for (int j = 0; j < t.nv; j++) mb_tile_put(t, y, i, j, acc[i][j]);
}

#endif
