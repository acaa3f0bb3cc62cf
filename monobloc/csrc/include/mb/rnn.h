/* Recurrent layers in f32: LSTM, GRU and plain RNN, one direction of ONNX's operators.
 *
 *   static const mb_rnn D = { .steps = 20, .batch = 1, .hidden = 64, ... };
 *   MB_LSTM(lstm1, D, mb_sigmoid, mb_tanh, mb_tanh)          ONNX's activations f, g, h
 *   lstm1(xp, r, peep, y, h0, h, c, tid, nt);
 *
 * The caller has computed xp = X * W^T + Wb + Rb for all steps as one GEMM; a step adds H * R^T,
 * accumulates all gates of a vector of hidden units in registers and goes on to the new state at
 * once. R is packed [panel of VL units][H][gates][VL]; when H is not a multiple of VL the last
 * panel is shifted to end with the last unit (H >= VL) or padded with zeros (H < VL).
 *
 * Gates in ONNX's order: LSTM i, o, f, c; GRU z, r, h. Threads split the batch.
 */
#ifndef MB_RNN_H
#define MB_RNN_H

#include "mb/tile.h"

typedef struct {
  long steps, batch, hidden;
  long xp_step, xp_row;          /* strides in floats: gate g of unit u at g*hidden + u */
  long y_step, y_row;            /* where the state of a step goes; it is also the next one's input */
  long h_row, c_row;             /* h0 and the final h; the running c */
  int reverse;                   /* last step first */
  int has_h0;                    /* else zeros */
  int peephole, input_forget;    /* LSTM */
  int reset_after;               /* GRU: linear_before_reset */
  int has_clip;
  float clip;                    /* bounds what enters an activation */
} mb_rnn;

typedef mb_vf mb_act(mb_vf x);

/* One step over rows [b0, b1) of the batch. */
typedef struct {
  const float *xp, *h, *r, *bias, *peep; /* h: previous state, row stride h_row */
  float *y, *c, *z;
  long h_row, b0, b1;
} mb_rnn_step;

typedef void mb_rnn_leaf(const mb_rnn_step *s, long panel, long b);

enum { MB_RNN_ROWS = MB_NVREG >= 32 ? 4 : 2 };

MB_INLINE long mb_rnn_panels(const mb_rnn *d) { return (d->hidden + MB_VL - 1) / MB_VL; }

/* First unit of a panel, and how many of its last lanes are its own. */
MB_INLINE long mb_rnn_unit(const mb_rnn *d, long panel) {
  return d->hidden < MB_VL ? 0 : mb_min_long(panel * MB_VL, d->hidden - MB_VL);
}
MB_INLINE mb_vf mb_rnn_load(const mb_rnn *d, const float *p) {
  return d->hidden < MB_VL ? mb_load_n(p, (int)d->hidden) : mb_load(p);
}
MB_INLINE void mb_rnn_store(const mb_rnn *d, float *p, long panel, mb_vf v) {
  const int rem = (int)(d->hidden % MB_VL);
  if (d->hidden < MB_VL) mb_store_n(p, v, (int)d->hidden);
  else if (rem && panel == d->hidden / MB_VL) mb_put_last(MB_T_F32, p + MB_VL - rem, v, rem);
  else mb_store(p, v);
}
MB_INLINE mb_vf mb_rnn_clip(const mb_rnn *d, mb_vf x) {
  return d->has_clip ? mb_min(d->clip, mb_max(-d->clip, x)) : x;
}

/* acc[row][gate] = sum over the previous state. Chains hide the latency of a batch of one; which
 * order a row is summed in must not depend on how threads share the batch. */
MB_INLINE void mb_rnn_gates(const mb_rnn *d, int rows, int gates, const float *h, long h_row,
                            const float *r, mb_vf acc[MB_MAX_MR][MB_MAX_NV]) {
  mb_tile t = {.mr = rows, .wrap = rows, .xp = h_row, .nv = gates, .rem = MB_VL, .n0 = 1, .n1 = 1,
               .xs2 = 1, .b_row = (long)gates * MB_VL};
  if (d->batch == 1) {
    mb_tile_sum_chains(t, acc, gates == 1 ? 8 : 2, h, r, d->hidden);
    return;
  }
  mb_tile_zero(t, acc);
  mb_tile_sum(t, acc, h, r, d->hidden, r);
}

