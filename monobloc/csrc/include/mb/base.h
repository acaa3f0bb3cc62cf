/* Vectors of MB_VL floats, and the scalar functions that epilogues are written in.
 *
 * Every `mb_*` arithmetic function exists twice, for `float` and for `mb_vf`, under one name
 * (clang's overloadable), so that one expression text serves the vector body and the scalar tail
 * and gives the same bits in both. Only compiler vector extensions are used: the same source
 * compiles for 4, 8 and 16 lanes.
 */
#ifndef MB_BASE_H
#define MB_BASE_H

#include <stddef.h>
#include <stdint.h>

/* MB_VL: lanes of a float vector; MB_NVREG: vector registers. Generated code defines both. */
#ifndef MB_VL
#if defined(__AVX512F__)
#define MB_VL 16
#elif defined(__AVX__)
#define MB_VL 8
#else
#define MB_VL 4
#endif
#endif
#ifndef MB_NVREG
#if defined(__AVX512F__) || defined(__aarch64__)
#define MB_NVREG 32
#else
#define MB_NVREG 16
#endif
#endif

#define MB_INLINE static inline __attribute__((always_inline))
#define MB_OVERLOAD static inline __attribute__((always_inline, overloadable))
/* A leaf keeps its own register allocation: inlined into a large driver, accumulators are spilled. */
#define MB_LEAF static __attribute__((noinline))
#define MB_UNROLL _Pragma("clang loop unroll(full)")
/* Before a loop whose number of turns the run knows: the last, partial vector is a turn under a mask instead of a
 * turn for each of its elements, where the machine has masks. */
#if defined(__AVX512VL__)
#define MB_OPEN_LOOP _Pragma("clang loop vectorize(assume_safety) vectorize_predicate(enable)")
#else
#define MB_OPEN_LOOP _Pragma("clang loop vectorize(assume_safety)")
#endif
#define MB_UNROLL2 _Pragma("clang loop unroll_count(2)")

#define MB_NOUNROLL _Pragma("clang loop unroll(disable)")

typedef float mb_vf __attribute__((vector_size(4 * MB_VL)));
typedef int32_t mb_vm __attribute__((vector_size(4 * MB_VL))); /* comparison result: 0 or -1 per lane */
typedef float mb_vfu __attribute__((vector_size(4 * MB_VL), aligned(4), may_alias));

/* Where an element of a contraction's output lies: batch, row, column, channel of lane 0. */
typedef struct {
  long b, i, j, n;
} mb_ix;

/* An epilogue is one expression in two forms: whole vectors, and single elements of the tail. */
typedef mb_vf (*mb_epi_vf)(const void *ctx, mb_vf acc, mb_ix ix);
typedef float (*mb_epi_f)(const void *ctx, float acc, mb_ix ix);

MB_INLINE mb_vf mb_bcast(float x) { return x - (mb_vf){0}; } /* x - 0 keeps -0, 0 + x would not */
MB_INLINE mb_vf mb_zero(void) { return (mb_vf){0}; }
MB_INLINE mb_vf mb_load(const float *p) { return *(const mb_vfu *)p; }
MB_INLINE void mb_store(float *p, mb_vf v) { *(mb_vfu *)p = v; }
MB_INLINE long mb_min_long(long a, long b) { return a < b ? a : b; }
MB_INLINE long mb_max_long(long a, long b) { return a > b ? a : b; }

/* First n < MB_VL elements only; the other lanes are zero. Touches nothing behind p[n-1]. The run may choose n: one
 * load under a mask, where the machine has them, instead of a branch for every lane. */
