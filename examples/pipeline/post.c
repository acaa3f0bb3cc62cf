#include "post.h"
#include "digits.h"
#include "finder.h"
#include <math.h>
#include <stdlib.h>

enum { ROWS = 12, COLUMNS = 16, CELLS = ROWS * COLUMNS, CELL = 4, CLASSES = DIGITS_OUT_PLUS214_OUTPUT_0_SIZE };
_Static_assert(CELLS == FINDER_OUT_SCORES_SIZE && 4 * CELLS == FINDER_OUT_BOXES_SIZE, "another detector");

static const char *const labels[] = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
_Static_assert(sizeof labels / sizeof *labels == CLASSES, "another classifier");

float post_overlap(const struct box *a, const struct box *b) {
  const float w = fminf(a->x + a->width / 2, b->x + b->width / 2) - fmaxf(a->x - a->width / 2, b->x - b->width / 2);
  const float h = fminf(a->y + a->height / 2, b->y + b->height / 2) - fmaxf(a->y - a->height / 2, b->y - b->height / 2);
  if (w <= 0 || h <= 0) return 0;
  return w * h / (a->width * a->height + b->width * b->height - w * h);
}

static int by_score(const void *a, const void *b) {
  const float x = ((const struct box *)a)->score, y = ((const struct box *)b)->score;
  return (x < y) - (x > y);
}

int post_boxes(struct box *out, int most, float threshold, float overlap) {
  struct box all[CELLS];
  int n = 0, kept = 0;
  for (int i = 0; i < CELLS; i++) {
    const float score = finder_out_scores()[i], *box = finder_out_boxes() + i;
    if (score < threshold) continue;
    const float x = (float)(i % COLUMNS * CELL) + CELL / 2.0f, y = (float)(i / COLUMNS * CELL) + CELL / 2.0f;
    all[n++] = (struct box){x + box[0], y + box[CELLS], box[2 * CELLS], box[3 * CELLS], score};
  }
  qsort(all, (size_t)n, sizeof *all, by_score);
  for (int i = 0; i < n && kept < most; i++) {
    int free = 1;
    for (int k = 0; k < kept; k++) free &= post_overlap(&all[i], &out[k]) < overlap;
    if (free) out[kept++] = all[i];
  }
  return kept;
}

int post_guesses(struct guess *out, int most) {
  const float *x = digits_out_Plus214_Output_0();
  float top = x[0], sum = 0;
  for (int i = 1; i < CLASSES; i++) top = fmaxf(top, x[i]);
  for (int i = 0; i < CLASSES; i++) sum += expf(x[i] - top);
  int taken[CLASSES] = {0}, n = 0;
  for (; n < most && n < CLASSES; n++) {
    int best = -1;
    for (int i = 0; i < CLASSES; i++)
      if (!taken[i] && (best < 0 || x[i] > x[best])) best = i;
    taken[best] = 1;
    out[n] = (struct guess){best, expf(x[best] - top) / sum};
  }
  return n;
}

const char *post_label(int label) { return label >= 0 && label < CLASSES ? labels[label] : "nothing"; }
