/* Trigonometry for `double`, after math_f64.h. The identities are those of math_trig_f32.h. */

static const double mbm_c_sin[] = {
    -0x1.5555555555545p-3, 0x1.111111110f26cp-7, -0x1.a01a019b4de9dp-13, 0x1.71de34ccc0c2cp-19,
    -0x1.ae5ddf9e4c38fp-26, 0x1.5d6bd15c68f53p-33};
static const double mbm_c_cos[] = {
    0x1.5555555555548p-5, -0x1.6c16c16c149a5p-10, 0x1.a01a019beefdcp-16, -0x1.27e4f77e212acp-22,
    0x1.1ee98d6f81b8bp-29, -0x1.8f7df8313773fp-37};
static const double mbm_c_asin[] = {
    0x1.5555555555577p-3, 0x1.333333332e132p-4, 0x1.6db6db721254fp-5, 0x1.f1c71a94fb209p-6,
    0x1.6e8bdef803b4ap-6, 0x1.1c49eb4429083p-6, 0x1.ca2076b5f0c0bp-7, 0x1.7579f7de98495p-7,
    0x1.619621676567ep-7, 0x1.df2bf6511a57bp-9, 0x1.6621f3d2820bfp-6, -0x1.5c3267ed2d8fcp-6,
    0x1.0cc96a1f91e02p-5};
static const double mbm_c_atan[] = {
    -0x1.5555555555554p-2, 0x1.9999999999584p-3, -0x1.249249246f58ap-3, 0x1.c71c71b4589c9p-4,
    -0x1.745d14503c9fdp-4, 0x1.3b1364eede1a6p-4, -0x1.110beb6060293p-4, 0x1.e167b97ecd5d4p-5,
    -0x1.ab3be6b7dcce7p-5, 0x1.6fe4b8fc7154fp-5, -0x1.0fd4d13899a93p-5, 0x1.e84aa750042e6p-7};

/* 2/pi behind a word of zeros: 64 bits each, enough for the largest double. */
static const uint64_t mbm_two_over_pi[] = {
    0,                            UINT64_C(0xa2f9836e4e441529), UINT64_C(0xfc2757d1f534ddc0),
    UINT64_C(0xdb6295993c439041), UINT64_C(0xfe5163abdebbc561), UINT64_C(0xb7246e3a424dd2e0),
    UINT64_C(0x06492eea09d1921c), UINT64_C(0xfe1deb1cb129a73e), UINT64_C(0xe88235f52ebb4484),
    UINT64_C(0xe99c7026b45f7e41), UINT64_C(0x3991d639835339f4), UINT64_C(0x9c845f8bbdf9283b),
    UINT64_C(0x1ff897ffde05980f), UINT64_C(0xef2f118b5a0a6d1f), UINT64_C(0x6d367ecf27cb09b7),
    UINT64_C(0x4f463f669e5fea2d), UINT64_C(0x7527bac7ebe5f17b), UINT64_C(0x3d0739f78a5292ea),
    UINT64_C(0x6bfb5fb11f8d5d08), UINT64_C(0x56033046fc7b6bab)};

/* The upper half of a product, without the 128-bit type that small targets lack. */
MB_INLINE uint64_t mbm_mul_high(uint64_t a, uint64_t b) {
  uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
  uint64_t m = ah * bl + ((al * bl) >> 32), n = al * bh + (uint32_t)m;
  return ah * bh + (m >> 32) + (n >> 32);
}

/* x = q pi/2 + r + low for |x| <= 2^20: pi/2 in 33-bit parts, whose products with n are exact. */
MB_INLINE double mbm_trig_near_d(double x, double *low, int *q) {
  double k = mbm_fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52), n = k - 0x1.8p52;
  *q = (int)(mbm_bits(k) & 3);
  double a = x - n * 0x1.921fb544p+0, h = n * 0x1.0b4611a6p-34, b = a - h, c = b - a;
  double lost = (a - (b - c)) - (h + c);
  h = n * 0x1.3198a2ep-69, a = b - h, c = a - b;
  lost += ((b - (a - c)) - (h + c)) - n * 0x1.b839a252049c1p-104;
  double r = a + lost;
  *low = (a - r) + lost;
  return r;
}

/* The same for the rest: the mantissa times the 192 bits of 2/pi that matter. */
MB_INLINE double mbm_trig_far_d(double x, double *low, int *q) {
  int64_t bits = mbm_bits(x);
  int at = (int)((bits >> 52) & 2047) - 1075 + 62; /* the first bit of weight 2 */
  const uint64_t *w = mbm_two_over_pi + (at >> 6);
  int s = at & 63;
  uint64_t m = ((uint64_t)bits & ((UINT64_C(1) << 52) - 1)) | (UINT64_C(1) << 52), t[3];
  for (int i = 0; i < 3; i++) t[i] = (w[i] << s) | ((w[i + 1] >> 1) >> (63 - s));
  uint64_t p1 = m * t[1], p0 = m * t[0] + mbm_mul_high(m, t[1]), carry = p1;
  p1 += mbm_mul_high(m, t[2]);
  p0 += p1 < carry;
  uint64_t turn = (p0 + (UINT64_C(1) << 61)) >> 62;
  int64_t rest = (int64_t)(p0 - (turn << 62));
  double h = (double)rest, l = (double)(rest - (int64_t)h) + (double)p1 * 0x1p-64, v = h + l;
  l = (h - v) + l;
  double r = v * 0x1.921fb54442d18p-62;
  double e = mbm_product_error_d(v, 0x1.921fb54442d18p-62, r) + l * 0x1.921fb54442d18p-62 +
             v * 0x1.1a62633145c07p-116;
  double y = r + e;
  *low = (r - y) + e;
  *q = (int)(turn & 3);
  if (bits < 0) *low = -*low, *q = -*q & 3, y = -y;
  return y;
}

