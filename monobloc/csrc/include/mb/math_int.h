/* Integer arithmetic and conversions without undefined behaviour or traps, for mb/math.h.
 *
 * C leaves x / 0, INT_MIN / -1, signed overflow and conversions out of range undefined, and x86
 * traps on the first two. Here each has one answer, the same on every target; overflow wraps. */

/* mb_idiv truncates, x / 0 is 0. mb_ifmod is its remainder (sign of a), mb_imod has the sign of b,
 * as Python has it; both are 0 for b = 0. mb_ipow: negative powers are 0 but for a = 1 and -1. */
#define MBM_INTEGER(T, U)                                              \
  MB_OVERLOAD T mb_iadd(T a, T b) { return (T)((U)a + (U)b); }         \
  MB_OVERLOAD T mb_isub(T a, T b) { return (T)((U)a - (U)b); }         \
  MB_OVERLOAD T mb_imul(T a, T b) { return (T)((uint64_t)a * (uint64_t)b); } \
  MB_OVERLOAD T mb_ipow(T a, T n) {                                    \
    uint64_t r = 1, s = (uint64_t)a, e = (uint64_t)n;                  \
    if (MBM_NEGATIVE(T, n)) return a == 1 ? 1 : MBM_MINUS_ONE(T, a) ? (n & 1 ? a : 1) : 0; \
    for (; e; e >>= 1, s *= s)                                         \
      if (e & 1) r *= s;                                               \
    return (T)r;                                                       \
  }
#define MBM_NEGATIVE(T, n) ((T)-1 < (T)1 && (n) < (T)1 && (n) != (T)0)
#define MBM_MINUS_ONE(T, b) ((T)-1 < (T)1 && (b) == (T)-1)

#define MBM_SIGNED(T, U)                                               \
  MBM_INTEGER(T, U)                                                    \
  MB_OVERLOAD T mb_ineg(T a) { return (T)(0 - (U)a); }                 \
  MB_OVERLOAD T mb_iabs(T a) { return a < 0 ? (T)(0 - (U)a) : a; }     \
  MB_OVERLOAD T mb_isign(T a) { return (T)((a > 0) - (a < 0)); }       \
  MB_OVERLOAD T mb_idiv(T a, T b) {                                    \
    T q = (T)(a / (b == 0 || b == -1 ? (T)1 : b));                     \
    return b == 0 ? (T)0 : b == -1 ? mb_ineg(a) : q;                   \
  }                                                                    \
  MB_OVERLOAD T mb_ifmod(T a, T b) { return (T)(a % (b == 0 || b == -1 ? (T)1 : b)); } \
  MB_OVERLOAD T mb_imod(T a, T b) {                                    \
    T r = mb_ifmod(a, b);                                              \
    return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;              \
  }
#define MBM_UNSIGNED(T)                                                \
  MBM_INTEGER(T, T)                                                    \
  MB_OVERLOAD T mb_ineg(T a) { return (T)(0 - a); }                    \
  MB_OVERLOAD T mb_iabs(T a) { return a; }                             \
  MB_OVERLOAD T mb_isign(T a) { return a > 0; }                        \
  MB_OVERLOAD T mb_idiv(T a, T b) { return b == 0 ? (T)0 : (T)(a / (b == 0 ? (T)1 : b)); } \
  MB_OVERLOAD T mb_ifmod(T a, T b) { return (T)(a % (b == 0 ? (T)1 : b)); } \
  MB_OVERLOAD T mb_imod(T a, T b) { return mb_ifmod(a, b); }

MBM_SIGNED(int8_t, uint8_t)
MBM_SIGNED(int16_t, uint16_t)
MBM_SIGNED(int32_t, uint32_t)
MBM_SIGNED(int64_t, uint64_t)
MBM_UNSIGNED(uint8_t)
MBM_UNSIGNED(uint16_t)
MBM_UNSIGNED(uint32_t)
MBM_UNSIGNED(uint64_t)
#undef MBM_SIGNED
#undef MBM_UNSIGNED
#undef MBM_INTEGER
#undef MBM_NEGATIVE
#undef MBM_MINUS_ONE

