/* Included by mb/math.h once per type: exponentials, logarithms and the activations made of them.
 * MBM_F is the float type, MBM_I its integers, MBM_M the mask of a comparison, MBM_D its doubles.
 * Coefficients: tools/fit_math.py. */

/* Horner steps read as a list: each line is one power, highest first. */
#define MBM_STEP(p, x, c) p = mb_fma(p, x, MBM_C(c))

/* 1.5 2^23: adding it rounds to an integer, which then stands in the low bits. */
#define MBM_MAGIC 0x1.8p23f
#define MBM_MAGIC_BITS 0x4b400000

MB_OVERLOAD MBM_F mbm_clamp(MBM_F x, float lo, float hi) { /* NaN stays */
  x = mb_select(mb_gt(x, MBM_C(hi)), MBM_C(hi), x);
  return mb_select(mb_lt(x, MBM_C(lo)), MBM_C(lo), x);
}

MB_OVERLOAD MBM_F mbm_pow2(MBM_I n) { return mbm_from_bits((n + 127) << 23); }

/* The rounding error of p = a b. */
MB_OVERLOAD MBM_F mbm_product_error(MBM_F a, MBM_F b, MBM_F p) {
#if MB_HAS_FMA
  return mb_fma(a, b, -p);
#else
  MBM_F ah = mbm_from_bits(mbm_bits(a) & ~0xfff), al = a - ah;
  MBM_F bh = mbm_from_bits(mbm_bits(b) & ~0xfff), bl = b - bh;
  return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
}

/* x = n ln 2 + r, |r| <= ln 2 / 2. The high part of ln 2 has 15 bits: n times it is exact. */
MB_OVERLOAD MBM_F mbm_exp_reduce(MBM_F x, MBM_I *n) {
  MBM_F k = mb_fma(x, MBM_C(0x1.715476p+0f), MBM_C(MBM_MAGIC));
  MBM_F t = k - MBM_MAGIC;
  *n = mbm_bits(k) - MBM_MAGIC_BITS;
  return mb_fma(t, MBM_C(-0x1.7f7d1cp-20f), mb_fma(t, MBM_C(-0x1.62e4p-1f), x));
}

/* e^r for a reduced r. */
MB_OVERLOAD MBM_F mbm_exp_poly(MBM_F r) {
  MBM_F p = MBM_C(0x1.6b7e22p-13f);
  MBM_STEP(p, r, 0x1.6d409cp-10f);
  MBM_STEP(p, r, 0x1.11371ep-7f);
  MBM_STEP(p, r, 0x1.5554f2p-5f);
  MBM_STEP(p, r, 0x1.55553cp-3f);
  MBM_STEP(p, r, 0x1p-1f);
  return mb_fma(r * r, p, r) + 1.0f;
}

/* p 2^n, in two steps: overflows to infinity, underflows through the denormals. */
MB_OVERLOAD MBM_F mbm_scale(MBM_F p, MBM_I n) {
  MBM_I half = n >> 1;
  return p * mbm_pow2(half) * mbm_pow2(n - half);
}

/* e^(x + low) for x <= 0. */
MB_OVERLOAD MBM_F mbm_exp_sum(MBM_F x, MBM_F low) {
  MBM_I n;
  MBM_F r = mbm_exp_reduce(mb_select(mb_lt(x, MBM_C(-104.0f)), MBM_C(-104.0f), x), &n) + low;
  return mbm_scale(mbm_exp_poly(r), n);
}

MB_OVERLOAD MBM_F mb_exp(MBM_F x) {
  MBM_I n;
  MBM_F r = mbm_exp_reduce(mbm_clamp(x, -104.0f, 89.0f), &n);
  return mbm_scale(mbm_exp_poly(r), n);
}

/* e^x / 2. */
MB_OVERLOAD MBM_F mbm_half_exp(MBM_F x) {
  MBM_I n;
  MBM_F r = mbm_exp_reduce(mbm_clamp(x, -104.0f, 90.0f), &n);
  return mbm_scale(mbm_exp_poly(r), n - 1);
}

