/* What TFLite's recurrent cells of floats do at every step: weights of floats or bytes times a vector, and gates that
 * are normalized. */
#ifndef MB_TFLCELL_H
#define MB_TFLCELL_H

#include "mb/math.h"

/* Floats become int8 while a model runs (hybrid kernels): q is round((x / scale) + zero), half away from zero. The
 * largest magnitude becomes 127; or, asymmetric, the range with 0 in it becomes [-128, 127]. */
MB_INLINE int32_t mb_tfl_away(float x) {
  int32_t whole = (int32_t)x;
  float rest = x - (float)whole;
  return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

MB_INLINE float mb_tfl_quantize(const float *x, long n, int8_t *q, int asymmetric, int32_t *zero) {
  float low = 0, high = 0, scale, inverse;
  int32_t least = asymmetric ? -128 : -127;
  for (long k = 0; k < n; k++) low = x[k] < low ? x[k] : low, high = x[k] > high ? x[k] : high;
  *zero = 0;
  if (low == high) {
    for (long k = 0; k < n; k++) q[k] = 0;
    return 1;
  }
  if (asymmetric) {
    double wide = ((double)high - low) / 255, from_low = low / wide, from_high = high / wide;
    double place = 128 - from_low < 127 + from_high ? -128 - from_low : 127 - from_high;
    *zero = place <= -128 ? -128 : place >= 127 ? 127 : (int32_t)(place < 0 ? place - 0.5 : place + 0.5);
    scale = (float)wide, inverse = 1.0f / scale;
  } else {
    float top = -low > high ? -low : high;
    scale = top / 127, inverse = 127 / top;
  }
  for (long k = 0; k < n; k++) {
    float scaled = x[k] * inverse; /* rounded: in one expression with the sum it may not be */
    int32_t v = mb_tfl_away(asymmetric ? (float)*zero + scaled : scaled);
    q[k] = (int8_t)(v < least ? least : v > 127 ? 127 : v);
  }
  return scale;
}

/* One row of weights times a vector: of floats, or of bytes that are quantized as above. */
MB_INLINE float mb_tfl_dot(const float *w, const float *x, long n) {
  float total = 0;
  for (long k = 0; k < n; k++) total += w[k] * x[k];
  return total;
}

MB_INLINE float mb_tfl_dot8(const int8_t *w, const int8_t *x, long n, int32_t zero, float scale) {
  int32_t total = 0;
  for (long k = 0; k < n; k++) total += w[k] * (x[k] - zero);
  return (float)total * scale;
}

/* A row made to have the mean 0 and the deviation 1, then a factor and a bias per element */
MB_INLINE void mb_tfl_normal(float *x, const float *factor, const float *bias, long n) {
  float mean = 0, square = 0;
  for (long k = 0; k < n; k++) mean += x[k];
  mean /= (float)n;
  for (long k = 0; k < n; k++) square += (x[k] - mean) * (x[k] - mean);
  float inverse = 1.0f / mb_sqrt(square / (float)n + 1e-8f);
  for (long k = 0; k < n; k++) x[k] = (x[k] - mean) * inverse * factor[k] + bias[k];
}

#endif
