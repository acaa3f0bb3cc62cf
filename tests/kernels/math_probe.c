/* Measures mb/math.h against libm in the next wider type; built and driven by test_math.py.
 * Every function is run as an auto-vectorized loop and as explicit vectors: the bits must agree. */
#include "mb/math.h"

typedef struct {
  double floor;                     /* in: below it, errors count in ulp of it */
  double worst, at, at2, got, want; /* largest error in ulp, and where */
  long wrong, differ;               /* special values that are wrong; scalar and vector disagree */
  double wrong_at, wrong_at2, wrong_got, wrong_want;
} report;

enum { BLOCK = 1024 };

double exp(double), exp2(double), expm1(double), log(double), log2(double), log1p(double);
double tanh(double), erf(double), erfc(double), sinh(double), cosh(double), asinh(double);
double acosh(double), atanh(double), sin(double), cos(double), tan(double), asin(double);
double acos(double), atan(double), atan2(double, double), pow(double, double);
double fmod(double, double), sqrt(double), floor(double), ceil(double), trunc(double);
double rint(double);

static double r_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double r_silu(double x) { return x / (1 + exp(-x)); }
static double r_gelu(double x) { return x * 0.5 * erfc(x * -0.70710678118654752440); }
static double r_gelu_tanh(double x) {
  return x / (1 + exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x)));
}
static double r_softplus(double x) { return x > 300 ? x : log1p(exp(x)); }
static double r_mish(double x) {
  double e = exp(x), n = e * (e + 2);
  return x > 300 ? x : x * (n / (n + 2));
}
static double r_rsqrt(double x) { return 1 / sqrt(x); }
static double r_reciprocal(double x) { return 1 / x; }
static double r_sign(double x) { return x != x ? x : x > 0 ? 1 : x < 0 ? -1 : 0; }
static double r_relu(double x) { return x < 0 ? 0 : x; }
static double r_softsign(double x) { return x / (1 + (x < 0 ? -x : x)); }
static double r_mod(double x, double y) {
  double r = fmod(x, y);
  if (r == 0) return mbm_with_sign(0.0, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

static double magnitude(double x) { return x < 0 ? -x : x; }

static void judge(report *r, double x, double x2, float got, double want, int differ) {
  r->differ += differ;
  double g = got, w = want;
  int bad = (g != g) != (w != w);
  if (!bad && w == w) {
    if (g == 0 && (float)w == 0) bad = __builtin_signbit(g) != __builtin_signbit(w);
    const double top = 0x1p128;
    g = g > top ? top : g < -top ? -top : g;
    w = w > top ? top : w < -top ? -top : w;
    double m = magnitude(w);
    if (m < r->floor) m = r->floor;
    double ulp = mbm_from_bits((mbm_bits(m) & (INT64_C(2047) << 52)) - (INT64_C(23) << 52));
    if (m < 0x1p-126) ulp = 0x1p-149;
    if (m >= top) ulp = 0x1p104;
    double error = magnitude(g - w) / ulp;
    if (error > r->worst) r->worst = error, r->at = x, r->at2 = x2, r->got = got, r->want = want;
  }
  if (bad && !r->wrong++)
    r->wrong_at = x, r->wrong_at2 = x2, r->wrong_got = got, r->wrong_want = want;
}

static int same(float a, float b) { return mbm_bits(a) == mbm_bits(b) || (a != a && b != b); }

#define ONE(NAME, REF)                                                                     \
  __attribute__((noinline)) static void s_##NAME(const float *x, float *y, long n) {       \
    for (long i = 0; i < n; i++) y[i] = mb_##NAME(x[i]);                                   \
  }                                                                                        \
  __attribute__((noinline)) static void v_##NAME(const float *x, float *y, long n) {       \
    for (long i = 0; i < n; i += MB_VL) mb_store(y + i, mb_##NAME(mb_load(x + i)));        \
  }                                                                                        \
  void check_##NAME(const float *x, const float *unused, long n, report *r) {              \
    float s[BLOCK], v[BLOCK];                                                              \
    (void)unused;                                                                          \
    for (long b = 0; b + BLOCK <= n; b += BLOCK) {                                         \
      s_##NAME(x + b, s, BLOCK);                                                           \
      v_##NAME(x + b, v, BLOCK);                                                           \
      for (long i = 0; i < BLOCK; i++)                                                     \
        judge(r, x[b + i], 0, s[i], REF((double)x[b + i]), !same(s[i], v[i]));             \
    }                                                                                      \
  }