MB_INLINE double mbm_trig_reduce_d(double x, double *low, int *q) {
  double a = mbm_magnitude(x);
  if (a <= 0x1p20) return mbm_trig_near_d(x, low, q);
  if (a < __builtin_inf()) return mbm_trig_far_d(x, low, q);
  *low = 0.0, *q = 0;
  return x - x;
}

MB_INLINE double mbm_sin_poly_d(double r, double low) {
  double z = r * r;
  return r + mbm_fma(r * z, MBM_POLY(z, mbm_c_sin), low);
}
MB_INLINE double mbm_cos_poly_d(double r, double low) {
  double z = r * r, w = mbm_fma(z, -0.5, 1.0), rest = mbm_fma(z, -0.5, 1.0 - w);
  return w + (mbm_fma(z * z, MBM_POLY(z, mbm_c_cos), rest) - r * low);
}
MB_INLINE double mbm_sin_quadrant_d(double r, double low, int q) {
  double y = q & 1 ? mbm_cos_poly_d(r, low) : mbm_sin_poly_d(r, low);
  return q & 2 ? -y : y;
}

MB_OVERLOAD double mb_sin(double x) {
  double low;
  int q;
  double r = mbm_trig_reduce_d(x, &low, &q);
  return x == 0.0 ? x : mbm_sin_quadrant_d(r, low, q);
}
MB_OVERLOAD double mb_cos(double x) {
  double low;
  int q;
  double r = mbm_trig_reduce_d(x, &low, &q);
  return mbm_sin_quadrant_d(r, low, q + 1);
}
MB_OVERLOAD double mb_tan(double x) {
  double low;
  int q;
  double r = mbm_trig_reduce_d(x, &low, &q);
  double s = mbm_sin_poly_d(r, low), c = mbm_cos_poly_d(r, low);
  return x == 0.0 ? x : q & 1 ? -c / s : s / c;
}

#define MBM_PIO2_HIGH_D 0x1.921fb54442d18p+0
#define MBM_PIO2_LOW_D 0x1.1a62633145c07p-54

MB_INLINE double mbm_asin_poly_d(double a, int big, double *z) {
  *z = big ? 0.5 - 0.5 * a : a * a;
  double s = big ? mb_sqrt(*z) : a;
  return mbm_fma(s * *z, MBM_POLY(*z, mbm_c_asin), s);
}
MB_OVERLOAD double mb_asin(double x) {
  double a = mbm_magnitude(x), z, p = mbm_asin_poly_d(a, a > 0.5, &z);
  return mbm_with_sign(a > 0.5 ? MBM_PIO2_HIGH_D - (p + p - MBM_PIO2_LOW_D) : p, x);
}
MB_OVERLOAD double mb_acos(double x) {
  double a = mbm_magnitude(x), z, p = mbm_asin_poly_d(a, a > 0.5, &z);
  if (a > 0.5) return x < 0.0 ? 2.0 * MBM_PIO2_HIGH_D - (p + p - 2.0 * MBM_PIO2_LOW_D) : p + p;
  return MBM_PIO2_HIGH_D - (mbm_with_sign(p, x) - MBM_PIO2_LOW_D);
}

/* atan(top / bottom), 0 <= top <= bottom: past tan(pi/8), pi/4 + atan((t - b) / (t + b)). */
MB_INLINE double mbm_atan_ratio_d(double top, double bottom) {
  int big = top > bottom * 0x1.a827999fcef32p-2;
  double t = big ? (top - bottom) / (top + bottom) : top / bottom, z = t * t;
  double p = mbm_fma(t * z, MBM_POLY(z, mbm_c_atan), t);
  return big ? 0.5 * MBM_PIO2_HIGH_D + (p + 0.5 * MBM_PIO2_LOW_D) : p;
}
MB_OVERLOAD double mb_atan(double x) {
  double a = mbm_magnitude(x);
  double p = a <= 1.0 ? mbm_atan_ratio_d(a, 1.0)
                      : MBM_PIO2_HIGH_D - (mbm_atan_ratio_d(1.0 / a, 1.0) - MBM_PIO2_LOW_D);
  return mbm_with_sign(p, x);
}
MB_OVERLOAD double mb_atan2(double y, double x) {
  double ax = mbm_magnitude(x), ay = mbm_magnitude(y);
  if (x != x || y != y) return x + y;
  if (ax == __builtin_inf() && ay == ax) ax = ay = 1.0;
  if (ax >= 0x1p1021 || ay >= 0x1p1021) ax *= 0.25, ay *= 0.25; /* for the sum */
  int steep = ay > ax;
  double top = steep ? ax : ay, bottom = steep ? ay : ax;
  double p = top == 0.0 ? 0.0 : bottom == __builtin_inf() ? 0.0 : mbm_atan_ratio_d(top, bottom);
  p = steep ? MBM_PIO2_HIGH_D - (p - MBM_PIO2_LOW_D) : p;
  p = mbm_bits(x) < 0 ? 2.0 * MBM_PIO2_HIGH_D - (p - 2.0 * MBM_PIO2_LOW_D) : p;
  return mbm_with_sign(p, y);
}
