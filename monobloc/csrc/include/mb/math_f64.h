/* The functions of mb/math.h for `double`, scalars only: models in float64 are rare, so this is
 * written for accuracy first. The identities are those of math_f32.h; there each is explained. */

static const double mbm_c_exp[] = {
    0x1p-1, 0x1.555555555555dp-3, 0x1.555555555556cp-5, 0x1.111111110e548p-7,
    0x1.6c16c16c0a467p-10, 0x1.a01a01b5f5b4fp-13, 0x1.a01a01e86e851p-16, 0x1.71ddea63e79a5p-19,
    0x1.27e4464969259p-22, 0x1.af75844d36407p-26, 0x1.2064e7256e1d4p-29};
static const double mbm_c_expm1[] = {
    0x1p-1, 0x1.5555555555559p-3, 0x1.5555555555559p-5, 0x1.111111110f6f4p-7,
    0x1.6c16c16c1642p-10, 0x1.a01a01af27413p-13, 0x1.a01a019e516abp-16, 0x1.71ddfb8b99d3p-19,
    0x1.27e4fd3688edp-22, 0x1.af57603bc44cap-26, 0x1.1f2a9351a38aap-29};
static const double mbm_c_exp2[] = {
    0x1.62e42fefa39efp-1, 0x1.ebfbdff82c58fp-3, 0x1.c6b08d704a0c1p-5, 0x1.3b2ab6fba4e7bp-7,
    0x1.5d87fe78a6245p-10, 0x1.430912f86ac78p-13, 0x1.ffcbfc5aa83d4p-17, 0x1.62c02245f94abp-20,
    0x1.b525362c90b2ap-24, 0x1.e4cf03db725e3p-28, 0x1.e8e14685544b6p-32, 0x1.c4b580bac3328p-36,
    0x1.6613fe1ecccadp-40};
static const double mbm_c_log[] = {
    0x1.5555555555555p-1, 0x1.9999999999d1p-2, 0x1.249249243998dp-2, 0x1.c71c724b495b1p-3,
    0x1.745ce1d104a11p-3, 0x1.3b20235b36696p-3, 0x1.0f6756ca16829p-3, 0x1.0f0d75eb6622ep-3};
static const double mbm_c_log_pow[] = {
    0x1.9999999999996p-2, 0x1.2492492492f51p-2, 0x1.c71c71c59689p-3, 0x1.745d18295e27bp-3,
    0x1.3b1364c5e43d6p-3, 0x1.11206fe80e37ap-3, 0x1.de3d4a0774c15p-4, 0x1.eac74c566afa3p-4};
static const double mbm_c_erf[] = {
    0x1.06eba8214db69p-3, -0x1.812746b037a25p-2, 0x1.ce2f21a0458d6p-4, -0x1.b82ce31354becp-6,
    0x1.565bcd2c60549p-8, -0x1.c02db932c6882p-11, 0x1.f9a3b95433ea6p-14, -0x1.f4dcf2bd50cc5p-17,
    0x1.ba693ddf2efa6p-20, -0x1.63931c50214c8p-23, 0x1.13335aa06a215p-26, -0x1.c557d89e2af6fp-30,
    0x1.3cb3f471fd064p-33};
static const double mbm_c_tail[] = {
    0x1.3b0fbcb4c77bep-3, 0x1.108a698eca1a7p-2, 0x1.95c11dc6c5a02p-2, 0x1.00d8ab2d2b36cp-1,
    0x1.0e5e8ee5957f2p-1, 0x1.c4f9d5470b08bp-2, 0x1.1090aa6112e34p-2, 0x1.39e0d8d931aa1p-4,
    -0x1.4ea6986d22a18p-5, -0x1.c91843e43c97fp-5, -0x1.8e745f80e651ep-7, 0x1.4df70c7387e3fp-6,
    0x1.bf9ea700a04fcp-7, -0x1.ac04f2123af85p-8, -0x1.277280ba0c12p-7, 0x1.289684871ebcep-9,
    0x1.5722f2c3bdaa2p-8, -0x1.4a858a23acbb8p-10, -0x1.5fda211d33a98p-10, 0x1.4977f133f288ap-11,
    -0x1.120de5b426154p-8, 0x1.52e19f56d9414p-9, 0x1.bb4d86e62b4ebp-8, -0x1.96f327e353f2ap-8};
static const double mbm_c_sinh[] = {
    0x1.5555555555555p-3, 0x1.111111111119bp-7, 0x1.a01a01a00735dp-13, 0x1.71de3a68cfd84p-19,
    0x1.ae6441234abacp-26, 0x1.61314cabd248bp-33, 0x1.a665e917e44e1p-41, 0x1.d28310ccda4d6p-48};

