/* Transposition of a matrix in memory, by squares that are turned in registers.
 *
 *   mb_turn4(y, ys, x, xs, n, m):   y[i * ys + j] = x[j * xs + i],  i < n, j < m;  elements of 4 bytes
 *
 * An element at a time, one side would be strided: a line of cache for every element, and no vectors. Squares take
 * whole vectors on both sides. What is left at the edges goes by elements. Bits are moved as they are.
 */
#ifndef MB_TURN_H
#define MB_TURN_H

#include "mb/base.h"

#define MB_ZIP2(A, B, LO) __builtin_shufflevector(A, B, LO, LO + 2)
#define MB_ZIP4(A, B, LO) __builtin_shufflevector(A, B, LO, LO + 4, LO + 1, LO + 5)
#define MB_ZIP8(A, B, LO) \
  __builtin_shufflevector(A, B, LO, LO + 8, LO + 1, LO + 9, LO + 2, LO + 10, LO + 3, LO + 11)
#define MB_ZIP16(A, B, LO)                                                                                          \
  __builtin_shufflevector(A, B, LO, LO + 16, LO + 1, LO + 17, LO + 2, LO + 18, LO + 3, LO + 19, LO + 4, LO + 20,    \
                          LO + 5, LO + 21, LO + 6, LO + 22, LO + 7, LO + 23)

/* A square of N vectors of N lanes: each step moves one bit of the index from the row to the column. */
#define MB_TURN_SQUARE(NAME, V, N, ZIP)                                                   \
  MB_INLINE void NAME(V v[N]) {                                                           \
    MB_UNROLL for (int step = N; step > 1; step /= 2) {                                   \
      V t[N];                                                                             \
      MB_UNROLL for (int i = 0; i < N / 2; i++)                                           \
        t[2 * i] = ZIP(v[i], v[i + N / 2], 0), t[2 * i + 1] = ZIP(v[i], v[i + N / 2], N / 2); \
      MB_UNROLL for (int i = 0; i < N; i++) v[i] = t[i];                                  \
    }                                                                                     \
  }

#define MB_TURN(NAME, T, N, ZIP)                                                                  \
  typedef T NAME##_v __attribute__((vector_size(N * sizeof(T))));                                 \
  typedef T NAME##_u __attribute__((vector_size(N * sizeof(T)), aligned(sizeof(T)), may_alias));  \
  typedef T NAME##_t __attribute__((may_alias));                                                  \
  MB_TURN_SQUARE(NAME##_square, NAME##_v, N, ZIP)                                                 \
  MB_INLINE void NAME(void *y_, long ys, const void *x_, long xs, long n, long m) {               \
    NAME##_t *y = (NAME##_t *)y_;                                                                 \
    const NAME##_t *x = (const NAME##_t *)x_;                                                     \
    long i = 0;                                                                                   \
    MB_NOUNROLL for (; i + N <= n; i += N) {                                                      \
      long j = 0;                                                                                 \
      MB_NOUNROLL for (; j + N <= m; j += N) {                                                    \
        NAME##_v v[N];                                                                            \
        MB_UNROLL for (int r = 0; r < N; r++) v[r] = *(const NAME##_u *)(x + (j + r) * xs + i);   \
        NAME##_square(v);                                                                         \
        MB_UNROLL for (int r = 0; r < N; r++) *(NAME##_u *)(y + (i + r) * ys + j) = v[r];         \
      }                                                                                           \
      for (long r = i; r < i + N; r++)                                                            \
        for (long c = j; c < m; c++) y[r * ys + c] = x[c * xs + r];                               \
    }                                                                                             \
    for (; i < n; i++)                                                                            \
      for (long j = 0; j < m; j++) y[i * ys + j] = x[j * xs + i];                                 \
  }

MB_TURN(mb_turn1, uint8_t, 16, MB_ZIP16)
MB_TURN(mb_turn2, uint16_t, 8, MB_ZIP8)
#if MB_VL == 16
MB_TURN(mb_turn4, uint32_t, 16, MB_ZIP16)
MB_TURN(mb_turn8, uint64_t, 8, MB_ZIP8)
#elif MB_VL == 8
MB_TURN(mb_turn4, uint32_t, 8, MB_ZIP8)
MB_TURN(mb_turn8, uint64_t, 4, MB_ZIP4)
#else
MB_TURN(mb_turn4, uint32_t, 4, MB_ZIP4)
MB_TURN(mb_turn8, uint64_t, 2, MB_ZIP2)
#endif

#endif