#if MB_VL >= 8 && defined(__has_builtin)
#if __has_builtin(__builtin_masked_load)
#define MB_MASKED_LOADS
#endif
#endif
#ifdef MB_MASKED_LOADS
typedef float mb_vf_e __attribute__((ext_vector_type(MB_VL)));
typedef int32_t mb_vm_e __attribute__((ext_vector_type(MB_VL)));
typedef _Bool mb_vb_e __attribute__((ext_vector_type(MB_VL)));
MB_INLINE mb_vf mb_load_n(const float *p, int n) {
  mb_vm_e lane;
  MB_UNROLL for (int i = 0; i < MB_VL; i++) lane[i] = i;
  return (mb_vf)__builtin_masked_load(__builtin_convertvector(lane < n, mb_vb_e), p, (mb_vf_e)0.0f);
}
#else
MB_INLINE mb_vf mb_load_n(const float *p, int n) {
  mb_vf v = {0};
  MB_UNROLL for (int i = 0; i < MB_VL; i++) if (i < n) v[i] = p[i];
  return v;
}
#endif

/* Typed access for expression text: mb_ld(v, p) loads what the type of v asks for. */
MB_OVERLOAD float mb_ld(float like, const float *p) { (void)like; return *p; }
MB_OVERLOAD mb_vf mb_ld(mb_vf like, const float *p) { (void)like; return mb_load(p); }
MB_OVERLOAD float mb_splat(float like, float x) { (void)like; return x; }
MB_OVERLOAD mb_vf mb_splat(mb_vf like, float x) { (void)like; return mb_bcast(x); }

#define MB_BINARY(NAME, OP)                                              \
  MB_OVERLOAD float NAME(float a, float b) { return a OP b; }            \
  MB_OVERLOAD mb_vf NAME(mb_vf a, mb_vf b) { return a OP b; }            \
  MB_OVERLOAD mb_vf NAME(mb_vf a, float b) { return a OP mb_bcast(b); }  \
  MB_OVERLOAD mb_vf NAME(float a, mb_vf b) { return mb_bcast(a) OP b; }
MB_BINARY(mb_add, +)
MB_BINARY(mb_sub, -)
MB_BINARY(mb_mul, *)
MB_BINARY(mb_div, /)
#undef MB_BINARY

#define MB_COMPARE(NAME, OP)                                             \
  MB_OVERLOAD int NAME(float a, float b) { return a OP b; }              \
  MB_OVERLOAD mb_vm NAME(mb_vf a, mb_vf b) { return a OP b; }            \
  MB_OVERLOAD mb_vm NAME(mb_vf a, float b) { return a OP mb_bcast(b); }  \
  MB_OVERLOAD mb_vm NAME(float a, mb_vf b) { return mb_bcast(a) OP b; }
MB_COMPARE(mb_lt, <)
MB_COMPARE(mb_le, <=)
MB_COMPARE(mb_gt, >)
MB_COMPARE(mb_ge, >=)
MB_COMPARE(mb_eq, ==)
MB_COMPARE(mb_ne, !=)
#undef MB_COMPARE

MB_OVERLOAD int mb_and(int a, int b) { return a & b; }
MB_OVERLOAD mb_vm mb_and(mb_vm a, mb_vm b) { return a & b; }
MB_OVERLOAD int mb_or(int a, int b) { return a | b; }
MB_OVERLOAD mb_vm mb_or(mb_vm a, mb_vm b) { return a | b; }
MB_OVERLOAD int mb_xor(int a, int b) { return a ^ b; }
MB_OVERLOAD mb_vm mb_xor(mb_vm a, mb_vm b) { return a ^ b; }
MB_OVERLOAD int mb_not(int a) { return !a; }
MB_OVERLOAD mb_vm mb_not(mb_vm a) { return ~a; }

