/* Boxes by falling score, without those that overlap one before. Boxes are two corners (y, x) each. */
#ifndef MB_TFLBOX_H
#define MB_TFLBOX_H

#include "mb/math.h"

MB_INLINE float mb_tfl_overlap(const float *a, const float *b) {
  float low[2], high[2], area[2] = {1, 1}, both = 1;
  for (int k = 0; k < 2; k++) {
    float al = a[k] < a[k + 2] ? a[k] : a[k + 2], ah = a[k] < a[k + 2] ? a[k + 2] : a[k];
    float bl = b[k] < b[k + 2] ? b[k] : b[k + 2], bh = b[k] < b[k + 2] ? b[k + 2] : b[k];
    area[0] *= ah - al, area[1] *= bh - bl;
    low[k] = al > bl ? al : bl, high[k] = ah < bh ? ah : bh;
    both *= high[k] > low[k] ? high[k] - low[k] : 0;
  }
  return area[0] <= 0 || area[1] <= 0 ? 0 : both / (area[0] + area[1] - both);
}

/* Numbers of at most `most` boxes, each with a score of at least `least` and no overlap above `limit`. */
MB_INLINE long mb_tfl_boxes(const float *boxes, float *scores, long n, long most, float limit, float least,
                            int32_t *kept) {
  long count = 0;
  while (count < most) {
    long best = -1;
    for (long k = 0; k < n; k++)
      if (scores[k] >= least && (best < 0 || scores[k] > scores[best])) best = k;
    if (best < 0) break;
    scores[best] = -__builtin_inff();
    int fits = 1;
    for (long j = 0; j < count && fits; j++) fits = !(mb_tfl_overlap(boxes + 4 * best, boxes + 4 * kept[j]) > limit);
    if (fits) kept[count++] = (int32_t)best;
  }
  return count;
}

MB_INLINE int32_t mb_tfl_suppress(const float *boxes, const float *scores, long n, long most, float limit, float least,
                                  float sigma, int32_t *at, float *out, float *now, int32_t *first) {
  int32_t count = 0;
  const float fall = sigma > 0 ? -0.5f / sigma : 0;
  for (long k = 0; k < n; k++) now[k] = scores[k], first[k] = scores[k] > least ? 0 : -1;
  while (count < most) {
    long best = -1;
    for (long k = 0; k < n; k++)
      if (first[k] >= 0 && (best < 0 || now[k] > now[best])) best = k;
    if (best < 0) break;
    float score = now[best];
    int hard = 0;
    for (int32_t j = count - 1; j >= first[best] && !hard && score > least; j--) {
      float share = mb_tfl_overlap(boxes + 4 * best, boxes + 4 * at[j]);
      hard = share >= limit;
      if (fall != 0 && !hard) score *= mb_exp(fall * share * share);
    }
    if (hard || !(score > least)) {
      first[best] = -1;
    } else if (score == now[best]) {
      at[count] = (int32_t)best, out[count++] = score, first[best] = -1;
    } else {
      now[best] = score, first[best] = count;
    }
  }
  return count;
}

#endif
