/* Rows sorted by group, each times the matrix of its group: y[r][n] = sum_k x[r][k] * w[group of r][k][n].
 *
 *   MB_GEMM_OPEN(expert_one, ...)         the product of so many rows, which its context points to
 *   MB_GROUPED(expert, expert_one, expert_d, 8)
 *   expert(x, w, ends, y, rows, tid, nt);
 *
 * Group g's rows end before ends[g]. Ends are data: they are limited to the rows there are, and none lies before the
 * one of the group before. Rows behind the last are zeros. A matrix of which no row is asked for is not read.
 */
#ifndef MB_GROUPED_H
#define MB_GROUPED_H

#include "mb/gemm.h"

MB_INLINE mb_vf mb_grouped_epi_v(const void *ctx, mb_vf acc, mb_ix ix) { (void)ctx, (void)ix; return acc; }
MB_INLINE float mb_grouped_epi_s(const void *ctx, float acc, mb_ix ix) { (void)ctx, (void)ix; return acc; }

MB_INLINE long mb_grouped_end(const int64_t *ends, long g, long from, long rows) {
  return ends[g] < from ? from : ends[g] > rows ? rows : (long)ends[g];
}
/* Of `count` numbers behind the last group */
MB_INLINE void mb_grouped_rest(float *y, long count, int tid, int nt) {
  long lo, hi;
  mb_share(count, tid, nt, &lo, &hi);
  for (long i = lo; i < hi; i++) y[i] = 0;
}

#define MB_GROUPED(NAME, ONE, AT, GROUPS)                                                         \
  MB_INLINE void NAME(const float *x, const void *w, const int64_t *ends, float *y, long rows,    \
                      int tid, int nt) {                                                          \
    long from = 0;                                                                                \
    const mb_gemm d = AT(&from);                                                                  \
    for (long g = 0; g < GROUPS; g++) {                                                           \
      const long to = mb_grouped_end(ends, g, from, rows), m = to - from;                         \
      if (m > 0)                                                                                  \
        ONE(&m, x + from * d.k, mb_at(d.b_type, w, g * d.k * d.n), y + from * d.n, 0, tid, nt);   \
      from = to;                                                                                  \
    }                                                                                             \
    mb_grouped_rest(y + from * d.n, (rows - from) * d.n, tid, nt);                                \
  }

#endif
