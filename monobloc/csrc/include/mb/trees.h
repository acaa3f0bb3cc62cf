/* Ensembles of decision trees as tables.
 *
 * A node compares one column with a limit and says where to go on; a negative place is a leaf, ~place its number.
 * Leaves hold (target, weight) entries, leaf k those of [start[k], start[k + 1]). Bit 3 of a mode: NaN goes where
 * yes goes. Trees are summed in order, in the type of x; threads part rows. */
#ifndef MB_TREES_H
#define MB_TREES_H

#include "mb/base.h"

enum { MB_TREE_LEQ, MB_TREE_LT, MB_TREE_GTE, MB_TREE_GT, MB_TREE_EQ, MB_TREE_NEQ, MB_TREE_NAN = 8 };
enum { MB_TREES_SUM, MB_TREES_AVERAGE, MB_TREES_MIN, MB_TREES_MAX };

typedef struct {
  long rows, columns, trees, targets;
  int aggregate, mode; /* mode: of all nodes, or -1 and each has its own */
} mb_trees;

typedef struct {
  const int32_t *root, *column, *yes, *no, *start, *target;
  const uint8_t *mode;
} mb_tree_tables;

#define MB_TREES(T)                                                                                            \
  MB_OVERLOAD int mb_tree_yes(int mode, T x, T limit) {                                                        \
    switch (mode & 7) {                                                                                        \
      case MB_TREE_LEQ: return x <= limit;                                                                     \
      case MB_TREE_LT: return x < limit;                                                                       \
      case MB_TREE_GTE: return x >= limit;                                                                     \
      case MB_TREE_GT: return x > limit;                                                                       \
      case MB_TREE_EQ: return x == limit;                                                                      \
      default: return x != limit;                                                                              \
    }                                                                                                          \
  }                                                                                                            \
  MB_OVERLOAD int32_t mb_tree_leaf(const mb_trees *d, const mb_tree_tables *t, const T *limit, const T *x,     \
                                   int32_t at) {                                                               \
    while (at >= 0) {                                                                                          \
      const T v = x[t->column[at]];                                                                            \
      const int mode = d->mode >= 0 ? d->mode : t->mode[at];                                                   \
      at = mb_tree_yes(mode, v, limit[at]) || ((mode & MB_TREE_NAN) && v != v) ? t->yes[at] : t->no[at];       \
    }                                                                                                          \
    return ~at;                                                                                                \
  }                                                                                                            \
  MB_OVERLOAD T mb_tree_joined(int aggregate, T a, T b) {                                                      \
    if (aggregate == MB_TREES_MIN) return b < a ? b : a;                                                       \
    return aggregate == MB_TREES_MAX ? (b > a ? b : a) : a + b;                                                \
  }                                                                                                            \
  MB_OVERLOAD void mb_trees_run(mb_trees d, mb_tree_tables t, const T *limit, const T *weight, const T *x,     \
                                T *y, int tid, int nt) {                                                       \
    const T none = d.aggregate == MB_TREES_MIN   ? (T)__builtin_inff()                                         \
                   : d.aggregate == MB_TREES_MAX ? -(T)__builtin_inff()                                        \
                                                 : (T)0;                                                       \
    long lo, hi;                                                                                               \
    mb_share(d.rows, tid, nt, &lo, &hi);                                                                       \
    for (long i = lo; i < hi; i++) {                                                                           \
      T *out = y + i * d.targets;                                                                              \
      for (long k = 0; k < d.targets; k++) out[k] = none;                                                      \
      for (long r = 0; r < d.trees; r++) {                                                                     \
        const int32_t leaf = mb_tree_leaf(&d, &t, limit, x + i * d.columns, t.root[r]);                        \
        for (int32_t e = t.start[leaf]; e < t.start[leaf + 1]; e++) {                                          \
          T *at = out + t.target[e];                                                                           \
          *at = mb_tree_joined(d.aggregate, *at, weight[e]);                                                   \
        }                                                                                                      \
      }                                                                                                        \
      for (long k = 0; k < d.targets; k++) {                                                                   \
        if (none != 0 && out[k] == none) out[k] = 0;                                                           \
        if (d.aggregate == MB_TREES_AVERAGE) out[k] /= (T)d.trees;                                             \
      }                                                                                                        \
    }                                                                                                          \
  }
MB_TREES(float)
MB_TREES(double)
#undef MB_TREES

#endif
