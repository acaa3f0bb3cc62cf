/* Operands of another type than float: a kernel computes in float, widens what it reads and rounds
 * what it stores once, half to even.
 *
 * The type is a constant of the descriptor, so after inlining there is one load left. Pointers are
 * `void`: mb_at steps in elements. Vector forms are the instruction where there is one (F16C, AArch64,
 * AVX-512), and the integer arithmetic of half.h where not. */
#ifndef MB_NARROW_H
#define MB_NARROW_H

#include "mb/half.h"

enum { MB_T_F32 = 0, MB_T_F16 = 1, MB_T_BF16 = 2, MB_T_I8 = 3, MB_T_I16 = 4, MB_T_U8 = 5 };

typedef uint32_t mb_vu __attribute__((vector_size(4 * MB_VL)));
typedef uint16_t mb_vu16 __attribute__((vector_size(2 * MB_VL)));
typedef uint16_t mb_vu16u __attribute__((vector_size(2 * MB_VL), aligned(2), may_alias));
typedef _Float16 mb_vhu __attribute__((vector_size(2 * MB_VL), aligned(2), may_alias));
typedef int8_t mb_v8u __attribute__((vector_size(MB_VL), aligned(1), may_alias));
typedef uint8_t mb_vu8u __attribute__((vector_size(MB_VL), aligned(1), may_alias));
typedef int16_t mb_v16u __attribute__((vector_size(2 * MB_VL), aligned(2), may_alias));
typedef float mb_float_a __attribute__((may_alias));
typedef _Float16 mb_f16_a __attribute__((may_alias));
typedef __bf16 mb_bf16_a __attribute__((may_alias));

MB_INLINE long mb_bytes(int type) { return type == MB_T_F32 ? 4 : type == MB_T_I8 || type == MB_T_U8 ? 1 : 2; }
MB_INLINE const void *mb_at(int type, const void *p, long n) { return (const char *)p + n * mb_bytes(type); }
MB_INLINE void *mb_at_out(int type, void *p, long n) { return (char *)p + n * mb_bytes(type); }

MB_INLINE mb_vu mbh_pick(mb_vm m, mb_vu a, mb_vu b) { return ((mb_vu)m & a) | (~(mb_vu)m & b); }

