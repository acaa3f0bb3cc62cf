/* Included by mb/recurrent.h once per element type: MB_REC_T, and MB_REC(name) as its suffix. */
#define T MB_REC_T

MB_INLINE T MB_REC(rec_act)(mb_rec_act a, T x) {
  const T p = (T)a.alpha, q = (T)a.beta;
  switch (a.kind) {
    case MB_REC_SIGMOID: return mb_sigmoid(x);
    case MB_REC_TANH: return mb_tanh(x);
    case MB_REC_RELU: return x < 0 ? (T)0 : x;
    case MB_REC_LEAKYRELU: return x < 0 ? p * x : x;
    case MB_REC_THRESHOLDEDRELU: return x > p ? x : (T)0;
    case MB_REC_SCALEDTANH: return p * mb_tanh(q * x);
    case MB_REC_HARDSIGMOID: {
      T t = p * x + q;
      t = t > 1 ? (T)1 : t;
      return t < 0 ? (T)0 : t;
    }
    case MB_REC_ELU: return x < 0 ? p * mb_expm1(x) : x;
    case MB_REC_SOFTSIGN: return mb_softsign(x);
    case MB_REC_SOFTPLUS: return mb_softplus(x);
    default: return p * x + q;
  }
}

MB_INLINE T MB_REC(rec_gate)(const mb_rec *d, mb_rec_act a, T x) {
  const T c = (T)d->clip;
  if (d->has_clip) {
    x = x > c ? c : x;
    x = x < -c ? -c : x;
  }
  return MB_REC(rec_act)(a, x);
}

/* out[j] = in[j] + sum over k of h[k] * r[k*ld + j]; each sum runs over k in order. */
MB_INLINE void MB_REC(rec_add)(long n, long hidden, long ld, const T *in, const T *h, const T *r,
                               T *out) {
  enum { W = 8 * MB_VL };
  long j = 0;
  for (; j + W <= n; j += W) {
    T acc[W];
    MB_UNROLL for (int l = 0; l < W; l++) acc[l] = in[j + l];
    for (long k = 0; k < hidden; k++) {
      const T s = h[k], *row = r + k * ld + j;
      MB_UNROLL for (int l = 0; l < W; l++) acc[l] = s * row[l] + acc[l];
    }
    MB_UNROLL for (int l = 0; l < W; l++) out[j + l] = acc[l];
  }
  for (; j + MB_VL <= n; j += MB_VL) {
    T acc[MB_VL];
    MB_UNROLL for (int l = 0; l < MB_VL; l++) acc[l] = in[j + l];
    for (long k = 0; k < hidden; k++) {
      const T s = h[k], *row = r + k * ld + j;
      MB_UNROLL for (int l = 0; l < MB_VL; l++) acc[l] = s * row[l] + acc[l];
    }
    MB_UNROLL for (int l = 0; l < MB_VL; l++) out[j + l] = acc[l];
  }
  for (; j < n; j++) {
    T acc = in[j];
    for (long k = 0; k < hidden; k++) acc = h[k] * r[k * ld + j] + acc;
    out[j] = acc;
  }
}

MB_INLINE void MB_REC(rec_fill)(T *to, const T *from, long n) {
  for (long i = 0; i < n; i++) to[i] = from ? from[i] : (T)0;
}

/* The new state of one chain from its gates g. p: peepholes i, o, f, or none. */
MB_INLINE void MB_REC(lstm_state)(const mb_rec *d, const mb_rec_act *a, const T *p, const T *g, T *h, T *c) {
  const long n = d->hidden;
  _Pragma("clang loop vectorize(assume_safety)") for (long j = 0; j < n; j++) {
    const T old = c[j];
    const T in = MB_REC(rec_gate)(d, a[0], p ? g[j] + p[j] * old : g[j]);
    const T pf = p ? g[2 * n + j] + p[2 * n + j] * old : g[2 * n + j];
    const T forget = d->input_forget ? 1 - in : MB_REC(rec_gate)(d, a[0], pf);
    const T now = forget * old + in * MB_REC(rec_gate)(d, a[1], g[3 * n + j]);
    const T out = MB_REC(rec_gate)(d, a[0], p ? g[n + j] + p[n + j] * now : g[n + j]);
    c[j] = now;
    h[j] = out * MB_REC(rec_act)(a[2], now);
  }
}

/* One step of one chain; g has room for the gates. */
MB_INLINE void MB_REC(lstm_step)(const mb_rec *d, const mb_rec_act *a, const T *x, const T *rt,
                                 const T *p, T *g, T *h, T *c) {
  MB_REC(rec_add)(4 * d->hidden, d->hidden, 4 * d->hidden, x, h, rt, g);
  MB_REC(lstm_state)(d, a, p, g, h, c);
}