/* Blend by masks: clang's C has no `?:` on these vectors; LLVM turns this into one select. */
MB_OVERLOAD float mb_select(int m, float a, float b) { return m ? a : b; }
MB_OVERLOAD mb_vf mb_select(mb_vm m, mb_vf a, mb_vf b) {
  return (mb_vf)((m & (mb_vm)a) | (~m & (mb_vm)b));
}
MB_OVERLOAD mb_vf mb_select(mb_vm m, float a, mb_vf b) { return mb_select(m, mb_bcast(a), b); }
MB_OVERLOAD mb_vf mb_select(mb_vm m, mb_vf a, float b) { return mb_select(m, a, mb_bcast(b)); }
MB_OVERLOAD mb_vf mb_select(mb_vm m, float a, float b) {
  return mb_select(m, mb_bcast(a), mb_bcast(b));
}
MB_OVERLOAD float mb_select(float m, float a, float b) { return m != 0 ? a : b; }

/* Of the activations only this one is so common and so short that a file with it should not read math.h. */
MB_OVERLOAD float mb_relu(float x) { return mb_select(mb_lt(x, 0.0f), 0.0f, x); }
MB_OVERLOAD mb_vf mb_relu(mb_vf x) { return mb_select(mb_lt(x, mb_bcast(0.0f)), mb_bcast(0.0f), x); }

MB_OVERLOAD float mb_neg(float a) { return -a; }
MB_OVERLOAD mb_vf mb_neg(mb_vf a) { return -a; }
MB_OVERLOAD float mb_abs(float a) { return __builtin_fabsf(a); }
MB_OVERLOAD mb_vf mb_abs(mb_vf a) { return __builtin_elementwise_abs(a); }

/* max and min return NaN if either is NaN. `a > b ? a : b` is one x86 instruction and yields b
 * when either is NaN, so only a NaN in a is left to catch: give a constant as the first argument
 * and the check folds away. --numerics fast leaves it out. */
#ifdef MB_FAST_NAN
MB_OVERLOAD float mb_or_nan(float a, float t) { return t; }
MB_OVERLOAD mb_vf mb_or_nan(mb_vf a, mb_vf t) { return t; }
MB_OVERLOAD double mb_or_nan(double a, double t) { return t; }
#else
MB_OVERLOAD float mb_or_nan(float a, float t) { return a != a ? a : t; }
MB_OVERLOAD mb_vf mb_or_nan(mb_vf a, mb_vf t) { return mb_select(mb_ne(a, a), a, t); }
MB_OVERLOAD double mb_or_nan(double a, double t) { return a != a ? a : t; }
#endif

MB_OVERLOAD float mb_max(float a, float b) { return mb_or_nan(a, a > b ? a : b); }
MB_OVERLOAD mb_vf mb_max(mb_vf a, mb_vf b) {
  return mb_or_nan(a, mb_select(mb_gt(a, b), a, b));
}
MB_OVERLOAD mb_vf mb_max(float a, mb_vf b) { return mb_max(mb_bcast(a), b); }
MB_OVERLOAD mb_vf mb_max(mb_vf a, float b) { return mb_max(mb_bcast(b), a); }
MB_OVERLOAD float mb_min(float a, float b) { return mb_or_nan(a, a < b ? a : b); }
MB_OVERLOAD mb_vf mb_min(mb_vf a, mb_vf b) {
  return mb_or_nan(a, mb_select(mb_lt(a, b), a, b));
}
MB_OVERLOAD mb_vf mb_min(float a, mb_vf b) { return mb_min(mb_bcast(a), b); }
MB_OVERLOAD mb_vf mb_min(mb_vf a, float b) { return mb_min(mb_bcast(b), a); }

/* The partial results of a fold onto each other, in halves. Within one vector the upper half is moved down and
 * the whole vector combined: its lane 0 is what a loop over single lanes gives, and only that is read. */
#define MB_LANES 32
#if MB_VL == 16
#define MB_DOWN(v, h)                                                                                   \
  __builtin_shufflevector(v, v, (h), (h) + 1, (h) + 2, (h) + 3, (h) + 4, (h) + 5, (h) + 6, (h) + 7, -1, \
                          -1, -1, -1, -1, -1, -1, -1)
