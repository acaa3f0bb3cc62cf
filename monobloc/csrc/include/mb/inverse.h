/* Inverses and determinants of square matrices, one after another, by elimination with the largest pivot of a column.
 * A matrix without an inverse gives infinities or NaN; one that is not finite has the determinant NaN. work has room for
 * n * n numbers. */
#ifndef MB_INVERSE_H
#define MB_INVERSE_H

#include "mb/base.h"

#define MB_INVERSE(T)                                                                       \
  MB_OVERLOAD void mb_inverse_swap(long n, T *a, long i, long j) {                          \
    for (long k = 0; k < n; k++) {                                                          \
      const T t = a[i * n + k];                                                             \
      a[i * n + k] = a[j * n + k];                                                          \
      a[j * n + k] = t;                                                                     \
    }                                                                                       \
  }                                                                                         \
  MB_OVERLOAD void mb_inverse_one(long n, const T *x, T *work, T *y) {                      \
    for (long i = 0; i < n * n; i++) work[i] = x[i], y[i] = i / n == i % n;                 \
    for (long c = 0; c < n; c++) {                                                          \
      long best = c;                                                                        \
      for (long r = c + 1; r < n; r++) {                                                    \
        const T v = work[r * n + c], w = work[best * n + c];                                \
        if ((v < 0 ? -v : v) > (w < 0 ? -w : w)) best = r;                                  \
      }                                                                                     \
      mb_inverse_swap(n, work, c, best);                                                    \
      mb_inverse_swap(n, y, c, best);                                                       \
      const T by = 1 / work[c * n + c];                                                     \
      for (long k = 0; k < n; k++) work[c * n + k] *= by, y[c * n + k] *= by;               \
      for (long r = 0; r < n; r++) {                                                        \
        const T f = work[r * n + c];                                                        \
        if (r == c) continue;                                                               \
        for (long k = 0; k < n; k++) {                                                      \
          work[r * n + k] -= f * work[c * n + k];                                           \
          y[r * n + k] -= f * y[c * n + k];                                                 \
        }                                                                                   \
      }                                                                                     \
    }                                                                                       \
  }                                                                                         \
  MB_OVERLOAD void mb_inverse_run(long count, long n, const T *x, T *work, T *y) {          \
    for (long i = 0; i < count; i++) mb_inverse_one(n, x + i * n * n, work, y + i * n * n); \
  }
MB_INVERSE(float)
MB_INVERSE(double)
#undef MB_INVERSE

MB_INLINE double mb_inverse_det(long n, const double *x, double *work) {
  double det = 1, finite = 0;
  for (long i = 0; i < n * n; i++) work[i] = x[i], finite += x[i] * 0;
  if (finite != 0) return finite;
  for (long c = 0; c < n; c++) {
    long best = c;
    for (long r = c + 1; r < n; r++)
      if (mb_abs(work[r * n + c]) > mb_abs(work[best * n + c])) best = r;
    if (best != c) mb_inverse_swap(n, work, c, best), det = -det;
    det *= work[c * n + c];
    if (work[c * n + c] == 0) return det;
    for (long r = c + 1; r < n; r++) {
      const double f = work[r * n + c] / work[c * n + c];
      for (long k = c + 1; k < n; k++) work[r * n + k] -= f * work[c * n + k];
    }
  }
  return det;
}

#endif