/* c[0] + c[1] x + ... ; n is a constant, so the loop unrolls and the table becomes immediates. */
MB_INLINE double mbm_horner(double x, const double *c, int n) {
  double p = c[n - 1];
  MB_UNROLL for (int i = n - 2; i >= 0; i--) p = mbm_fma(p, x, c[i]);
  return p;
}
#define MBM_POLY(x, table) mbm_horner(x, table, (int)(sizeof(table) / sizeof(double)))

#define MBM_LN2_HIGH 0x1.62e42feep-1 /* 33 bits: times an exponent it is exact */
#define MBM_LN2_LOW 0x1.a39ef35793c76p-33

MB_INLINE double mbm_clamp_d(double x, double lo, double hi) { /* NaN stays */
  x = x > hi ? hi : x;
  return x < lo ? lo : x;
}
MB_INLINE double mbm_pow2_d(int64_t n) { return mbm_from_bits((n + 1023) << 52); }
MB_INLINE double mbm_scale_d(double p, int64_t n) {
  int64_t half = n >> 1;
  return p * mbm_pow2_d(half) * mbm_pow2_d(n - half);
}

/* The rounding error of p = a b. */
MB_INLINE double mbm_product_error_d(double a, double b, double p) {
#if MBM_HAS_FMA_D
  return mbm_fma(a, b, -p);
#else
  const int64_t mask = ~INT64_C(0x7ffffff);
  double ah = mbm_from_bits(mbm_bits(a) & mask), al = a - ah;
  double bh = mbm_from_bits(mbm_bits(b) & mask), bl = b - bh;
  return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
}

MB_INLINE double mbm_exp_reduce_d(double x, int64_t *n) {
  double k = mbm_fma(x, 0x1.71547652b82fep+0, 0x1.8p52), t = k - 0x1.8p52;
  *n = mbm_bits(k) - INT64_C(0x4338000000000000);
  return mbm_fma(t, -MBM_LN2_LOW, mbm_fma(t, -MBM_LN2_HIGH, x));
}

/* e^(x + low) 2^shift. */
MB_INLINE double mbm_exp_d(double x, double low, int shift) {
  int64_t n;
  double r = mbm_exp_reduce_d(mbm_clamp_d(x, -746.0, 711.0), &n) + low;
  return mbm_scale_d(1.0 + mbm_fma(r * r, MBM_POLY(r, mbm_c_exp), r), n + shift);
}

MB_OVERLOAD double mb_exp(double x) { return mbm_exp_d(x, 0.0, 0); }

MB_OVERLOAD double mb_exp2(double x) {
  x = mbm_clamp_d(x, -1076.0, 1025.0);
  double k = x + 0x1.8p52, r = x - (k - 0x1.8p52);
  double p = mbm_fma(MBM_POLY(r, mbm_c_exp2), r, 1.0);
  return mbm_scale_d(p, mbm_bits(k) - INT64_C(0x4338000000000000));
}

/* e^x - 1 = s p + (s - 1), s = 2^n. */
MB_INLINE double mbm_expm1_parts_d(double x, int64_t *n) {
  double r = mbm_exp_reduce_d(x, n);
  return mbm_fma(r * r, MBM_POLY(r, mbm_c_expm1), r);
}

MB_OVERLOAD double mb_expm1(double x) {
  int64_t n;
  double p = mbm_expm1_parts_d(mbm_clamp_d(x, -50.0, 710.0), &n), s = mbm_pow2_d(n - 1);
  return mbm_with_sign(mbm_fma(p, s, s - 0.5) * 2.0, x);
}

MB_INLINE double mbm_split_d(double x, int64_t *e) {
  int64_t i = mbm_bits(x);
  *e = (i - INT64_C(0x3fe6a09e667f3bcd)) >> 52;
  return mbm_from_bits(i - (int64_t)((uint64_t)*e << 52)) - 1.0;
}

MB_INLINE double mbm_split_any_d(double x, double *e) {
  int64_t i;
  int tiny = x < 0x1p-1022;
  double f = mbm_split_d(tiny ? x * 0x1p52 : x, &i);
  *e = (double)i - (tiny ? 52.0 : 0.0);
  return f;
}