MB_OVERLOAD MBM_F mb_exp2(MBM_F x) {
  x = mbm_clamp(x, -151.0f, 129.0f);
  MBM_F k = x + MBM_MAGIC, r = x - (k - MBM_MAGIC), p = MBM_C(0x1.4be0d6p-13f);
  MBM_STEP(p, r, 0x1.5fbdfcp-10f);
  MBM_STEP(p, r, 0x1.3b21cep-7f);
  MBM_STEP(p, r, 0x1.c6ada6p-5f);
  MBM_STEP(p, r, 0x1.ebfbe6p-3f);
  MBM_STEP(p, r, 0x1.62e432p-1f);
  return mbm_scale(mb_fma(p, r, MBM_C(1.0f)), mbm_bits(k) - MBM_MAGIC_BITS);
}

/* e^r - 1 for a reduced r. */
MB_OVERLOAD MBM_F mbm_expm1_poly(MBM_F r) {
  MBM_F p = MBM_C(0x1.39b606p-13f);
  MBM_STEP(p, r, 0x1.6d315p-10f);
  MBM_STEP(p, r, 0x1.115694p-7f);
  MBM_STEP(p, r, 0x1.555502p-5f);
  MBM_STEP(p, r, 0x1.55552cp-3f);
  MBM_STEP(p, r, 0x1p-1f);
  return mb_fma(r * r, p, r);
}

/* e^x - 1 = 2^n (e^r - 1) + (2^n - 1), computed at half scale because 2^128 is no float. */
MB_OVERLOAD MBM_F mb_expm1(MBM_F x) {
  MBM_I n;
  MBM_F p = mbm_expm1_poly(mbm_exp_reduce(mbm_clamp(x, -30.0f, 89.0f), &n));
  MBM_F s = mbm_pow2(n - 1);
  return mbm_with_sign(mb_fma(p, s, s - 0.5f) * 2.0f, x); /* the sign: for -0 */
}

/* x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for positive x that are not denormal. */
MB_OVERLOAD MBM_F mbm_split(MBM_F x, MBM_I *e) {
  MBM_I i = mbm_bits(x);
  *e = (i - 0x3f3504f3) >> 23;
  return mbm_from_bits(i - (*e << 23)) - 1.0f;
}

/* The same for all positive x, with a float exponent: denormals are scaled up first. */
MB_OVERLOAD MBM_F mbm_split_any(MBM_F x, MBM_F *e) {
  MBM_I i;
  MBM_M tiny = mb_lt(x, MBM_C(0x1p-126f));
  MBM_F f = mbm_split(mb_select(tiny, x * 0x1p23f, x), &i);
  *e = mbm_to_float(i) - mb_select(tiny, MBM_C(23.0f), MBM_C(0.0f));
  return f;
}

/* e ln 2 + log(1 + f). */
MB_OVERLOAD MBM_F mbm_log_poly(MBM_F f, MBM_F e) {
  MBM_F p = MBM_C(0x1.1c8246p-4f);
  MBM_STEP(p, f, -0x1.e4838p-4f);
  MBM_STEP(p, f, 0x1.e670cap-4f);
  MBM_STEP(p, f, -0x1.fadfa4p-4f);
  MBM_STEP(p, f, 0x1.23281p-3f);
  MBM_STEP(p, f, -0x1.556644p-3f);
  MBM_STEP(p, f, 0x1.99a624p-3f);
  MBM_STEP(p, f, -0x1.ffffep-3f);
  MBM_STEP(p, f, 0x1.555544p-2f);
  MBM_STEP(p, f, -0x1p-1f);
  p = mb_fma(e, MBM_C(0x1.7f7d1cp-20f), f * f * p);
  return mb_fma(e, MBM_C(0x1.62e4p-1f), f + p);
}