#elif MB_VL == 8
#define MB_DOWN(v, h) __builtin_shufflevector(v, v, (h), (h) + 1, (h) + 2, (h) + 3, -1, -1, -1, -1)
#elif MB_VL == 4
#define MB_DOWN(v, h) __builtin_shufflevector(v, v, (h), (h) + 1, -1, -1)
#endif
#define MB_FOLD_LANES(KIND, F)                                                                \
  MB_INLINE float mb_lanes_##KIND(const float *lane) {                                        \
    mb_vf v[MB_LANES / MB_VL];                                                                \
    MB_UNROLL for (int i = 0; i < MB_LANES / MB_VL; i++) v[i] = mb_load(lane + i * MB_VL);    \
    MB_UNROLL for (int h = MB_LANES / MB_VL / 2; h > 0; h /= 2)                               \
      MB_UNROLL for (int i = 0; i < h; i++) v[i] = F(v[i], v[i + h]);                         \
    if (MB_VL >= 16) v[0] = F(v[0], MB_DOWN(v[0], MB_VL >= 16 ? 8 : 0));                      \
    if (MB_VL >= 8) v[0] = F(v[0], MB_DOWN(v[0], MB_VL >= 8 ? 4 : 0));                        \
    v[0] = F(v[0], MB_DOWN(v[0], 2));                                                         \
    v[0] = F(v[0], MB_DOWN(v[0], 1));                                                         \
    return v[0][0];                                                                           \
  }
MB_FOLD_LANES(sum, mb_add)
MB_FOLD_LANES(prod, mb_mul)
MB_FOLD_LANES(max, mb_max)
MB_FOLD_LANES(min, mb_min)

/* One rounding where the machine can; two where it cannot (an fmaf call would cost 100x). */
#if defined(__FMA__) || defined(__aarch64__) || defined(__ARM_FEATURE_FMA) || defined(__riscv_f)
#define MB_HAS_FMA 1
MB_OVERLOAD float mb_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MB_OVERLOAD mb_vf mb_fma(mb_vf a, mb_vf b, mb_vf c) { return __builtin_elementwise_fma(a, b, c); }
#else
#define MB_HAS_FMA 0
MB_OVERLOAD float mb_fma(float a, float b, float c) { return a * b + c; }
MB_OVERLOAD mb_vf mb_fma(mb_vf a, mb_vf b, mb_vf c) { return a * b + c; }
#endif
MB_OVERLOAD mb_vf mb_fma(mb_vf a, float b, mb_vf c) { return mb_fma(a, mb_bcast(b), c); }
MB_OVERLOAD mb_vf mb_fma(float a, mb_vf b, mb_vf c) { return mb_fma(mb_bcast(a), b, c); }
MB_OVERLOAD mb_vf mb_fma(mb_vf a, mb_vf b, float c) { return mb_fma(a, b, mb_bcast(c)); }
MB_OVERLOAD mb_vf mb_fma(mb_vf a, float b, float c) {
  return mb_fma(a, mb_bcast(b), mb_bcast(c));
}

/* A step of a sum of products: one rounding, or, where contraction is forbidden, two. */
#ifdef MB_STRICT
#define MB_MAC(R, A, B, C) MB_OVERLOAD R mb_mac(A a, B b, C c) { return mb_add(mb_mul(a, b), c); }
#else
#define MB_MAC(R, A, B, C) MB_OVERLOAD R mb_mac(A a, B b, C c) { return mb_fma(a, b, c); }
#endif
MB_MAC(float, float, float, float)
MB_MAC(mb_vf, mb_vf, mb_vf, mb_vf)
MB_MAC(mb_vf, mb_vf, float, mb_vf)
MB_MAC(mb_vf, float, mb_vf, mb_vf)
#undef MB_MAC

/* The part [*lo, *hi) of n items that belongs to thread tid of nt. */
MB_INLINE void mb_share(long n, int tid, int nt, long *lo, long *hi) {
  *lo = n * tid / nt;
  *hi = n * (tid + 1) / nt;
}

#endif