/* log(1 + f) = f - (h - s (h + R(s^2))), h = f^2 / 2, s = f / (2 + f). */
MB_INLINE double mbm_log_tail_d(double f, double h) {
  double s = f / (2.0 + f), z = s * s;
  return s * mbm_fma(z, MBM_POLY(z, mbm_c_log), h);
}
MB_INLINE double mbm_log_poly_d(double f, double e) {
  double h = 0.5 * f * f;
  return mbm_fma(e, MBM_LN2_HIGH, f - (h - mbm_fma(e, MBM_LN2_LOW, mbm_log_tail_d(f, h))));
}

MB_INLINE double mbm_log_domain_d(double x, double r) {
  r = x < __builtin_inf() ? r : x;
  double low = x < 0.0 ? __builtin_nan("") : -__builtin_inf();
  return x <= 0.0 ? low : r;
}

MB_OVERLOAD double mb_log(double x) {
  double e, f = mbm_split_any_d(x, &e);
  return mbm_log_domain_d(x, mbm_log_poly_d(f, e));
}

/* log2(e) times a logarithm in two parts, the first of 21 bits. */
MB_OVERLOAD double mb_log2(double x) {
  double e, f = mbm_split_any_d(x, &e), h = 0.5 * f * f, tail = mbm_log_tail_d(f, h);
  double high = mbm_from_bits(mbm_bits(f - h) & ~INT64_C(0xffffffff));
  double low = (f - high) - h + tail;
  double a = high * 0x1.7154765p+0;
  double b = mbm_fma(low + high, 0x1.5c17f0bbbe88p-31, low * 0x1.7154765p+0);
  double sum = e + a;
  return mbm_log_domain_d(x, sum + (b + ((e - sum) + a)));
}

MB_INLINE double mbm_log1p_finite_d(double x) {
  int64_t e;
  double u = x + 1.0, rough = mbm_split_d(u, &e), s = mbm_pow2_d(-e);
  double f = u > 0x1p54 ? rough : mbm_fma(x, s, s - 1.0);
  return mbm_log_poly_d(f, (double)e);
}
MB_OVERLOAD double mb_log1p(double x) {
  return mbm_log_domain_d(x + 1.0, mbm_with_sign(mbm_log1p_finite_d(x), x));
}

MB_OVERLOAD double mb_tanh(double x) {
  int64_t n;
  double a = mbm_clamp_d(mbm_magnitude(x), 0.0, 22.0);
  double p = mbm_expm1_parts_d(a * -2.0, &n), s = mbm_pow2_d(n);
  return mbm_with_sign(mbm_fma(p, s, s - 1.0) / mbm_fma(p, s, s + 1.0), x);
}

MB_INLINE double mbm_sigmoid_of_d(double e, double x) { return (x < 0.0 ? e : 1.0) / (e + 1.0); }
MB_OVERLOAD double mb_sigmoid(double x) { return mbm_sigmoid_of_d(mb_exp(-mbm_magnitude(x)), x); }
MB_OVERLOAD double mb_silu(double x) { return x * mb_sigmoid(x); }

/* Phi(-y) for 0 <= y <= 39: e^(-y^2/2) t P(t - 1/2), t = 5/(y+5). */
MB_INLINE double mbm_normal_tail_d(double y) {
  double sum = y + 5.0, t = 5.0 / sum, h = y * y, low = mbm_product_error_d(y, y, h);
  t = mbm_fma(t * t * -0.2, y - (sum - 5.0), t); /* what the sum lost */
  return mbm_exp_d(h * -0.5, low * -0.5, 0) * (t * MBM_POLY(t - 0.5, mbm_c_tail));
}

MB_OVERLOAD double mb_erf(double x) {
  double a = mbm_magnitude(x), z = x * x;
  double y = mbm_clamp_d(a, 0.0, 6.5);
  double far = mbm_with_sign(mbm_fma(-2.0, mbm_normal_tail_d(y * 0x1.6a09e667f3bcdp+0), 1.0), x);
  return a > 1.0 ? far : mbm_fma(MBM_POLY(z, mbm_c_erf), x, x);
}

MB_OVERLOAD double mb_gelu(double x) {
  double a = mbm_magnitude(x), q = mbm_normal_tail_d(mbm_clamp_d(a, 0.0, 39.0));
  double u = x * 0x1.6a09e667f3bcdp-1, e = mbm_fma(MBM_POLY(u * u, mbm_c_erf), u, u);
  if (a < 0.5) return x * mbm_fma(0.5, e, 0.5);
  return x < 0.0 ? x * q : x * (1.0 - q);
}