/* r where x is positive and finite; the limits and NaN elsewhere. */
MB_OVERLOAD MBM_F mbm_log_domain(MBM_F x, MBM_F r) {
  r = mb_select(mb_lt(x, MBM_C(MBM_INF)), r, x);
  MBM_F low = mb_select(mb_lt(x, MBM_C(0.0f)), MBM_C(MBM_NAN), MBM_C(-MBM_INF));
  return mb_select(mb_le(x, MBM_C(0.0f)), low, r);
}

MB_OVERLOAD MBM_F mb_log(MBM_F x) {
  MBM_F e, f = mbm_split_any(x, &e);
  return mbm_log_domain(x, mbm_log_poly(f, e));
}

MB_OVERLOAD MBM_F mb_log2(MBM_F x) {
  MBM_F e, f = mbm_split_any(x, &e), p = MBM_C(0x1.7635c4p-4f);
  MBM_STEP(p, f, -0x1.52ce5ep-3f);
  MBM_STEP(p, f, 0x1.61cd6cp-3f);
  MBM_STEP(p, f, -0x1.6fe002p-3f);
  MBM_STEP(p, f, 0x1.a3eeecp-3f);
  MBM_STEP(p, f, -0x1.ec61c6p-3f);
  MBM_STEP(p, f, 0x1.277fc4p-2f);
  MBM_STEP(p, f, -0x1.7154d6p-2f);
  MBM_STEP(p, f, 0x1.ec7086p-2f);
  MBM_STEP(p, f, -0x1.715476p-1f);
  /* log2(e) in two parts: the first rounded to 12 bits, so that its product with f costs little */
  MBM_F h = mbm_from_bits(mbm_bits(f) & ~0xfff), l = f - h;
  p = mb_fma(f, MBM_C(-0x1.7135a8p-13f), f * f * p);
  p = mb_fma(l, MBM_C(0x1.716p+0f), p);
  MBM_F big = mb_fma(h, MBM_C(0x1.716p+0f), e); /* exact for e = 0, rounded once otherwise */
  MBM_F error = mb_fma(h, MBM_C(0x1.716p+0f), e - big);
  return mbm_log_domain(x, big + (p + error));
}

/* log(1 + x) for finite x > -1: 1 + x = 2^e m; f = x 2^-e + (2^-e - 1) keeps what 1 + x lost. */
MB_OVERLOAD MBM_F mbm_log1p_finite(MBM_F x) {
  MBM_I e;
  MBM_F u = x + 1.0f, rough = mbm_split(u, &e), s = mbm_pow2(-e);
  MBM_F f = mb_select(mb_gt(u, MBM_C(0x1p25f)), rough, mb_fma(x, s, s - 1.0f));
  return mbm_log_poly(f, mbm_to_float(e));
}

MB_OVERLOAD MBM_F mb_log1p(MBM_F x) {
  MBM_F r = mbm_with_sign(mbm_log1p_finite(x), x);
  return mbm_log_domain(x + 1.0f, r);
}

/* tanh|x| = -t / (2 + t), t = e^(-2|x|) - 1. */
MB_OVERLOAD MBM_F mb_tanh(MBM_F x) {
  MBM_I n;
  MBM_F a = mbm_magnitude(x);
  a = mb_select(mb_gt(a, MBM_C(10.0f)), MBM_C(10.0f), a);
  MBM_F p = mbm_expm1_poly(mbm_exp_reduce(a * -2.0f, &n)), s = mbm_pow2(n);
  MBM_F t = mb_fma(p, s, s - 1.0f), u = mb_fma(p, s, s + 1.0f); /* u = t + 2, rounded once */
  return mbm_with_sign(t / u, x);
}

/* From e = e^-|x|: 1 / (1 + e), or e / (1 + e) for negative x. */
MB_OVERLOAD MBM_F mbm_sigmoid_of(MBM_F e, MBM_F x) {
  return mb_select(mb_lt(x, MBM_C(0.0f)), e, MBM_C(1.0f)) / (e + 1.0f);
}

MB_OVERLOAD MBM_F mb_sigmoid(MBM_F x) { return mbm_sigmoid_of(mb_exp(-mbm_magnitude(x)), x); }

