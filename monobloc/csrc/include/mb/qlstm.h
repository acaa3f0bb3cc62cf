/* onnxruntime's DynamicQuantizeLSTM: an LSTM whose recurrence weights are bytes, and whose state is quantized
 * anew in every step, by the range it has over the whole batch.
 *
 *   x      [steps][batch][dirs * 4 * hidden]   gates before the past is added
 *   r      [dirs][hidden][4 * hidden]          bytes; scale and zero (or 0): one per column, [dirs][4 * hidden]
 *
 * A direction is a chain: its samples go in step, since they share a range. Scratch per direction: the gates of
 * a step, sums of columns, then the state as integers. What a gate does is in recurrent_body.h.
 *
 * Where the machine has a dot product of bytes (iconv.h), four rows of r are zipped as they are loaded; state and
 * weights are bytes from zero points of their own, which the sums of columns and of the state take off again.
 */
#ifndef MB_QLSTM_H
#define MB_QLSTM_H

#include "mb/iconv.h"
#include "mb/recurrent.h"

/* q = round(h / scale) as an offset from its zero point; gives the scale. `zero_u` is what makes an operand of the
 * dot product of it. */
MB_INLINE float mb_qlstm_quantize(long n, const float *h, int32_t *q, int32_t *zero_u) {
  float low = 0, high = 0;
  mb_vf lows = {0}, highs = {0};
  long i = 0;
  for (; i + MB_VL <= n; i += MB_VL) {
    const mb_vf v = mb_load(h + i);
    lows = mb_select(mb_lt(v, lows), v, lows);
    highs = mb_select(mb_gt(v, highs), v, highs);
  }
  for (int l = 0; l < MB_VL; l++) {
    low = lows[l] < low ? lows[l] : low;
    high = highs[l] > high ? highs[l] : high;
  }
  for (; i < n; i++) {
    low = h[i] < low ? h[i] : low;
    high = h[i] > high ? h[i] : high;
  }
  const float scale = high == low ? 1.f : (high - low) / 255.f;
  const float zero = mb_round(mb_min(255.f, mb_max(0.f, -low / scale)));
  *zero_u = (int32_t)zero - (MB_DOT4_UNSIGNED ? 0 : 128);
  for (i = 0; i < n; i++)
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

typedef uint8_t mb_vq __attribute__((vector_size(4 * MB_VL)));
typedef uint16_t mb_vq2 __attribute__((vector_size(4 * MB_VL)));

/* Bytes, or pairs of them, of two rows side by side, within every 16 bytes. */
#define MB_QLSTM_ZIP(NAME, V, N)                                                \
  MB_INLINE V NAME(V a, V b, int high) {                                        \
    V v;                                                                        \
    MB_UNROLL for (int i = 0; i < 4 * MB_VL / (16 / N); i++) {                  \
      const int at = i / N * N + high * (N / 2) + i % N / 2;                    \
      v[i] = i % 2 ? b[at] : a[at];                                             \
    }                                                                           \
    return v;                                                                   \
  }
MB_QLSTM_ZIP(mb_qlstm_zip, mb_vq, 16)
MB_QLSTM_ZIP(mb_qlstm_zip2, mb_vq2, 8)

/* acc[j] = sum over k of u[k] * (r[k][j] as a signed byte), MB_CHUNK columns; u as the dot product wants it, 4 rows
 * at a time. */
MB_INLINE void mb_qlstm_dot(int is_unsigned, long hidden, const uint8_t *u, const uint8_t *r, int32_t acc[MB_CHUNK]) {
  mb_vi sum[4] = {{0}};
  const uint8_t flip = is_unsigned ? 0x80 : 0;
  for (long k = 0; k < hidden; k += 4) {
    mb_vq v[4];
    MB_UNROLL for (int i = 0; i < 4; i++) {
      __builtin_memcpy(&v[i], r + 4 * hidden * (k + i), sizeof v[i]);
      v[i] ^= flip;
    }
    const mb_vi x = mb_ibcast(mb_iconv_x((const char *)u + k));
    MB_UNROLL for (int h = 0; h < 2; h++) {
      const mb_vq2 a = (mb_vq2)mb_qlstm_zip(v[0], v[1], h), b = (mb_vq2)mb_qlstm_zip(v[2], v[3], h);
      MB_UNROLL for (int i = 0; i < 2; i++) sum[2 * h + i] = mb_dot4(sum[2 * h + i], x, (mb_vi)mb_qlstm_zip2(a, b, i));
    }
  }
  int32_t t[4][MB_VL];
  MB_UNROLL for (int i = 0; i < 4; i++) mb_istore(t[i], sum[i]);
  for (long l = 0; l < MB_CHUNK; l++) acc[l] = t[l % 16 / 4][l / 16 * 4 + l % 4];
}

/* The same columns as mb_qlstm_columns gives; `sums` are those of r's columns, as signed bytes. */
MB_INLINE void mb_qlstm_chunk(int is_unsigned, long hidden, const float *x, const uint8_t *u, int32_t zero_u, int32_t sum,
                              const int32_t *sums, float by, const uint8_t *r, const float *scale, const int8_t *zero,
                              float *g) {
  int32_t acc[MB_CHUNK];
  mb_qlstm_dot(is_unsigned, hidden, u, r, acc);
  for (int l = 0; l < MB_CHUNK; l++) {
    const int32_t z = (zero ? mb_qlstm_byte(is_unsigned, zero, l) : 0) - (is_unsigned ? 128 : 0);
    g[l] = x[l] + (float)(acc[l] - zero_u * sums[l] - z * sum) * (by * scale[l]);
  }
}

MB_INLINE int mb_qlstm_dots(long hidden) { return MB_HAS_DOT4 && hidden % 4 == 0; }

/* Sums of the columns that go by chunks. */
MB_INLINE void mb_qlstm_sums(int is_unsigned, long hidden, const int8_t *r, uint8_t *u, int32_t *sums) {
  if (!mb_qlstm_dots(hidden)) return;
  for (long k = 0; k < hidden; k++) u[k] = 1;
  for (long j = 0; j + MB_CHUNK <= 4 * hidden; j += MB_CHUNK)
    mb_qlstm_dot(is_unsigned, hidden, u, (const uint8_t *)r + j, sums + j);
}

MB_INLINE void mb_qlstm_add(int is_unsigned, long hidden, const float *x, const int32_t *q, float by, const int8_t *r,
                            const float *scale, const int8_t *zero, const int32_t *sums, int32_t zero_u, uint8_t *u,
                            float *g) {
  enum { W = 8 * MB_VL };
  const long n = 4 * hidden;
  int32_t sum = 0;
  long j = 0;
  for (long k = 0; k < hidden; k++) sum += q[k];
  if (mb_qlstm_dots(hidden)) {
    for (long k = 0; k < hidden; k++) u[k] = (uint8_t)(q[k] + zero_u);
    for (; j + MB_CHUNK <= n; j += MB_CHUNK)
      mb_qlstm_chunk(is_unsigned, hidden, x + j, u, zero_u, sum, sums + j, by, (const uint8_t *)r + j, scale + j,
                     zero ? zero + j : 0, g + j);
  }
  for (; j + W <= n; j += W)
    mb_qlstm_columns(W, is_unsigned, hidden, x + j, q, sum, by, r + j, scale + j, zero ? zero + j : 0, g + j);
  for (; j < n; j++)
    mb_qlstm_columns(1, is_unsigned, hidden, x + j, q, sum, by, r + j, scale + j, zero ? zero + j : 0, g + j);
}

MB_INLINE void mb_qlstm_chain(const mb_rec *d, int is_unsigned, long dir, const float *x, const int8_t *r,
                              const float *scale, const int8_t *zero, const float *h0, const float *c0,
                              const float *peep, float *y, float *yh, float *yc, float *scratch) {
  const long n = d->hidden, size = d->batch * n;
  float *h = yh + dir * size, *c = yc + dir * size, *g = scratch + dir * (9 * n + size);
  int32_t *sums = (int32_t *)(g + 4 * n), *q = sums + 4 * n;
  uint8_t *u = (uint8_t *)(q + size);
  const float *p = peep ? peep + dir * 3 * n : 0;
  mb_rec_fill_f32(h, h0 ? h0 + dir * size : 0, size);
  mb_rec_fill_f32(c, c0 ? c0 + dir * size : 0, size);
  mb_qlstm_sums(is_unsigned, n, r + dir * 4 * n * n, u, sums);
  for (long s = 0; s < d->steps; s++) {
    int32_t zero_u;
    const long t = d->reverse || dir == 1 ? d->steps - 1 - s : s;
    const float by = mb_qlstm_quantize(size, h, q, &zero_u);
    for (long b = 0; b < d->batch; b++) {
      const float *in = x + ((t * d->batch + b) * d->dirs + dir) * 4 * n;
      mb_qlstm_add(is_unsigned, n, in, q + b * n, by, r + dir * 4 * n * n, scale + dir * 4 * n,
                   zero ? zero + dir * 4 * n : 0, sums, zero_u, u, g);
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