MB_OVERLOAD double mb_gelu_tanh(double x) {
  const double c = 0x1.9884533d43651p+0, d = 0x1.2444f2a4d8b4bp-4; /* 2 sqrt(2/pi) (1, 0.044715) */
  double y = mbm_clamp_d(mbm_magnitude(x), 0.0, 24.0);
  double h = y * y, hl = mbm_product_error_d(y, y, h);
  double g = d * h, gl = mbm_fma(d, hl, mbm_product_error_d(d, h, g));
  double w = c + g, b = w - c, wl = (c - (w - b)) + (g - b);
  wl = wl + (gl + mbm_fma(h, -0x1.6c843a29d1c7p-61, -0x1.cbc0d30ebfd15p-54));
  double z = y * w, zl = mbm_fma(y, wl, mbm_product_error_d(y, w, z));
  return x * mbm_sigmoid_of_d(mbm_exp_d(-z, -zl, 0), x);
}

MB_OVERLOAD double mb_softplus(double x) {
  double e = mb_exp(-mbm_magnitude(x));
  return (x < 0.0 ? 0.0 : x) + (e < 0x1p-60 ? e : mbm_log1p_finite_d(e));
}

MB_OVERLOAD double mb_mish(double x) {
  double e = mb_exp(x > 40.0 ? 40.0 : x), n = e * (e + 2.0);
  return x * (n / (n + 2.0));
}

MB_OVERLOAD double mb_sinh(double x) {
  double a = mbm_magnitude(x), z = x * x, e = mbm_exp_d(a, 0.0, -1);
  return a > 1.0 ? mbm_with_sign(e - 0.25 / e, x) : mbm_fma(x * z, MBM_POLY(z, mbm_c_sinh), x);
}
MB_OVERLOAD double mb_cosh(double x) {
  double e = mbm_exp_d(mbm_magnitude(x), 0.0, -1);
  return e + 0.25 / e;
}

MB_OVERLOAD double mb_sqrt(double x) { return __builtin_elementwise_sqrt(x); }
MB_OVERLOAD double mb_rsqrt(double x) { return 1.0 / mb_sqrt(x); }
MB_OVERLOAD double mb_reciprocal(double x) { return 1.0 / x; }
MB_OVERLOAD double mb_sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x == 0.0 ? 0.0 : x; }

MB_OVERLOAD double mb_asinh(double x) {
  double a = mbm_magnitude(x), z = a * a;
  int big = a > 0x1p60;
  double r = mb_log1p(big ? a : a + z / (1.0 + mb_sqrt(z + 1.0)));
  return mbm_with_sign(r + (big ? 0x1.62e42fefa39efp-1 : 0.0), x);
}
MB_OVERLOAD double mb_acosh(double x) {
  double t = x - 1.0;
  int big = x > 0x1p60;
  double r = mb_log1p(big ? x : t + mb_sqrt(t * (t + 2.0)));
  return x < 1.0 ? __builtin_nan("") : r + (big ? 0x1.62e42fefa39efp-1 : 0.0);
}
MB_OVERLOAD double mb_atanh(double x) {
  double a = mbm_magnitude(x);
  return mbm_with_sign(0.5 * mb_log1p((a + a) / (1.0 - a)), x);
}

/* log(m 2^e) as *low + the result, to 2^-66: the first two terms of the series in s = f / (2 + f)
 * are carried in two doubles, the rest is small enough for one. */
MB_INLINE double mbm_log_two_d(double f, double e, double *low) {
  double den = 2.0 + f, den_low = f - (den - 2.0), s = f / den, p = s * den;
  double sl = (((f - p) - mbm_product_error_d(s, den, p)) - s * den_low) / den;
  double z = s * s, zl = mbm_product_error_d(s, s, z) + 2.0 * s * sl;
  double c = z * 0x1.5555555555555p-1;
  double cl = mbm_product_error_d(z, 0x1.5555555555555p-1, c) + z * 0x1.5555555555555p-55 +
              zl * 0x1.5555555555555p-1 + z * z * MBM_POLY(z, mbm_c_log_pow);
  double t = s * c, tl = mbm_product_error_d(s, c, t) + s * cl + sl * c; /* s^3 (2/3 + ...) */
  double l = e * MBM_LN2_HIGH, a = l + 2.0 * s, b = a + t;
  /* |l| >= |2 s| unless it is 0, and |a| >= |t|: the sums lose what these differences show */
  double lost = ((l - a) + 2.0 * s) + ((a - b) + t);
  lost += mbm_fma(e, MBM_LN2_LOW, 2.0 * sl + tl);
  double sum = b + lost;
  *low = mbm_fma(e, 0x1.cc01f97b57a08p-87, (b - sum) + lost);
  return sum;
}