#define TWO(NAME, REF)                                                                     \
  __attribute__((noinline)) static void s_##NAME(const float *x, const float *z, float *y) { \
    for (long i = 0; i < BLOCK; i++) y[i] = mb_##NAME(x[i], z[i]);                         \
  }                                                                                        \
  __attribute__((noinline)) static void v_##NAME(const float *x, const float *z, float *y) { \
    for (long i = 0; i < BLOCK; i += MB_VL)                                                \
      mb_store(y + i, mb_##NAME(mb_load(x + i), mb_load(z + i)));                          \
  }                                                                                        \
  void check_##NAME(const float *x, const float *z, long n, report *r) {                   \
    float s[BLOCK], v[BLOCK];                                                              \
    for (long b = 0; b + BLOCK <= n; b += BLOCK) {                                         \
      s_##NAME(x + b, z + b, s);                                                           \
      v_##NAME(x + b, z + b, v);                                                           \
      for (long i = 0; i < BLOCK; i++)                                                     \
        judge(r, x[b + i], z[b + i], s[i], REF((double)x[b + i], (double)z[b + i]),        \
              !same(s[i], v[i]));                                                          \
    }                                                                                      \
  }

ONE(exp, exp) ONE(exp2, exp2) ONE(expm1, expm1) ONE(log, log) ONE(log2, log2)
ONE(log1p, log1p) ONE(tanh, tanh) ONE(sigmoid, r_sigmoid) ONE(silu, r_silu) ONE(erf, erf)
ONE(gelu, r_gelu) ONE(gelu_tanh, r_gelu_tanh) ONE(softplus, r_softplus) ONE(mish, r_mish)
ONE(sinh, sinh) ONE(cosh, cosh) ONE(asinh, asinh) ONE(acosh, acosh) ONE(atanh, atanh)
ONE(sin, sin) ONE(cos, cos) ONE(tan, tan) ONE(asin, asin) ONE(acos, acos) ONE(atan, atan)
ONE(sqrt, sqrt) ONE(rsqrt, r_rsqrt) ONE(reciprocal, r_reciprocal) ONE(floor, floor)
ONE(ceil, ceil) ONE(trunc, trunc) ONE(round, rint) ONE(sign, r_sign) ONE(relu, r_relu)
ONE(softsign, r_softsign)
TWO(pow, pow) TWO(fmod, fmod) TWO(mod, r_mod) TWO(atan2, atan2)

/* The same for double, against long double where that is wider. */
#if __LDBL_MANT_DIG__ > 53
typedef long double wide;
wide expl(wide), exp2l(wide), expm1l(wide), logl(wide), log2l(wide), log1pl(wide), tanhl(wide);
wide erfl(wide), erfcl(wide), sinhl(wide), coshl(wide), asinhl(wide), acoshl(wide), atanhl(wide);
wide sinl(wide), cosl(wide), tanl(wide), asinl(wide), acosl(wide), atanl(wide), sqrtl(wide);
wide atan2l(wide, wide), powl(wide, wide), fmodl(wide, wide);

static wide w_sigmoid(wide x) { return 1 / (1 + expl(-x)); }
static wide w_silu(wide x) { return x / (1 + expl(-x)); }
static wide w_gelu(wide x) { return x * 0.5L * erfcl(x * -0.707106781186547524400844362104849L); }
static wide w_gelu_tanh(wide x) {
  return x / (1 + expl(-1.59576912160573071175978423973752L * (x + 0.044715L * x * x * x)));
}
static wide w_softplus(wide x) { return x > 300 ? x : log1pl(expl(x)); }
static wide w_mish(wide x) {
  wide e = expl(x), n = e * (e + 2);
  return x > 300 ? x : x * (n / (n + 2));
}
static wide w_reciprocal(wide x) { return 1 / x; }
static wide w_softsign(wide x) { return x / (1 + (x < 0 ? -x : x)); }
static wide w_rsqrt(wide x) { return 1 / sqrtl(x); }
static wide w_mod(wide x, wide y) {
  wide r = fmodl(x, y);
  if (r == 0) return mbm_with_sign(0.0, (double)y);
  return (r < 0) != (y < 0) ? r + y : r;
}

static void judge_d(report *r, double x, double x2, double got, wide w) {
  int bad = (got != got) != (w != w);
  wide g = got;
  r->differ = 0;
  if (!bad && w == w) {
    if (g == 0 && (double)w == 0) bad = __builtin_signbit(got) != __builtin_signbit((double)w);
    const wide top = 0x1p1024L;
    g = g > top ? top : g < -top ? -top : g;
    w = w > top ? top : w < -top ? -top : w;
    wide m = w < 0 ? -w : w;
    if (m < r->floor) m = r->floor;
    int64_t e = mbm_bits((double)m) >> 52;
    if ((double)m > m) e = mbm_bits(mbm_from_bits(mbm_bits((double)m) - 1)) >> 52;
    int64_t low = e < 1 ? 1 : INT64_C(1) << (e - 1); /* an ulp that is a denormal */
    wide ulp = e > 2045 ? 0x1p971L : mbm_from_bits(e < 53 ? low : (e - 52) << 52);
    wide error = (g < w ? w - g : g - w) / ulp;
    if (error > r->worst) {
      r->worst = (double)error, r->at = x, r->at2 = x2;
      r->got = got, r->want = (double)w;
    }
  }
  if (bad && !r->wrong++)
    r->wrong_at = x, r->wrong_at2 = x2, r->wrong_got = got, r->wrong_want = (double)w;
}