MB_INLINE void mb_lstm_unit(const mb_rnn *d, const mb_rnn_step *s, long panel, long b, mb_vf *g,
                            mb_act *f, mb_act *act_g, mb_act *act_h) {
  const long u = mb_rnn_unit(d, panel), n = d->hidden;
  const float *xp = s->xp + b * d->xp_row + u, *p = s->peep + u;
  float *pc = s->c + b * d->c_row + u;
  mb_vf c = mb_rnn_load(d, pc), a[4];
  MB_UNROLL for (int i = 0; i < 4; i++) a[i] = mb_add(g[i], mb_rnn_load(d, xp + i * n));
  if (d->peephole) {
    a[0] = mb_mac(mb_rnn_load(d, p), c, a[0]);
    a[2] = mb_mac(mb_rnn_load(d, p + 2 * n), c, a[2]);
  }
  mb_vf input = f(mb_rnn_clip(d, a[0]));
  mb_vf forget = d->input_forget ? mb_sub(1.f, input) : f(mb_rnn_clip(d, a[2]));
  c = mb_mac(forget, c, mb_mul(input, act_g(mb_rnn_clip(d, a[3]))));
  if (d->peephole) a[1] = mb_mac(mb_rnn_load(d, p + n), c, a[1]);
  mb_vf h = mb_mul(f(mb_rnn_clip(d, a[1])), act_h(c));
  mb_rnn_store(d, pc, panel, c);
  mb_rnn_store(d, s->y + b * d->y_row + u, panel, h);
}

MB_INLINE void mb_lstm_body(const mb_rnn *d, int rows, const mb_rnn_step *s, long panel, long b,
                            mb_act *f, mb_act *g, mb_act *h) {
  mb_vf acc[MB_MAX_MR][MB_MAX_NV];
  mb_rnn_gates(d, rows, 4, s->h + b * s->h_row, s->h_row, s->r + panel * d->hidden * 4 * MB_VL, acc);
  MB_UNROLL for (int i = 0; i < rows; i++) mb_lstm_unit(d, s, panel, b + i, acc[i], f, g, h);
}

/* GRU, reset after the product: one pass. bias is Rb of gate h, which the reset gate scales. */
MB_INLINE void mb_gru_body(const mb_rnn *d, int rows, const mb_rnn_step *s, long panel, long b,
                           mb_act *f, mb_act *g) {
  mb_vf acc[MB_MAX_MR][MB_MAX_NV];
  const long u = mb_rnn_unit(d, panel), n = d->hidden;
  mb_rnn_gates(d, rows, 3, s->h + b * s->h_row, s->h_row, s->r + panel * n * 3 * MB_VL, acc);
  MB_UNROLL for (int i = 0; i < rows; i++) {
    const float *xp = s->xp + (b + i) * d->xp_row + u;
    mb_vf z = f(mb_rnn_clip(d, mb_add(acc[i][0], mb_rnn_load(d, xp))));
    mb_vf r = f(mb_rnn_clip(d, mb_add(acc[i][1], mb_rnn_load(d, xp + n))));
    mb_vf a = mb_mac(r, mb_add(acc[i][2], mb_rnn_load(d, s->bias + u)), mb_rnn_load(d, xp + 2 * n));
    mb_vf h = mb_rnn_load(d, s->h + (b + i) * s->h_row + u), t = g(mb_rnn_clip(d, a));
    mb_rnn_store(d, s->y + (b + i) * d->y_row + u, panel, mb_mac(z, mb_sub(h, t), t));
  }
}