/* The vector forms of mbh_widen and mbh_narrow. */
MB_INLINE mb_vf mbh_widen_v(mb_vu16 h) {
  const mb_vu w = __builtin_convertvector(h, mb_vu);
  const mb_vu em = (w & 0x7fff) << 13, moved = em + (112u << 23);
  const mb_vu top = mbh_pick(em >= 31u << 23, moved + (112u << 23), moved);
  const mb_vu small = (mb_vu)((mb_vf)(moved + (1u << 23)) - 0x1p-14f);
  return (mb_vf)(mbh_pick(em < 1u << 23, small, top) | (w & 0x8000) << 16);
}
MB_INLINE mb_vu16 mbh_narrow_v(mb_vf x) {
  const mb_vu bits = (mb_vu)x, a = bits & 0x7fffffff;
  const mb_vu large = mbh_pick(a > 255u << 23, (mb_vu){0} + 0x7e00, (mb_vu){0} + 0x7c00);
  const mb_vu small = (mb_vu)((mb_vf)a + 0.5f) - (126u << 23);
  const mb_vu normal = (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13;
  const mb_vu r = mbh_pick(a >= 143u << 23, large, mbh_pick(a < 113u << 23, small, normal));
  return __builtin_convertvector(r | (bits >> 16 & 0x8000), mb_vu16);
}

MB_INLINE mb_vf mb_load_f16(const void *p) {
#if MB_HAS_F16
  return __builtin_convertvector(*(const mb_vhu *)p, mb_vf);
#else
  return mbh_widen_v(*(const mb_vu16u *)p);
#endif
}
MB_INLINE void mb_store_f16(void *p, mb_vf v) {
#if MB_HAS_F16
  *(mb_vhu *)p = __builtin_convertvector(v, mb_vhu);
#else
  *(mb_vu16u *)p = mbh_narrow_v(v);
#endif
}
MB_INLINE mb_vf mb_load_bf16(const void *p) {
  return (mb_vf)(__builtin_convertvector(*(const mb_vu16u *)p, mb_vu) << 16);
}
MB_INLINE void mb_store_bf16(void *p, mb_vf v) {
  const mb_vu bits = (mb_vu)v, even = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  *(mb_vu16u *)p = __builtin_convertvector(mbh_pick(v == v, even, bits >> 16 | 0x40), mb_vu16);
}

/* Element n of p, the vector from it on, and the first `count` lanes of that (the others are 0). */
MB_INLINE float mb_get(int type, const void *p, long n) {
  const void *q = mb_at(type, p, n);
  if (type == MB_T_F16) return mb_wide(*(const mb_f16_a *)q);
  if (type == MB_T_BF16) return mb_wide(*(const mb_bf16_a *)q);
  if (type == MB_T_I8) return *(const int8_t *)q;
  if (type == MB_T_U8) return *(const uint8_t *)q;
  if (type == MB_T_I16) return *(const int16_t *)q;
  return *(const mb_float_a *)q;
}
MB_INLINE mb_vf mb_get_v(int type, const void *p, long n) {
  const void *q = mb_at(type, p, n);
  if (type == MB_T_F16) return mb_load_f16(q);
  if (type == MB_T_BF16) return mb_load_bf16(q);
  if (type == MB_T_I8) return __builtin_convertvector(*(const mb_v8u *)q, mb_vf);
  if (type == MB_T_U8) return __builtin_convertvector(*(const mb_vu8u *)q, mb_vf);
  if (type == MB_T_I16) return __builtin_convertvector(*(const mb_v16u *)q, mb_vf);
  return mb_load((const float *)q);
}
MB_INLINE mb_vf mb_get_n(int type, const void *p, int count) {
  mb_vf v = {0};
  if (type == MB_T_F32) return mb_load_n((const float *)p, count);
  MB_UNROLL for (int i = 0; i < MB_VL; i++) if (i < count) v[i] = mb_get(type, p, i);
  return v;
}

/* Stores round to the type of the output: float or a half. */
MB_INLINE void mb_put(int type, void *p, long n, float x) {
  void *q = mb_at_out(type, p, n);
  if (type == MB_T_F16) *(mb_f16_a *)q = mb_f16(x);
  else if (type == MB_T_BF16) *(mb_bf16_a *)q = mb_bf16(x);
  else *(mb_float_a *)q = x;
}
MB_INLINE void mb_put_v(int type, void *p, long n, mb_vf v) {
  void *q = mb_at_out(type, p, n);
  if (type == MB_T_F16) mb_store_f16(q, v);
  else if (type == MB_T_BF16) mb_store_bf16(q, v);
  else mb_store((float *)q, v);
}
/* The first n lanes, and the last n. */
MB_INLINE void mb_put_n(int type, void *p, mb_vf v, int n) {
  MB_UNROLL for (int i = 0; i < MB_VL; i++) if (i < n) mb_put(type, p, i, v[i]);
}
MB_INLINE void mb_put_last(int type, void *p, mb_vf v, int n) {
  MB_UNROLL for (int i = 0; i < MB_VL; i++) if (i >= MB_VL - n) mb_put(type, p, i - (MB_VL - n), v[i]);
}

/* What epilogues read: halves, widened; and values rounded to a half as a cast in the model says. */
MB_OVERLOAD float mb_ld(float like, const _Float16 *p) { (void)like; return mb_wide(*p); }
MB_OVERLOAD mb_vf mb_ld(mb_vf like, const _Float16 *p) { (void)like; return mb_load_f16(p); }
MB_OVERLOAD float mb_ld(float like, const __bf16 *p) { (void)like; return mb_wide(*p); }
MB_OVERLOAD mb_vf mb_ld(mb_vf like, const __bf16 *p) { (void)like; return mb_load_bf16(p); }
MB_OVERLOAD float mb_splat(float like, _Float16 x) { (void)like; return mb_wide(x); }
MB_OVERLOAD mb_vf mb_splat(mb_vf like, _Float16 x) { (void)like; return mb_bcast(mb_wide(x)); }
MB_OVERLOAD float mb_splat(float like, __bf16 x) { (void)like; return mb_wide(x); }
MB_OVERLOAD mb_vf mb_splat(mb_vf like, __bf16 x) { (void)like; return mb_bcast(mb_wide(x)); }
#define MB_LD_STRIDED(T)                                                          \
  MB_OVERLOAD float mb_ld_strided(float like, const T *p, long step) {            \
    (void)like, (void)step;                                                       \
    return mb_wide(*p);                                                           \
  }                                                                               \
  MB_OVERLOAD mb_vf mb_ld_strided(mb_vf like, const T *p, long step) {            \
    (void)like;                                                                   \
    mb_vf v;                                                                      \
    MB_UNROLL for (int i = 0; i < MB_VL; i++) v[i] = mb_wide(p[i * step]);        \
    return v;                                                                     \
  }
MB_LD_STRIDED(_Float16)
MB_LD_STRIDED(__bf16)
#undef MB_LD_STRIDED
MB_OVERLOAD float mb_round_f16(float x) { return mb_wide(mb_f16(x)); }
MB_OVERLOAD float mb_round_bf16(float x) { return mb_wide(mb_bf16(x)); }
MB_OVERLOAD mb_vf mb_round_f16(mb_vf x) {
#if MB_HAS_F16
  return __builtin_convertvector(__builtin_convertvector(x, mb_vhu), mb_vf);
#else
  return mbh_widen_v(mbh_narrow_v(x));
#endif
}
MB_OVERLOAD mb_vf mb_round_bf16(mb_vf x) {
  uint16_t t[MB_VL];
  mb_store_bf16(t, x);
  return mb_load_bf16(t);
}

#endif
