/* Fourier transforms of rows, of any length, in double: Stockham's passes, one for each factor of the length. A pass
 * takes every m-th number of a run as the parts of r small transforms, so the result is in order without a shuffle. */
#ifndef MB_FOURIER_H
#define MB_FOURIER_H

#include "mb/base.h"

typedef struct {
  long length, taken, made; /* of the transform; numbers of a row that are read, and that are made */
  int parts, out_parts;     /* 2: complex, 1: real */
  int inverse, mirrored;    /* mirrored: a row is the first half of a spectrum whose other half is its mirror */
} mb_fourier;

/* y = x * (c + i d) */
MB_INLINE void mb_fourier_put(double *y, double re, double im, double c, double d) {
  y[0] = re * c - im * d;
  y[1] = re * d + im * c;
}

/* Runs of n numbers, s of them side by side; roots: cos and sin of 2 pi t / all. */
MB_LEAF void mb_fourier_pass(long n, long s, long r, long all, const double *roots, double sign, const double *x,
                             double *y) {
  const long m = n / r, step = all / n, apart = 2 * s * m;
  for (long p = 0; p < m; p++)
    for (long k = 0; k < r; k++) {
      const double c = roots[2 * p * k * step], d = sign * roots[2 * p * k * step + 1];
      const double *first = x + 2 * s * p;
      double *to = y + 2 * s * (r * p + k);
      for (long q = 0; q < s; q++) {
        const double *a = first + 2 * q;
        double re = 0, im = 0;
        if (r == 4) { /* by 1, i, -1 and -i */
          const double *e = a + apart, *f = e + apart, *g = f + apart;
          const double odd = k == 1 ? sign : -sign;
          re = k % 2 ? a[0] - f[0] - odd * (e[1] - g[1]) : a[0] + f[0] + (k ? -1 : 1) * (e[0] + g[0]);
          im = k % 2 ? a[1] - f[1] + odd * (e[0] - g[0]) : a[1] + f[1] + (k ? -1 : 1) * (e[1] + g[1]);
        } else {
          for (long j = 0, t = 0; j < r; j++, t = t + k < r ? t + k : t + k - r) {
            const double u = roots[2 * t * (all / r)], v = sign * roots[2 * t * (all / r) + 1];
            re += a[j * apart] * u - a[j * apart + 1] * v;
            im += a[j * apart] * v + a[j * apart + 1] * u;
          }
        }
        mb_fourier_put(to + 2 * q, re, im, c, d);
      }
    }
}

/* The transform of the numbers at a, which is where it returns; b is as large. */
MB_LEAF double *mb_fourier_all(long all, const double *roots, double sign, double *a, double *b) {
  for (long n = all, s = 1, r; n > 1; n /= r, s *= r) {
    for (r = n % 4 == 0 ? 4 : 2; n % r; r++) {
      if (r * r > n) r = n - 1; /* a prime is left */
    }
    mb_fourier_pass(n, s, r, all, roots, sign, a, b);
    double *t = a;
    a = b, b = t;
  }
  return a;
}

MB_INLINE void mb_fourier_load(mb_fourier d, const double *x, double *a) {
  const long bins = mb_min_long(d.taken, d.mirrored ? d.length / 2 + 1 : d.length);
  for (long k = 0; k < 2 * d.length; k++) a[k] = 0;
  for (long k = 0; k < bins; k++) {
    a[2 * k] = x[k * d.parts];
    a[2 * k + 1] = d.parts == 2 ? x[k * d.parts + 1] : 0;
  }
  if (!d.mirrored) return;
  a[1] = 0; /* the first number, and the middle one, are real */
  if (d.length % 2 == 0) a[d.length + 1] = 0;
  for (long k = 1; k < (d.length + 1) / 2; k++) {
    a[2 * (d.length - k)] = a[2 * k];
    a[2 * (d.length - k) + 1] = -a[2 * k + 1];
  }
}

/* work: room for 2 * length complex numbers */
MB_INLINE void mb_fourier_row(mb_fourier d, const double *x, const double *roots, double *work, double *y) {
  mb_fourier_load(d, x, work);
  const double *z = mb_fourier_all(d.length, roots, d.inverse ? 1 : -1, work, work + 2 * d.length);
  const double scale = d.inverse ? 1.0 / d.length : 1;
  for (long k = 0; k < d.made; k++)
    for (int j = 0; j < d.out_parts; j++) y[k * d.out_parts + j] = z[2 * k + j] * scale;
}

#endif