/* GRU, reset before the product: first z and r * h go to scratch z ([batch][2][hidden]), ... */
MB_INLINE void mb_gru_first(const mb_rnn *d, int rows, const mb_rnn_step *s, long panel, long b,
                            mb_act *f) {
  mb_vf acc[MB_MAX_MR][MB_MAX_NV];
  const long u = mb_rnn_unit(d, panel), n = d->hidden;
  mb_rnn_gates(d, rows, 2, s->h + b * s->h_row, s->h_row, s->r + panel * n * 2 * MB_VL, acc);
  MB_UNROLL for (int i = 0; i < rows; i++) {
    const float *xp = s->xp + (b + i) * d->xp_row + u;
    float *z = s->z + (b + i) * 2 * n + u;
    mb_vf r = f(mb_rnn_clip(d, mb_add(acc[i][1], mb_rnn_load(d, xp + n))));
    mb_rnn_store(d, z, panel, f(mb_rnn_clip(d, mb_add(acc[i][0], mb_rnn_load(d, xp)))));
    mb_rnn_store(d, z + n, panel, mb_mul(r, mb_rnn_load(d, s->h + (b + i) * s->h_row + u)));
  }
}

/* ... then the candidate, whose weights follow those of z and r. */
MB_INLINE void mb_gru_second(const mb_rnn *d, int rows, const mb_rnn_step *s, long panel, long b,
                             mb_act *g) {
  mb_vf acc[MB_MAX_MR][MB_MAX_NV];
  const long u = mb_rnn_unit(d, panel), n = d->hidden;
  const float *r = s->r + mb_rnn_panels(d) * n * 2 * MB_VL + panel * n * MB_VL;
  mb_rnn_gates(d, rows, 1, s->z + b * 2 * n + n, 2 * n, r, acc);
  MB_UNROLL for (int i = 0; i < rows; i++) {
    mb_vf x = mb_add(mb_rnn_load(d, s->xp + (b + i) * d->xp_row + 2 * n + u), mb_rnn_load(d, s->bias + u));
    mb_vf t = g(mb_rnn_clip(d, mb_add(acc[i][0], x))), z = mb_rnn_load(d, s->z + (b + i) * 2 * n + u);
    mb_vf h = mb_rnn_load(d, s->h + (b + i) * s->h_row + u);
    mb_rnn_store(d, s->y + (b + i) * d->y_row + u, panel, mb_mac(z, mb_sub(h, t), t));
  }
}

MB_INLINE void mb_rnn_body(const mb_rnn *d, int rows, const mb_rnn_step *s, long panel, long b,
                           mb_act *f) {
  mb_vf acc[MB_MAX_MR][MB_MAX_NV];
  const long u = mb_rnn_unit(d, panel);
  mb_rnn_gates(d, rows, 1, s->h + b * s->h_row, s->h_row, s->r + panel * d->hidden * MB_VL, acc);
  MB_UNROLL for (int i = 0; i < rows; i++) {
    mb_vf x = mb_rnn_load(d, s->xp + (b + i) * d->xp_row + u);
    mb_rnn_store(d, s->y + (b + i) * d->y_row + u, panel, f(mb_rnn_clip(d, mb_add(acc[i][0], x))));
  }
}

/* All panels of one step: rows in groups, then one by one. many handles MB_RNN_ROWS rows. */
MB_INLINE void mb_rnn_panel_loop(const mb_rnn *d, mb_rnn_leaf *many, mb_rnn_leaf *one,
                                 const mb_rnn_step *s) {
  for (long p = 0; p < mb_rnn_panels(d); p++) {
    long b = s->b0;
    for (; b + MB_RNN_ROWS <= s->b1; b += MB_RNN_ROWS) many(s, p, b);
    for (; b < s->b1; b++) one(s, p, b);
  }
}

/* z: first batch*hidden floats are the zero state when there is no h0; GRU without reset_after uses
 * 2*batch*hidden more. h: the final state (may be 0). c: LSTM state, already initialised. */