/* What x86 does, and with it numpy and onnxruntime: truncate through int32 (8 and 16 bits, then
 * wrap) or int64 (uint32); what does not fit, NaN included, is the most negative integer. */
#define MBM_CAST(F, LOW32, TOP32, TOP64, TOPU64)                       \
  MB_OVERLOAD int32_t mb_cast_i32(F x) {                               \
    return (int32_t)(x > LOW32 && x < TOP32 ? x : -TOP32);             \
  }                                                                    \
  MB_OVERLOAD int64_t mb_cast_i64(F x) {                               \
    return (int64_t)(x >= -TOP64 && x < TOP64 ? x : -TOP64);           \
  }                                                                    \
  MB_OVERLOAD int8_t mb_cast_i8(F x) { return (int8_t)mb_cast_i32(x); }    \
  MB_OVERLOAD int16_t mb_cast_i16(F x) { return (int16_t)mb_cast_i32(x); } \
  MB_OVERLOAD uint8_t mb_cast_u8(F x) { return (uint8_t)mb_cast_i32(x); }  \
  MB_OVERLOAD uint16_t mb_cast_u16(F x) { return (uint16_t)mb_cast_i32(x); } \
  MB_OVERLOAD uint32_t mb_cast_u32(F x) { return (uint32_t)mb_cast_i64(x); } \
  MB_OVERLOAD uint64_t mb_cast_u64(F x) {                              \
    int high = x >= TOP64 && x < TOPU64;                               \
    uint64_t r = (uint64_t)mb_cast_i64(high ? x - TOP64 : x);          \
    return high ? r ^ (UINT64_C(1) << 63) : r;                         \
  }                                                                    \
  MB_OVERLOAD uint8_t mb_cast_bool(F x) { return x != 0; }             \
  /* The nearest value that fits, after truncation; NaN is 0. */       \
  MB_OVERLOAD int32_t mb_sat_i32(F x) {                                \
    int32_t r = mb_cast_i32(x);                                        \
    return x >= TOP32 ? INT32_MAX : x != x ? 0 : r;                    \
  }                                                                    \
  MB_OVERLOAD int64_t mb_sat_i64(F x) {                                \
    int64_t r = mb_cast_i64(x);                                        \
    return x >= TOP64 ? INT64_MAX : x != x ? 0 : r;                    \
  }                                                                    \
  MB_OVERLOAD uint32_t mb_sat_u32(F x) {                               \
    uint32_t r = mb_cast_u32(x);                                       \
    return x >= TOP32 + TOP32 ? UINT32_MAX : !(x > 0) ? 0 : r;         \
  }                                                                    \
  MB_OVERLOAD uint64_t mb_sat_u64(F x) {                               \
    uint64_t r = mb_cast_u64(x);                                       \
    return x >= TOPU64 ? UINT64_MAX : !(x > 0) ? 0 : r;                \
  }                                                                    \
  MBM_SATURATE(F, i8, int8_t, -128, 127)                               \
  MBM_SATURATE(F, i16, int16_t, -32768, 32767)                         \
  MBM_SATURATE(F, u8, uint8_t, 0, 255)                                 \
  MBM_SATURATE(F, u16, uint16_t, 0, 65535)
#define MBM_SATURATE(F, NAME, T, LO, HI)                               \
  MB_OVERLOAD T mb_sat_##NAME(F x) {                                   \
    x = x < HI ? x : x == x ? HI : 0;                                  \
    return (T)(int32_t)(x > LO ? x : LO);                              \
  }
MBM_CAST(float, -0x1.000002p31f, 0x1p31f, 0x1p63f, 0x1p64f)
MBM_CAST(double, -2147483649.0, 0x1p31, 0x1p63, 0x1p64)
#undef MBM_CAST
#undef MBM_SATURATE
