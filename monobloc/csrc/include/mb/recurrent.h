/* The loop over time of LSTM, GRU and RNN in plain C, float and double: the general form, with
 * sequence lengths, every activation and clipping. What a step does not need of the past,
 * X * W^T + bias, was computed for all steps by one contraction; here the past is added.
 *
 *   x   [steps][batch][dirs * gates * hidden]   gates before the past is added
 *   rt  [dirs][hidden][gates * hidden]          recurrence weights, transposed: rows are contiguous
 *   y   [steps][dirs][batch][hidden], yh and yc [dirs][batch][hidden]
 *
 * Scratch holds the gates of a step and, for GRU, the reset state, per chain; none with in_place.
 *
 * Each (direction, sample) is a chain of its own; threads share the chains. The running states are
 * yh and yc themselves. All fields of the descriptor are constants of the caller.
 */
#ifndef MB_RECURRENT_H
#define MB_RECURRENT_H

#include "mb/abi.h"
#include "mb/base.h"
#include "mb/math.h"

enum mb_rec_kind {
  MB_REC_SIGMOID, MB_REC_TANH, MB_REC_RELU, MB_REC_LEAKYRELU, MB_REC_THRESHOLDEDRELU,
  MB_REC_SCALEDTANH, MB_REC_HARDSIGMOID, MB_REC_ELU, MB_REC_SOFTSIGN, MB_REC_SOFTPLUS, MB_REC_AFFINE
};

typedef struct { int kind; double alpha, beta; } mb_rec_act;

typedef struct {
  long steps, batch, hidden, dirs;
  int reverse;                  /* the only direction runs backwards; with two, the second does */
  int has_clip;
  double clip;
  int input_forget;             /* LSTM: f = 1 - i */
  int linear_before_reset;      /* GRU */
  int in_place;                 /* not GRU: the gates of a step may lie where x was */
  mb_rec_act act[6];            /* per direction: f, g, h (as many as the operator has) */
} mb_rec;

/* Steps of sample b; a length outside of [0, steps] gives -1. */
MB_INLINE long mb_rec_length(const mb_rec *d, const int32_t *lens, long b) {
  if (!lens) return d->steps;
  return lens[b] < 0 || lens[b] > d->steps ? -1 : lens[b];
}

#define MB_REC_T float
#define MB_REC(NAME) mb_##NAME##_f32
#include "mb/recurrent_body.h"
#undef MB_REC_T
#undef MB_REC
#define MB_REC_T double
#define MB_REC(NAME) mb_##NAME##_f64
#include "mb/recurrent_body.h"
#undef MB_REC_T
#undef MB_REC

#endif
