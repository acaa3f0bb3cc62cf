/* Included by mb/math.h once per type, after math_f32.h: trigonometry and its inverses.
 * The range reduction of sin, cos and tan is right for every float. */

/* x = q pi/2 + r + low for |x| <= 2^18: beyond, x 2/pi in float is too rough to choose q. */
MB_OVERLOAD MBM_F mbm_trig_near(MBM_F x, MBM_F *low, MBM_I *q) {
#if MB_HAS_FMA
  MBM_F k = mb_fma(x, MBM_C(0x1.45f306p-1f), MBM_C(MBM_MAGIC)), n = k - MBM_MAGIC;
  *q = mbm_bits(k);
  MBM_F a = mb_fma(n, MBM_C(-0x1.921fb6p+0f), x); /* exact */
  /* a + h in two floats by Knuth's sum: near a multiple of pi/2 they cancel */
  MBM_F h = n * 0x1.777a5cp-25f, b = a + h, c = b - a, e = (a - (b - c)) + (h - c);
  e = e + mb_fma(n, MBM_C(0x1.ee59dap-50f), mb_fma(n, MBM_C(0x1.777a5cp-25f), -h));
  MBM_F r = b + e;
  *low = (b - r) + e;
  return r;
#else
  /* n has 18 bits and the high part of pi/2 has 31: their product is exact in double */
  MBM_D w = mbm_wide(x), k = w * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = k - 0x1.8p52;
  *q = MBM_CONVERT(mbm_bits(k), MBM_I);
  MBM_D r = (w - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34;
  MBM_F high = mbm_narrow(r);
  *low = mbm_narrow(r - mbm_wide(high));
  return high;
#endif
}

/* One of the first five words, by a runtime index. */
MB_OVERLOAD MBM_U mbm_word(MBM_M i, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e) {
  MBM_I r = mbm_blend(i == 1, MBM_CI(b), MBM_CI(a));
  r = mbm_blend(i == 2, MBM_CI(c), r);
  r = mbm_blend(i == 3, MBM_CI(d), r);
  return (MBM_U)mbm_blend(i == 4, MBM_CI(e), r);
}

/* The same for the rest (Payne and Hanek): the mantissa times those 96 bits of 2/pi that matter,
 * in integers; the two bits above the point are q, and below it r is exact to 2^-60. */
MB_OVERLOAD MBM_F mbm_trig_far(MBM_F x, MBM_F *low, MBM_I *q) {
  MBM_I bits = mbm_bits(x), at = ((bits >> 23) & 255) - 120, i = at >> 5, s = at & 31, t = 31 - s;
  MBM_U m = (MBM_U)((bits & 0x7fffff) | 0x800000);
  MBM_U a = mbm_word(i, 0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0);
  MBM_U b = mbm_word(i, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599);
  MBM_U c = mbm_word(i, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041);
  MBM_U d = mbm_word(i, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab);
  MBM_U us = (MBM_U)s, ut = (MBM_U)t;
  a = (a << us) | ((b >> 1) >> ut);
  b = (b << us) | ((c >> 1) >> ut);
  c = (c << us) | ((d >> 1) >> ut);
  MBM_UL wide = MBM_CONVERT(m, MBM_UL);
  MBM_UL p = (MBM_CONVERT(m * a, MBM_UL) << 32) + wide * MBM_CONVERT(b, MBM_UL) +
             ((wide * MBM_CONVERT(c, MBM_UL)) >> 32);
  MBM_UL turn = (p + (UINT64_C(1) << 61)) >> 62;
  MBM_UL rest = p - (turn << 62);
  MBM_D r = mbm_wide(MBM_CONVERT((MBM_L)rest >> 32, MBM_I)) * 0x1p32 +
            mbm_wide(MBM_CONVERT((rest >> 1) & 0x7fffffff, MBM_I)) * 2.0;
  r = r * 0x1.921fb54442d18p-62;
  MBM_F high = mbm_narrow(r);
  *low = mbm_narrow(r - mbm_wide(high));
  MBM_I turns = MBM_CONVERT(turn, MBM_I);
  MBM_M negative = mb_lt(x, MBM_C(0.0f));
  *low = mb_select(negative, -*low, *low);
  *q = mbm_blend(negative, -turns, turns);
  return mb_select(negative, -high, high);
}

MB_OVERLOAD MBM_F mbm_trig_reduce(MBM_F x, MBM_F *low, MBM_I *q) {
  MBM_F near_low, far_low;
  MBM_I near_q, far_q;
  MBM_F near = mbm_trig_near(x, &near_low, &near_q), far = mbm_trig_far(x, &far_low, &far_q);
  MBM_F a = mbm_magnitude(x);
  MBM_M is_near = mb_le(a, MBM_C(0x1p18f));
  *low = mb_select(is_near, near_low, far_low);
  *q = mbm_blend(is_near, near_q, far_q);
  return mb_select(mb_lt(a, MBM_C(MBM_INF)), mb_select(is_near, near, far), MBM_C(MBM_NAN));
}

/* sin(r + low) and cos(r + low) for |r| <= pi/4. */
MB_OVERLOAD MBM_F mbm_sin_poly(MBM_F r, MBM_F low) {
  MBM_F z = r * r, p = MBM_C(-0x1.9907bep-13f);
  MBM_STEP(p, z, 0x1.1106aep-7f);
  MBM_STEP(p, z, -0x1.555544p-3f);
  return r + mb_fma(r * z, p, low);
}
MB_OVERLOAD MBM_F mbm_cos_poly(MBM_F r, MBM_F low) {
  MBM_F z = r * r, p = MBM_C(0x1.99911cp-16f);
  MBM_STEP(p, z, -0x1.6c0af4p-10f);
  MBM_STEP(p, z, 0x1.555548p-5f);
  MBM_F w = mb_fma(z, MBM_C(-0.5f), MBM_C(1.0f));
  MBM_F rest = mb_fma(z, MBM_C(-0.5f), 1.0f - w); /* what w lost */
  return w + (mb_fma(z * z, p, rest) - r * low);
}

/* sin(q pi/2 + r + low). */
MB_OVERLOAD MBM_F mbm_sin_quadrant(MBM_F r, MBM_F low, MBM_I q) {
  MBM_F y = mb_select((q & 1) == 0, mbm_sin_poly(r, low), mbm_cos_poly(r, low));
  return mbm_from_bits(mbm_bits(y) ^ ((q & 2) << 30));
}

MB_OVERLOAD MBM_F mb_sin(MBM_F x) {
  MBM_F low;
  MBM_I q;
  MBM_F r = mbm_trig_reduce(x, &low, &q);
  return mb_select(mb_eq(x, MBM_C(0.0f)), x, mbm_sin_quadrant(r, low, q)); /* for -0 */
}

MB_OVERLOAD MBM_F mb_cos(MBM_F x) {
  MBM_F low;
  MBM_I q;
  MBM_F r = mbm_trig_reduce(x, &low, &q);
  return mbm_sin_quadrant(r, low, q + 1);
}

MB_OVERLOAD MBM_F mb_tan(MBM_F x) {
  MBM_F low;
  MBM_I q;
  MBM_F r = mbm_trig_reduce(x, &low, &q);
  MBM_F s = mbm_sin_poly(r, low), c = mbm_cos_poly(r, low);
  MBM_M even = (q & 1) == 0;
  MBM_F y = mb_select(even, s, -c) / mb_select(even, c, s);
  return mb_select(mb_eq(x, MBM_C(0.0f)), x, y);
}

/* asin(s) / s - 1 as a polynomial in z = s^2 <= 1/4, times s. */
MB_OVERLOAD MBM_F mbm_asin_poly(MBM_F s, MBM_F z) {
  MBM_F p = MBM_C(0x1.34c532p-5f);
  MBM_STEP(p, z, 0x1.d523dap-7f);
  MBM_STEP(p, z, 0x1.04d2e2p-5f);
  MBM_STEP(p, z, 0x1.6ca754p-5f);
  MBM_STEP(p, z, 0x1.3338acp-4f);
  MBM_STEP(p, z, 0x1.55554cp-3f);
  return mb_fma(s * z, p, s);
}

#define MBM_PIO2_HIGH 0x1.921fb6p+0f
#define MBM_PIO2_LOW 0x1.777a5cp-25f /* to be subtracted */

/* Past 1/2: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)). */
MB_OVERLOAD MBM_F mb_asin(MBM_F x) {
  MBM_F a = mbm_magnitude(x);
  MBM_M big = mb_gt(a, MBM_C(0.5f));
  MBM_F z = mb_select(big, 0.5f - 0.5f * a, a * a);
  MBM_F p = mbm_asin_poly(mb_select(big, __builtin_elementwise_sqrt(z), a), z);
  MBM_F r = MBM_PIO2_HIGH - (p + p + MBM_PIO2_LOW);
  return mbm_with_sign(mb_select(big, r, p), x);
}

MB_OVERLOAD MBM_F mb_acos(MBM_F x) {
  MBM_F a = mbm_magnitude(x);
  MBM_M big = mb_gt(a, MBM_C(0.5f));
  MBM_F z = mb_select(big, 0.5f - 0.5f * a, a * a);
  MBM_F p = mbm_asin_poly(mb_select(big, __builtin_elementwise_sqrt(z), a), z);
  MBM_F small = MBM_PIO2_HIGH - (mbm_with_sign(p, x) + MBM_PIO2_LOW);
  MBM_F twice = p + p;
  MBM_F negative = 2.0f * MBM_PIO2_HIGH - (twice + 2.0f * MBM_PIO2_LOW);
  return mb_select(big, mb_select(mb_lt(x, MBM_C(0.0f)), negative, twice), small);
}

/* atan(t) for |t| <= 1. */
MB_OVERLOAD MBM_F mbm_atan_poly(MBM_F t) {
  MBM_F z = t * t, p = MBM_C(-0x1.d1d3a4p-10f);
  MBM_STEP(p, z, 0x1.63aa06p-7f);
  MBM_STEP(p, z, -0x1.fd4bcp-6f);
  MBM_STEP(p, z, 0x1.da23aep-5f);
  MBM_STEP(p, z, -0x1.580944p-4f);
  MBM_STEP(p, z, 0x1.c08c52p-4f);
  MBM_STEP(p, z, -0x1.242086p-3f);
  MBM_STEP(p, z, 0x1.9991e4p-3f);
  MBM_STEP(p, z, -0x1.55553ep-2f);
  return mb_fma(t * z, p, t);
}

MB_OVERLOAD MBM_F mb_atan(MBM_F x) {
  MBM_F a = mbm_magnitude(x);
  MBM_M big = mb_gt(a, MBM_C(1.0f));
  MBM_F p = mbm_atan_poly(mb_select(big, MBM_C(-1.0f), a) / mb_select(big, a, MBM_C(1.0f)));
  return mbm_with_sign(mb_select(big, MBM_PIO2_HIGH + (p - MBM_PIO2_LOW), p), x);
}

/* The angle of (x, y), with C's answers for zeros and infinities. */
MB_OVERLOAD MBM_F mb_atan2(MBM_F y, MBM_F x) {
  MBM_F ax = mbm_magnitude(x), ay = mbm_magnitude(y);
  MBM_M both = mb_and(mb_eq(ax, MBM_C(MBM_INF)), mb_eq(ay, MBM_C(MBM_INF)));
  ax = mb_select(both, MBM_C(1.0f), ax);
  ay = mb_select(both, MBM_C(1.0f), ay);
  MBM_M steep = mb_gt(ay, ax);
  MBM_F top = mb_select(steep, -ax, ay), bottom = mb_select(steep, ay, ax);
  bottom = mb_select(mb_eq(bottom, MBM_C(0.0f)), MBM_C(1.0f), bottom); /* only when top is 0 too */
  MBM_F p = mbm_atan_poly(top / bottom);
  p = mb_select(steep, MBM_PIO2_HIGH + (p - MBM_PIO2_LOW), p);
  MBM_M left = mb_lt(mbm_with_sign(MBM_C(1.0f), x), MBM_C(0.0f));
  p = mb_select(left, 2.0f * MBM_PIO2_HIGH - (p + 2.0f * MBM_PIO2_LOW), p);
  p = mbm_with_sign(p, y);
  return mb_select(mb_or(mb_ne(x, x), mb_ne(y, y)), x + y, p);
}