MB_OVERLOAD MBM_F mb_silu(MBM_F x) { return x * mb_sigmoid(x); }

/* Near zero x + x P(x^2), further out 1 - e^(x Q(x)), where x Q(x) is log(erfc(x)). */
MB_OVERLOAD MBM_F mb_erf(MBM_F x) {
  MBM_F a = mbm_magnitude(x), z = x * x, p = MBM_C(-0x1.399e74p-11f);
  MBM_STEP(p, z, 0x1.4721d8p-8f);
  MBM_STEP(p, z, -0x1.b687ecp-6f);
  MBM_STEP(p, z, 0x1.ce1a4cp-4f);
  MBM_STEP(p, z, -0x1.8126e6p-2f);
  MBM_STEP(p, z, 0x1.06eba6p-3f);
  MBM_F b = mb_select(mb_gt(a, MBM_C(4.0f)), MBM_C(4.0f), a), q = MBM_C(0x1.c0c254p-13f);
  MBM_STEP(q, b, -0x1.a564p-9f);
  MBM_STEP(q, b, 0x1.77077p-6f);
  MBM_STEP(q, b, -0x1.af2704p-4f);
  MBM_STEP(q, b, -0x1.457cep-1f);
  MBM_STEP(q, b, -0x1.073288p-3f);
  MBM_I n;
  MBM_F e = mbm_exp_poly(mbm_exp_reduce(mb_fma(q, b, -b), &n)) * mbm_pow2(n);
  MBM_F far = mbm_with_sign(1.0f - e, x);
  return mb_select(mb_gt(a, MBM_C(0.92f)), far, mb_fma(p, x, x));
}

/* x Phi(x). The tail Phi(-y) = e^(-y^2/2) t P(t), t = 3/(y+3), has a small *relative* error, and
 * so has the result for negative x, where 0.5 (1 + erf) would cancel. -inf gives NaN: -inf 0. */
MB_OVERLOAD MBM_F mb_gelu(MBM_F x) {
  MBM_F y = mbm_magnitude(x);
  y = mb_select(mb_gt(y, MBM_C(16.0f)), MBM_C(16.0f), y);
  MBM_F t = 3.0f / (y + 3.0f), v = t - 0.5f, p = MBM_C(0x1.30894ep-6f);
  MBM_STEP(p, v, -0x1.6f035ep-6f);
  MBM_STEP(p, v, -0x1.56313ep-6f);
  MBM_STEP(p, v, 0x1.68e4b8p-5f);
  MBM_STEP(p, v, 0x1.663024p-6f);
  MBM_STEP(p, v, -0x1.307e54p-4f);
  MBM_STEP(p, v, -0x1.c91d5p-5f);
  MBM_STEP(p, v, 0x1.021e06p-3f);
  MBM_STEP(p, v, 0x1.3a0d04p-2f);
  MBM_STEP(p, v, 0x1.5bb438p-2f);
  MBM_STEP(p, v, 0x1.f1b89cp-3f);
  MBM_F h = y * y, low = mbm_product_error(y, y, h);
  MBM_F q = mbm_exp_sum(h * -0.5f, low * -0.5f) * (t * p);
  return mb_select(mb_lt(x, MBM_C(0.0f)), x * q, x * (1.0f - q));
}

/* x / (1 + e^-z), z = 2 sqrt(2/pi) (x + 0.044715 x^3) = x (c + d x^2), z in two floats because its
 * absolute error is the relative one of the tail. */
