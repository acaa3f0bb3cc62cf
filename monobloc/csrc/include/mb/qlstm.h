/* onnxruntime's DynamicQuantizeLSTM: an LSTM whose recurrence weights are bytes, and whose state is quantized
 * anew in every step, by the range it has over the whole batch.
 *
 *   x      [steps][batch][dirs * 4 * hidden]   gates before the past is added
 *   r      [dirs][hidden][4 * hidden]          bytes; scale and zero (or 0): one per column, [dirs][4 * hidden]
 *
 * A direction is a chain: its samples go in step, since they share a range. Scratch per direction: the gates of
 * a step, then the state as integers. What a gate does is in recurrent_body.h.
 */
#ifndef MB_QLSTM_H
#define MB_QLSTM_H

#include "mb/recurrent.h"

/* q = round(h / scale) as an offset from its zero point; gives the scale. */
MB_INLINE float mb_qlstm_quantize(long n, const float *h, int32_t *q) {
  float low = 0, high = 0;
  for (long i = 0; i < n; i++) {
    low = h[i] < low ? h[i] : low;
    high = h[i] > high ? h[i] : high;
  }
  const float scale = high == low ? 1.f : (high - low) / 255.f;
  const float zero = mb_round(mb_min(255.f, mb_max(0.f, -low / scale)));
  for (long i = 0; i < n; i++)
    q[i] = (int32_t)mb_min(255.f - zero, mb_max(-zero, mb_round(h[i] / scale)));
  return scale;
}

MB_INLINE int32_t mb_qlstm_byte(int is_unsigned, const void *r, long i) {
  return is_unsigned ? ((const uint8_t *)r)[i] : ((const int8_t *)r)[i];
}

/* g[j] = x[j] + by * scale[j] * sum over k of q[k] * (r[k][j] - zero[j]), exact in integers. */
MB_INLINE void mb_qlstm_columns(int width, int is_unsigned, long hidden, const float *x, const int32_t *q, int32_t sum,
                                float by, const void *r, const float *scale, const void *zero, float *g) {
  int32_t acc[8 * MB_VL];
  MB_UNROLL for (int l = 0; l < width; l++)
    acc[l] = zero ? -sum * mb_qlstm_byte(is_unsigned, zero, l) : 0;
  for (long k = 0; k < hidden; k++)
    MB_UNROLL for (int l = 0; l < width; l++) acc[l] += q[k] * mb_qlstm_byte(is_unsigned, r, 4 * hidden * k + l);
  MB_UNROLL for (int l = 0; l < width; l++) g[l] = x[l] + (float)acc[l] * (by * scale[l]);
}

MB_INLINE void mb_qlstm_add(int is_unsigned, long hidden, const float *x, const int32_t *q, float by, const int8_t *r,
                            const float *scale, const int8_t *zero, float *g) {
  enum { W = 8 * MB_VL };
  const long n = 4 * hidden;
  int32_t sum = 0;
  long j = 0;
  for (long k = 0; k < hidden; k++) sum += q[k];
  for (; j + W <= n; j += W)
    mb_qlstm_columns(W, is_unsigned, hidden, x + j, q, sum, by, r + j, scale + j, zero ? zero + j : 0, g + j);
  for (; j < n; j++)
    mb_qlstm_columns(1, is_unsigned, hidden, x + j, q, sum, by, r + j, scale + j, zero ? zero + j : 0, g + j);
}

MB_INLINE void mb_qlstm_chain(const mb_rec *d, int is_unsigned, long dir, const float *x, const int8_t *r,
                              const float *scale, const int8_t *zero, const float *h0, const float *c0,
                              const float *peep, float *y, float *yh, float *yc, float *scratch) {
  const long n = d->hidden, size = d->batch * n;
  float *h = yh + dir * size, *c = yc + dir * size, *g = scratch + dir * (4 * n + size);
  int32_t *q = (int32_t *)(g + 4 * n);
  const float *p = peep ? peep + dir * 3 * n : 0;
  mb_rec_fill_f32(h, h0 ? h0 + dir * size : 0, size);
  mb_rec_fill_f32(c, c0 ? c0 + dir * size : 0, size);
  for (long s = 0; s < d->steps; s++) {
    const long t = d->reverse || dir == 1 ? d->steps - 1 - s : s;
    const float by = mb_qlstm_quantize(size, h, q);
    for (long b = 0; b < d->batch; b++) {
      const float *in = x + ((t * d->batch + b) * d->dirs + dir) * 4 * n;
      mb_qlstm_add(is_unsigned, n, in, q + b * n, by, r + dir * 4 * n * n, scale + dir * 4 * n,
                   zero ? zero + dir * 4 * n : 0, g);
      mb_lstm_state_f32(d, d->act + 3 * dir, p, g, h + b * n, c + b * n);
    }
    mb_rec_fill_f32(y + (t * d->dirs + dir) * size, h, size);
  }
}

MB_INLINE int mb_qlstm_run(mb_rec d, int is_unsigned, const float *x, const void *r, const float *scale,
                           const void *zero, const float *h0, const float *c0, const float *peep, float *y, float *yh,
                           float *yc, float *scratch, int tid, int nt) {
  long lo, hi;
  mb_share(d.dirs, tid, nt, &lo, &hi);
  for (long i = lo; i < hi; i++)
    mb_qlstm_chain(&d, is_unsigned, i, x, r, scale, zero, h0, c0, peep, y, yh, yc, scratch);
  return MB_OK;
}

#endif