/* bias: of the candidate, inside the reset, or none. q has room for the reset state. */
MB_INLINE void MB_REC(gru_step)(const mb_rec *d, const mb_rec_act *a, const T *x, const T *rt,
                                const T *bias, T *g, T *q, T *h) {
  const long n = d->hidden;
  if (d->linear_before_reset) {
    MB_REC(rec_add)(2 * n, n, 3 * n, x, h, rt, g);
    MB_REC(rec_fill)(q, bias, n);
    MB_REC(rec_add)(n, n, 3 * n, q, h, rt + 2 * n, g + 2 * n);
    _Pragma("clang loop vectorize(assume_safety)") for (long j = 0; j < n; j++) {
      const T z = MB_REC(rec_gate)(d, a[0], g[j]), r = MB_REC(rec_gate)(d, a[0], g[n + j]);
      const T t = MB_REC(rec_gate)(d, a[1], r * g[2 * n + j] + x[2 * n + j]);
      h[j] = z * (h[j] - t) + t;
    }
    return;
  }
  MB_REC(rec_add)(2 * n, n, 3 * n, x, h, rt, g);
  _Pragma("clang loop vectorize(assume_safety)") for (long j = 0; j < n; j++)
    q[j] = MB_REC(rec_gate)(d, a[0], g[n + j]) * h[j];
  MB_REC(rec_add)(n, n, 3 * n, x + 2 * n, q, rt + 2 * n, g + 2 * n);
  _Pragma("clang loop vectorize(assume_safety)") for (long j = 0; j < n; j++) {
    const T z = MB_REC(rec_gate)(d, a[0], g[j]), t = MB_REC(rec_gate)(d, a[1], g[2 * n + j]);
    h[j] = z * (h[j] - t) + t;
  }
}

MB_INLINE void MB_REC(rnn_step)(const mb_rec *d, const mb_rec_act *a, const T *x, const T *rt, T *g,
                                T *h) {
  MB_REC(rec_add)(d->hidden, d->hidden, d->hidden, x, h, rt, g);
  _Pragma("clang loop vectorize(assume_safety)") for (long j = 0; j < d->hidden; j++)
    h[j] = MB_REC(rec_gate)(d, a[0], g[j]);
}

/* All steps of one chain: direction dir of sample b. gates: 4 LSTM, 3 GRU, 1 RNN. */
MB_INLINE int MB_REC(rec_chain)(const mb_rec *d, int gates, long dir, long b, const T *x, const T *rt,
                                const int32_t *lens, const T *h0, const T *c0, const T *extra, T *y,
                                T *yh, T *yc, T *scratch) {
  const long n = d->hidden, pair = dir * d->batch + b, len = mb_rec_length(d, lens, b);
  const mb_rec_act *a = d->act + dir * (gates == 4 ? 3 : gates == 3 ? 2 : 1);
  const T *r = rt + dir * n * gates * n;
  const T *e = extra ? extra + dir * n * (gates == 4 ? 3 : 1) : 0;
  T *own = scratch + pair * (gates + (gates == 3)) * n, *q = own + gates * n;
  T *h = yh + pair * n, *c = yc ? yc + pair * n : 0;
  if (len < 0) return MB_E_SHAPE;
  MB_REC(rec_fill)(h, h0 ? h0 + pair * n : 0, n);
  if (gates == 4) MB_REC(rec_fill)(c, c0 ? c0 + pair * n : 0, n);
  for (long s = 0; s < len; s++) {
    const long t = d->reverse || dir == 1 ? len - 1 - s : s;
    const T *in = x + ((t * d->batch + b) * d->dirs + dir) * gates * n;
    T *g = d->in_place ? (T *)in : own;
    if (gates == 4) MB_REC(lstm_step)(d, a, in, r, e, g, h, c);
    else if (gates == 3) MB_REC(gru_step)(d, a, in, r, e, g, q, h);
    else MB_REC(rnn_step)(d, a, in, r, g, h);
    MB_REC(rec_fill)(y + ((t * d->dirs + dir) * d->batch + b) * n, h, n);
  }
  for (long t = len; t < d->steps; t++)
    MB_REC(rec_fill)(y + ((t * d->dirs + dir) * d->batch + b) * n, 0, n);
  return MB_OK;
}

/* extra: LSTM peepholes [dirs][3*hidden]; GRU candidate bias [dirs][hidden]. May be 0, as may lens,
 * h0 and c0; yc is LSTM's. */
MB_INLINE int MB_REC(rec_run)(mb_rec d, int gates, const T *x, const T *rt, const int32_t *lens,
                              const T *h0, const T *c0, const T *extra, T *y, T *yh, T *yc,
                              T *scratch, int tid, int nt) {
  long lo, hi;
  int status = MB_OK;
  mb_share(d.dirs * d.batch, tid, nt, &lo, &hi);
  for (long i = lo; i < hi && status == MB_OK; i++)
    status = MB_REC(rec_chain)(&d, gates, i / d.batch, i % d.batch, x, rt, lens, h0, c0, extra, y, yh,
                               yc, scratch);
  return status;
}

#undef T