MB_OVERLOAD MBM_F mb_gelu_tanh(MBM_F x) {
  const MBM_F c = MBM_C(0x1.988454p+0f), d = MBM_C(0x1.2444f2p-4f);
  MBM_F y = mbm_magnitude(x);
  y = mb_select(mb_gt(y, MBM_C(12.0f)), MBM_C(12.0f), y);
  MBM_F h = y * y, hl = mbm_product_error(y, y, h);
  MBM_F g = d * h, gl = mb_fma(d, hl, mbm_product_error(d, h, g));
  MBM_F w = c + g, b = w - c, wl = (c - (w - b)) + (g - b); /* Knuth's exact sum */
  wl = wl + (mb_fma(h, MBM_C(0x1.49b16ap-29f), gl) + MBM_C(-0x1.857936p-25f));
  MBM_F z = y * w, zl = mb_fma(y, wl, mbm_product_error(y, w, z));
  return x * mbm_sigmoid_of(mbm_exp_sum(-z, -zl), x);
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|). */
MB_OVERLOAD MBM_F mb_softplus(MBM_F x) {
  MBM_F positive = mb_select(mb_lt(x, MBM_C(0.0f)), MBM_C(0.0f), x);
  MBM_F e = mb_exp(-mbm_magnitude(x));
  /* e may be a denormal; log1p of it is itself */
  return positive + mb_select(mb_lt(e, MBM_C(0x1p-30f)), e, mbm_log1p_finite(e));
}

