/* Inverses of square matrices, one after another: Gauss and Jordan's elimination with the largest pivot of a column.
 * A matrix without an inverse gives infinities or NaN. work has room for n * n numbers. */
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

#endif