MB_OVERLOAD double mb_pow(double x, double y) {
  double e, a = mbm_magnitude(x), f = mbm_split_any_d(a, &e), low, log = mbm_log_two_d(f, e, &low);
  double z = log * y, zl = mbm_fma(low, y, mbm_product_error_d(log, y, z));
  if (a == 0.0 || a == __builtin_inf() || !(mbm_magnitude(z) < 800.0)) {
    z = (a == 0.0 ? -__builtin_inf() : a == __builtin_inf() ? a : log) * y;
    zl = 0.0;
  }
  z = a == 1.0 ? 0.0 : z;
  double r = mbm_exp_d(z, zl, 0), half = y * 0.5;
  int whole = mb_trunc(y) == y, odd = whole && mb_trunc(half) != half;
  r = odd ? mbm_with_sign(r, x) : r;
  r = x < 0.0 && !whole && a < __builtin_inf() ? __builtin_nan("") : r;
  r = x != x || y != y ? x + y : r;
  return x == 1.0 || y == 0.0 ? 1.0 : r;
}

/* Long division, bit by bit: the quotient of two doubles has up to 2,098 bits. */
MB_OVERLOAD double mb_fmod(double x, double y) {
  const int64_t inf = INT64_C(0x7ff) << 52;
  int64_t a = mbm_bits(mbm_magnitude(x)), b = mbm_bits(mbm_magnitude(y));
  if (a >= inf || b > inf || b == 0) return (x * y) / (x * y);
  if (a < b) return x;
  int ea = (int)(a >> 52), eb = (int)(b >> 52);
  const uint64_t mask = (UINT64_C(1) << 52) - 1;
  uint64_t ma = (uint64_t)a & mask, mb = (uint64_t)b & mask;
  ma |= (uint64_t)(ea > 0) << 52, ea += ea == 0;
  mb |= (uint64_t)(eb > 0) << 52, eb += eb == 0;
  for (; !(ma >> 52); ea--) ma <<= 1;
  for (; !(mb >> 52); eb--) mb <<= 1;
  for (; ea > eb; ea--) ma = (ma >= mb ? ma - mb : ma) << 1;
  ma = ma >= mb ? ma - mb : ma;
  if (ma == 0) return mbm_with_sign(0.0, x);
  for (; !(ma >> 52) && ea > 1; ea--) ma <<= 1;
  for (; ea < 1; ea++) ma >>= 1; /* exact: the bits below were shifted in as zeros */
  uint64_t r = ma >> 52 ? ma - (UINT64_C(1) << 52) + ((uint64_t)ea << 52) : ma;
  return mbm_with_sign(mbm_from_bits((int64_t)r), x);
}

MB_OVERLOAD double mb_mod(double x, double y) {
  double r = mb_fmod(x, y);
  if (r == 0.0) return mbm_with_sign(r, y);
  return (r < 0.0) != (y < 0.0) ? r + y : r;
}

/* What base.h has for float; without these a double would silently be rounded to one. */
MB_OVERLOAD double mb_abs(double x) { return mbm_magnitude(x); }
MB_OVERLOAD double mb_neg(double x) { return -x; }
MB_OVERLOAD double mb_max(double a, double b) { return mb_or_nan(a, a > b ? a : b); }
MB_OVERLOAD double mb_min(double a, double b) { return mb_or_nan(a, a < b ? a : b); }
MB_OVERLOAD double mb_fma(double a, double b, double c) { return mbm_fma(a, b, c); }

MB_OVERLOAD double mb_relu(double x) { return x < 0.0 ? 0.0 : x; }
MB_OVERLOAD double mb_leaky_relu(double x, double alpha) { return x < 0.0 ? x * alpha : x; }
MB_OVERLOAD double mb_thresholded_relu(double x, double alpha) { return x <= alpha ? 0.0 : x; }
MB_OVERLOAD double mb_elu(double x, double alpha) { return x < 0.0 ? mb_expm1(x) * alpha : x; }
MB_OVERLOAD double mb_celu(double x, double alpha) {
  return x < 0.0 ? mb_expm1(x / alpha) * alpha : x;
}
MB_OVERLOAD double mb_selu(double x, double alpha, double gamma) {
  return (x > 0.0 ? x : mb_expm1(x) * alpha) * gamma;
}
MB_OVERLOAD double mb_hardsigmoid(double x, double alpha, double beta) {
  return mbm_clamp_d(mbm_fma(x, alpha, beta), 0.0, 1.0);
}
MB_OVERLOAD double mb_hardswish(double x) { return x * mb_hardsigmoid(x, 1.0 / 6.0, 0.5); }
MB_OVERLOAD double mb_softsign(double x) { return x / (1.0 + mbm_magnitude(x)); }