MB_INLINE void mb_rnn_run(const mb_rnn *d, mb_rnn_leaf *many, mb_rnn_leaf *one,
                          mb_rnn_leaf *many2, mb_rnn_leaf *one2, const float *xp, const float *r,
                          const float *bias, const float *peep, const float *h0, float *y,
                          float *h, float *c, float *z, int tid, int nt) {
  mb_rnn_step s = {.r = r, .bias = bias, .peep = peep, .c = c, .h = h0, .h_row = d->h_row};
  s.z = z + (d->has_h0 ? 0 : d->batch * d->hidden);
  mb_share(d->batch, tid, nt, &s.b0, &s.b1);
  if (!d->has_h0) {
    for (long i = s.b0 * d->hidden; i < s.b1 * d->hidden; i++) z[i] = 0;
    s.h = z;
    s.h_row = d->hidden;
  }
  for (long i = 0; i < d->steps; i++) {
    long t = d->reverse ? d->steps - 1 - i : i;
    s.xp = xp + t * d->xp_step;
    s.y = y + t * d->y_step;
    mb_rnn_panel_loop(d, many, one, &s);
    if (many2) mb_rnn_panel_loop(d, many2, one2, &s);
    s.h = s.y;
    s.h_row = d->y_row;
  }
  if (h)
    for (long b = s.b0; b < s.b1; b++)
      for (long u = 0; u < d->hidden; u++) h[b * d->h_row + u] = s.h[b * s.h_row + u];
}

#define MB_RNN_LEAF(LEAF, BODY, D, ROWS, ...)                                                     \
  MB_LEAF void LEAF(const mb_rnn_step *s, long panel, long b) {                                   \
    if ((D).batch >= (ROWS)) BODY(&(D), ROWS, s, panel, b, __VA_ARGS__);                          \
  }
#define MB_LSTM(NAME, D, F, G, H)                                                                 \
  MB_RNN_LEAF(NAME##_rows, mb_lstm_body, D, MB_RNN_ROWS, F, G, H)                                 \
  MB_RNN_LEAF(NAME##_row, mb_lstm_body, D, 1, F, G, H)                                            \
  MB_INLINE void NAME(const float *xp, const float *r, const float *peep, const float *h0,        \
                      float *y, float *h, float *c, float *z, int tid, int nt) {                  \
    mb_rnn_run(&(D), NAME##_rows, NAME##_row, 0, 0, xp, r, 0, peep, h0, y, h, c, z, tid, nt);     \
  }
#define MB_GRU(NAME, D, F, G)                                                                     \
  MB_RNN_LEAF(NAME##_rows, mb_gru_body, D, MB_RNN_ROWS, F, G)                                     \
  MB_RNN_LEAF(NAME##_row, mb_gru_body, D, 1, F, G)                                                \
  MB_RNN_LEAF(NAME##_rows1, mb_gru_first, D, MB_RNN_ROWS, F)                                      \
  MB_RNN_LEAF(NAME##_row1, mb_gru_first, D, 1, F)                                                 \
  MB_RNN_LEAF(NAME##_rows2, mb_gru_second, D, MB_RNN_ROWS, G)                                     \
  MB_RNN_LEAF(NAME##_row2, mb_gru_second, D, 1, G)                                                \
  MB_INLINE void NAME(const float *xp, const float *r, const float *bias, const float *h0,        \
                      float *y, float *h, float *z, int tid, int nt) {                            \
    if ((D).reset_after)                                                                          \
      mb_rnn_run(&(D), NAME##_rows, NAME##_row, 0, 0, xp, r, bias, 0, h0, y, h, 0, z, tid, nt);   \
    else                                                                                          \
      mb_rnn_run(&(D), NAME##_rows1, NAME##_row1, NAME##_rows2, NAME##_row2, xp, r, bias, 0, h0,  \
                 y, h, 0, z, tid, nt);                                                            \
  }
#define MB_RNN(NAME, D, F)                                                                        \
  MB_RNN_LEAF(NAME##_rows, mb_rnn_body, D, MB_RNN_ROWS, F)                                        \
  MB_RNN_LEAF(NAME##_row, mb_rnn_body, D, 1, F)                                                   \
  MB_INLINE void NAME(const float *xp, const float *r, const float *h0, float *y, float *h,       \
                      float *z, int tid, int nt) {                                                \
    mb_rnn_run(&(D), NAME##_rows, NAME##_row, 0, 0, xp, r, 0, 0, h0, y, h, 0, z, tid, nt);        \
  }

#endif