#define ONE_D(NAME, REF)                                                             \
  void check_d_##NAME(const double *x, const double *unused, long n, report *r) {    \
    (void)unused;                                                                    \
    for (long i = 0; i < n; i++) judge_d(r, x[i], 0, mb_##NAME(x[i]), REF((wide)x[i])); \
  }
#define TWO_D(NAME, REF)                                                             \
  void check_d_##NAME(const double *x, const double *z, long n, report *r) {         \
    for (long i = 0; i < n; i++)                                                     \
      judge_d(r, x[i], z[i], mb_##NAME(x[i], z[i]), REF((wide)x[i], (wide)z[i]));    \
  }
ONE_D(exp, expl) ONE_D(exp2, exp2l) ONE_D(expm1, expm1l) ONE_D(log, logl) ONE_D(log2, log2l)
ONE_D(log1p, log1pl) ONE_D(tanh, tanhl) ONE_D(sigmoid, w_sigmoid) ONE_D(silu, w_silu)
ONE_D(erf, erfl) ONE_D(gelu, w_gelu) ONE_D(gelu_tanh, w_gelu_tanh) ONE_D(softplus, w_softplus)
ONE_D(mish, w_mish) ONE_D(sinh, sinhl) ONE_D(cosh, coshl) ONE_D(asinh, asinhl)
ONE_D(acosh, acoshl) ONE_D(atanh, atanhl) ONE_D(sin, sinl) ONE_D(cos, cosl) ONE_D(tan, tanl)
ONE_D(asin, asinl) ONE_D(acos, acosl) ONE_D(atan, atanl) ONE_D(rsqrt, w_rsqrt)
ONE_D(sqrt, sqrtl)
ONE_D(reciprocal, w_reciprocal) ONE_D(softsign, w_softsign) ONE_D(sign, r_sign) ONE_D(relu, r_relu)
ONE_D(floor, floor) ONE_D(ceil, ceil) ONE_D(trunc, trunc) ONE_D(round, rint)
TWO_D(pow, powl) TWO_D(fmod, fmodl) TWO_D(mod, w_mod) TWO_D(atan2, atan2l)
#endif

/* base.h's functions for double, in the order of test_double_is_not_rounded. */
void doubles(const double *x, double *y) {
  y[0] = mb_abs(x[0]), y[1] = mb_neg(x[0]), y[2] = mb_max(x[0], x[1]), y[3] = mb_min(x[0], x[1]);
  y[4] = mb_fma(x[0], x[0], x[1]), y[5] = mb_max(x[0], x[2]), y[6] = mb_min(x[2], x[0]);
}

/* A constant beside a vector gives what the vector of constants gives. */
int mixed(void) {
  mb_vf x = mb_load((const float[16]){1.5f, 2.25f, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7});
  mb_vf y = mb_bcast(2.5f);
  int bad = 0;
  for (int i = 0; i < MB_VL; i++) {
    bad |= mb_pow(x, 2.5f)[i] != mb_pow(x, y)[i] || mb_pow(2.5f, x)[i] != mb_pow(y, x)[i];
    bad |= mb_fmod(x, 2.5f)[i] != mb_fmod(x, y)[i] || mb_mod(2.5f, x)[i] != mb_mod(y, x)[i];
    bad |= mb_atan2(x, 2.5f)[i] != mb_atan2(x, y)[i];
  }
  return bad;
}

/* Integers: whole arrays, compared in Python. */
#define INTEGERS(NAME, T)                                                                 \
  void int_##NAME(const T *a, const T *b, T *q, T *f, T *m, T *p, long n) {               \
    for (long i = 0; i < n; i++) {                                                        \
      q[i] = mb_idiv(a[i], b[i]), f[i] = mb_ifmod(a[i], b[i]), m[i] = mb_imod(a[i], b[i]); \
      p[i] = mb_ipow(a[i], b[i]);                                                         \
    }                                                                                     \
  }
INTEGERS(i8, int8_t) INTEGERS(i16, int16_t) INTEGERS(i32, int32_t) INTEGERS(i64, int64_t)
INTEGERS(u8, uint8_t) INTEGERS(u16, uint16_t) INTEGERS(u32, uint32_t) INTEGERS(u64, uint64_t)

#define CASTS(NAME, T)                                                                    \
  void cast_##NAME(const float *x, const double *d, T *c, T *cd, T *s, T *sd, long n) {   \
    for (long i = 0; i < n; i++) {                                                        \
      c[i] = mb_cast_##NAME(x[i]), cd[i] = mb_cast_##NAME(d[i]);                          \
      s[i] = mb_sat_##NAME(x[i]), sd[i] = mb_sat_##NAME(d[i]);                            \
    }                                                                                     \
  }
CASTS(i8, int8_t) CASTS(i16, int16_t) CASTS(i32, int32_t) CASTS(i64, int64_t)
CASTS(u8, uint8_t) CASTS(u16, uint16_t) CASTS(u32, uint32_t) CASTS(u64, uint64_t)
