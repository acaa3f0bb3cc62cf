/* What epilogues are made of where values are no floats: vectors of int32, conversions, operands.
 *
 * The text of an epilogue is the same for all kernels and for whole vectors and single elements, so every
 * function here is overloaded. Sums are float (halves too) or int32; smaller integers are int32 until they are stored.
 * What floats need is in mb/base.h, halves in mb/narrow.h.
 */
#ifndef MB_EPILOGUE_H
#define MB_EPILOGUE_H

#include "mb/narrow.h"

typedef mb_vm mb_vi;
typedef int32_t mb_viu __attribute__((vector_size(4 * MB_VL), aligned(4), may_alias));
typedef int8_t mb_vb __attribute__((vector_size(MB_VL)));

typedef mb_vi (*mb_epi_vi)(const void *ctx, mb_vi acc, mb_ix ix);
typedef int32_t (*mb_epi_i)(const void *ctx, int32_t acc, mb_ix ix);

/* -- vectors of int32; + and * wrap around ------------------------------------------------------ */
MB_OVERLOAD mb_vi mb_add(mb_vi a, mb_vi b) { return (mb_vi)((mb_vu)a + (mb_vu)b); }
MB_OVERLOAD mb_vi mb_sub(mb_vi a, mb_vi b) { return (mb_vi)((mb_vu)a - (mb_vu)b); }
MB_OVERLOAD mb_vi mb_mul(mb_vi a, mb_vi b) { return (mb_vi)((mb_vu)a * (mb_vu)b); }
MB_INLINE mb_vi mb_ibcast(int32_t x) { return (mb_vi){0} + x; }
MB_INLINE mb_vi mb_iload(const void *p) { return *(const mb_viu *)p; }
MB_INLINE void mb_istore(void *p, mb_vi v) { *(mb_viu *)p = v; }
#define MB_MIXED(NAME)                                                                 \
  MB_OVERLOAD mb_vi NAME(mb_vi a, int32_t b) { return NAME(a, mb_ibcast(b)); }         \
  MB_OVERLOAD mb_vi NAME(int32_t a, mb_vi b) { return NAME(mb_ibcast(a), b); }
MB_MIXED(mb_add)
MB_MIXED(mb_sub)
MB_OVERLOAD mb_vi mb_max(mb_vi a, mb_vi b) { return (mb_vi)mb_select(a > b, (mb_vf)a, (mb_vf)b); }
MB_OVERLOAD mb_vi mb_min(mb_vi a, mb_vi b) { return (mb_vi)mb_select(a < b, (mb_vf)a, (mb_vf)b); }
MB_MIXED(mb_mul)
MB_MIXED(mb_max)
MB_MIXED(mb_min)
#undef MB_MIXED
MB_OVERLOAD int32_t mb_add(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
MB_OVERLOAD int32_t mb_sub(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
MB_OVERLOAD int32_t mb_mul(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }

/* -- conversions: the value stays, but for bits ---------------------------------------------------- */
/* A float that becomes an integer has been cut to its range. */
MB_OVERLOAD mb_vf mb_float_of(mb_vi a) { return __builtin_convertvector(a, mb_vf); }
MB_OVERLOAD float mb_float_of(int32_t a) { return (float)a; }
MB_OVERLOAD mb_vi mb_int_of(mb_vf a) { return __builtin_convertvector(a, mb_vi); }
MB_OVERLOAD int32_t mb_int_of(float a) { return (int32_t)a; }
MB_OVERLOAD mb_vi mb_bits_of(mb_vf a) { return (mb_vi)a; }
MB_OVERLOAD mb_vi mb_bits_of(mb_vi a) { return a; }
MB_OVERLOAD int32_t mb_bits_of(float a) {
  int32_t i;
  __builtin_memcpy(&i, &a, 4);
  return i;
}
MB_OVERLOAD int32_t mb_bits_of(int32_t a) { return a; }

/* -- operands beside sums of int32: along the lanes, or one for all -------------------------------- */
MB_OVERLOAD mb_vf mb_ld(mb_vi like, const float *p) { (void)like; return mb_load(p); }
MB_OVERLOAD float mb_ld(int32_t like, const float *p) { (void)like; return *p; }
MB_OVERLOAD mb_vi mb_ld(mb_vi like, const int32_t *p) { (void)like; return mb_iload(p); }
MB_OVERLOAD int32_t mb_ld(int32_t like, const int32_t *p) { (void)like; return *p; }
MB_OVERLOAD mb_vi mb_ld(mb_vi like, const int8_t *p) {
  (void)like;
  return __builtin_convertvector(*(const mb_v8u *)p, mb_vi);
}
MB_OVERLOAD int32_t mb_ld(int32_t like, const int8_t *p) { (void)like; return *p; }
MB_OVERLOAD mb_vi mb_ld(mb_vi like, const uint8_t *p) {
  (void)like;
  return __builtin_convertvector(*(const mb_vu8u *)p, mb_vi);
}
MB_OVERLOAD int32_t mb_ld(int32_t like, const uint8_t *p) { (void)like; return *p; }
MB_OVERLOAD mb_vi mb_ld(mb_vi like, const int16_t *p) {
  (void)like;
  return __builtin_convertvector(*(const mb_v16u *)p, mb_vi);
}
MB_OVERLOAD int32_t mb_ld(int32_t like, const int16_t *p) { (void)like; return *p; }
MB_OVERLOAD mb_vi mb_ld(mb_vi like, const uint16_t *p) {
  (void)like;
  return __builtin_convertvector(*(const mb_vu16u *)p, mb_vi);
}
MB_OVERLOAD int32_t mb_ld(int32_t like, const uint16_t *p) { (void)like; return *p; }
MB_OVERLOAD mb_vf mb_splat(mb_vi like, float x) { (void)like; return mb_bcast(x); }
MB_OVERLOAD float mb_splat(int32_t like, float x) { (void)like; return x; }
MB_OVERLOAD mb_vi mb_splat(mb_vi like, int32_t x) { (void)like; return mb_ibcast(x); }
MB_OVERLOAD int32_t mb_splat(int32_t like, int32_t x) { (void)like; return x; }
#define MB_STRIDED(T, R, V)                                                           \
  MB_OVERLOAD R mb_ld_strided(int32_t like, const T *p, long step) {                  \
    (void)like, (void)step;                                                           \
    return *p;                                                                        \
  }                                                                                   \
  MB_OVERLOAD V mb_ld_strided(mb_vi like, const T *p, long step) {                    \
    (void)like;                                                                       \
    V v;                                                                              \
    MB_UNROLL for (int i = 0; i < MB_VL; i++) v[i] = p[i * step];                     \
    return v;                                                                         \
  }
MB_STRIDED(float, float, mb_vf)
MB_STRIDED(int32_t, int32_t, mb_vi)
MB_STRIDED(int8_t, int32_t, mb_vi)
MB_STRIDED(uint8_t, int32_t, mb_vi)
MB_STRIDED(int16_t, int32_t, mb_vi)
MB_STRIDED(uint16_t, int32_t, mb_vi)
#undef MB_STRIDED

#endif