/* x tanh(softplus(x)) = x n / (n + 2), n = e^x (e^x + 2). */
MB_OVERLOAD MBM_F mb_mish(MBM_F x) {
  MBM_F e = mb_exp(mb_select(mb_gt(x, MBM_C(20.0f)), MBM_C(20.0f), x)), n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

/* Below 1 an odd polynomial, above (e^a - e^-a) / 2. */
MB_OVERLOAD MBM_F mb_sinh(MBM_F x) {
  MBM_F a = mbm_magnitude(x), z = x * x, p = MBM_C(0x1.756fd6p-19f);
  MBM_STEP(p, z, 0x1.a022bcp-13f);
  MBM_STEP(p, z, 0x1.1110ep-7f);
  MBM_STEP(p, z, 0x1.555556p-3f);
  MBM_F e = mbm_half_exp(a);
  MBM_F far = mbm_with_sign(e - 0.25f / e, x);
  return mb_select(mb_gt(a, MBM_C(1.0f)), far, mb_fma(x * z, p, x));
}

MB_OVERLOAD MBM_F mb_cosh(MBM_F x) {
  MBM_F e = mbm_half_exp(mbm_magnitude(x));
  return e + 0.25f / e;
}

/* log(a + sqrt(a^2 + 1)) as log1p; from 2^28 on that is log(a) + ln 2. */
MB_OVERLOAD MBM_F mb_asinh(MBM_F x) {
  MBM_F a = mbm_magnitude(x);
  MBM_M big = mb_gt(a, MBM_C(0x1p28f));
  MBM_F z = a * a, s = a + z / (1.0f + __builtin_elementwise_sqrt(z + 1.0f));
  MBM_F r = mb_log1p(mb_select(big, a, s));
  return mbm_with_sign(r + mb_select(big, MBM_C(0x1.62e43p-1f), MBM_C(0.0f)), x);
}

MB_OVERLOAD MBM_F mb_acosh(MBM_F x) {
  MBM_M big = mb_gt(x, MBM_C(0x1p28f));
  MBM_F t = x - 1.0f, s = t + __builtin_elementwise_sqrt(t * (t + 2.0f));
  MBM_F r = mb_log1p(mb_select(big, x, s));
  r = r + mb_select(big, MBM_C(0x1.62e43p-1f), MBM_C(0.0f));
  return mb_select(mb_lt(x, MBM_C(1.0f)), MBM_C(MBM_NAN), r);
}

MB_OVERLOAD MBM_F mb_atanh(MBM_F x) {
  MBM_F a = mbm_magnitude(x);
  return mbm_with_sign(0.5f * mb_log1p((a + a) / (1.0f - a)), x);
}

MB_OVERLOAD MBM_F mb_sqrt(MBM_F x) { return __builtin_elementwise_sqrt(x); }
MB_OVERLOAD MBM_F mb_rsqrt(MBM_F x) { return 1.0f / __builtin_elementwise_sqrt(x); }
MB_OVERLOAD MBM_F mb_reciprocal(MBM_F x) { return 1.0f / x; }

/* -1, 0, 1; NaN stays. */
MB_OVERLOAD MBM_F mb_sign(MBM_F x) {
  MBM_F r = mb_select(mb_gt(x, MBM_C(0.0f)), MBM_C(1.0f), x);
  r = mb_select(mb_eq(x, MBM_C(0.0f)), MBM_C(0.0f), r);
  return mb_select(mb_lt(x, MBM_C(0.0f)), MBM_C(-1.0f), r);
}

/* log2(m) for 1/sqrt(2) <= m = 1 + f < sqrt(2), in double to 2^-36. */
MB_OVERLOAD MBM_D mbm_pow_log2(MBM_D f) {
  static const double c[] = {
      -0x1.6ea0b8f572ee5p-5, 0x1.d4774ea9d1c5p-4,   -0x1.1c33832993a4cp-3, 0x1.150c132da8e7ap-3,
      -0x1.23bea27bf10abp-3, 0x1.470b8868e9756p-3,  -0x1.717c08fd3f367p-3, 0x1.a62937056c85ep-3,
      -0x1.ec6ff1e8cc1a7p-3, 0x1.27768e3b90347p-2,  -0x1.715476be15b97p-2, 0x1.ec709e3d8214bp-2,
      -0x1.71547652bb944p-1, 0x1.71547652ad38fp+0};
  MBM_D p = MBM_CD(c[0]);
  MB_UNROLL for (int i = 1; i < 14; i++) p = mbm_fma(p, f, MBM_CD(c[i]));
  return p * f;
}

/* 2^z in double to 2^-31; z far outside the range of float gives what rounds to 0 or infinity. */
MB_OVERLOAD MBM_D mbm_pow_exp2(MBM_D z) {
  static const double c[] = {0x1.c04d1d32b3346p-17, 0x1.444036b2c4d57p-13, 0x1.5dc06154de066p-10,
                             0x1.3b2a1be0b1fe9p-7,  0x1.c6b05512cd69dp-5,  0x1.ebfbe045708ddp-3,
                             0x1.62e4300b9e704p-1,  1.0};
  z = mbm_pick(z > 300.0, MBM_CD(300.0), z);
  z = mbm_pick(z < -300.0, MBM_CD(-300.0), z);
  MBM_D k = z + 0x1.8p52, r = z - (k - 0x1.8p52), p = MBM_CD(c[0]);
  MB_UNROLL for (int i = 1; i < 8; i++) p = mbm_fma(p, r, MBM_CD(c[i]));
  return p * mbm_from_bits((mbm_bits(k) - INT64_C(0x4338000000000000) + 1023) << 52);
}

/* C's pow: 1 for y = 0 or x = 1 whatever the other is; a negative x needs a whole y. */
MB_OVERLOAD MBM_F mb_pow(MBM_F x, MBM_F y) {
  MBM_F e, a = mbm_magnitude(x), f = mbm_split_any(a, &e);
  MBM_D l = mbm_wide(e) + mbm_pow_log2(mbm_wide(f));
  l = mbm_blend(mb_eq(a, MBM_C(0.0f)), MBM_CD(-__builtin_inf()), l);
  l = mbm_blend(mb_eq(a, MBM_C(MBM_INF)), MBM_CD(__builtin_inf()), l);
  MBM_D z = mbm_blend(mb_eq(a, MBM_C(1.0f)), MBM_CD(0.0), l * mbm_wide(y)); /* 0 inf is 0 here */
  MBM_F r = mbm_narrow(mbm_pow_exp2(z)), half = y * 0.5f;
  MBM_M whole = mb_eq(mb_trunc(y), y), odd = mb_and(whole, mb_ne(mb_trunc(half), half));
  r = mb_select(odd, mbm_with_sign(r, x), r);
  /* below zero with a fraction: NaN, but (-inf)^y and (-0)^y are limits */
  MBM_M root = mb_and(mb_lt(x, MBM_C(0.0f)), mb_and(mb_not(whole), mb_lt(a, MBM_C(MBM_INF))));
  r = mb_select(root, MBM_C(MBM_NAN), r);
  r = mb_select(mb_or(mb_ne(x, x), mb_ne(y, y)), x + y, r);
  return mb_select(mb_or(mb_eq(x, MBM_C(1.0f)), mb_eq(y, MBM_C(0.0f))), MBM_C(1.0f), r);
}

/* The remainder with the sign of x, exactly. Each step takes a multiple of y and leaves less than
 * 2^-51 of x (2^-27 without fma, where the quotient is cut to 28 bits): the quotient of two floats
 * is below 2^277. */
MB_OVERLOAD MBM_F mb_fmod(MBM_F x, MBM_F y) {
  MBM_D a = mbm_wide(mbm_magnitude(x)), b = mbm_wide(mbm_magnitude(y));
#if MBM_HAS_FMA_D
#define MBM_FMOD_STEP a = mbm_fma(-mb_trunc(a / b), b, a);
  MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP
#else
#define MBM_FMOD_STEP \
  a = a - mbm_from_bits(mbm_bits(mb_trunc(a / b)) & ~INT64_C(0x1ffffff)) * b;
  MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP
  MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP MBM_FMOD_STEP
#endif
#undef MBM_FMOD_STEP
  a = mbm_pick(a < 0.0, a + b, a); /* the last quotient may have been rounded up */
  MBM_F r = mbm_with_sign(mbm_narrow(a), x);
  MBM_M finite = mb_lt(mbm_magnitude(x), MBM_C(MBM_INF));
  return mb_select(mb_and(finite, mb_eq(mbm_magnitude(y), MBM_C(MBM_INF))), x, r);
}

/* The remainder with the sign of y, as Python and numpy have it. */
MB_OVERLOAD MBM_F mb_mod(MBM_F x, MBM_F y) {
  MBM_F r = mb_fmod(x, y);
  MBM_M zero = mb_eq(r, MBM_C(0.0f));
  MBM_M other = mb_lt(mbm_with_sign(MBM_C(1.0f), x) * mbm_with_sign(MBM_C(1.0f), y), MBM_C(0.0f));
  r = mb_select(mb_and(other, mb_not(zero)), r + y, r);
  return mb_select(zero, mbm_with_sign(r, y), r);
}

/* Simple activations, each as ONNX defines it. NaN stays NaN in all of them. */
MB_OVERLOAD MBM_F mb_leaky_relu(MBM_F x, float alpha) {
  return mb_select(mb_lt(x, MBM_C(0.0f)), x * alpha, x);
}
MB_OVERLOAD MBM_F mb_thresholded_relu(MBM_F x, float alpha) {
  return mb_select(mb_le(x, MBM_C(alpha)), MBM_C(0.0f), x);
}
MB_OVERLOAD MBM_F mb_elu(MBM_F x, float alpha) {
  return mb_select(mb_lt(x, MBM_C(0.0f)), mb_expm1(x) * alpha, x);
}
MB_OVERLOAD MBM_F mb_celu(MBM_F x, float alpha) {
  return mb_select(mb_lt(x, MBM_C(0.0f)), mb_expm1(x / alpha) * alpha, x);
}
MB_OVERLOAD MBM_F mb_selu(MBM_F x, float alpha, float gamma) {
  return mb_select(mb_gt(x, MBM_C(0.0f)), x, mb_expm1(x) * alpha) * gamma;
}
MB_OVERLOAD MBM_F mb_hardsigmoid(MBM_F x, float alpha, float beta) {
  return mbm_clamp(mb_fma(x, MBM_C(alpha), MBM_C(beta)), 0.0f, 1.0f);
}
MB_OVERLOAD MBM_F mb_hardswish(MBM_F x) { return x * mb_hardsigmoid(x, 1.0f / 6.0f, 0.5f); }
MB_OVERLOAD MBM_F mb_softsign(MBM_F x) { return x / (1.0f + mbm_magnitude(x)); }
