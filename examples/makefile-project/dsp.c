#include "dsp.h"
#include <math.h>

/* An image with one vertical line. */
void dsp_line(float *image, int side, int column, float value) {
  for (int i = 0; i < side * side; i++) image[i] = i % side == column ? value : 0.0f;
}

float dsp_rms(const float *x, int n) {
  float sum = 0.0f;
  for (int i = 0; i < n; i++) sum += x[i] * x[i];
  return sqrtf(sum / (float)n);
}

int dsp_argmax(const float *x, int n) {
  int best = 0;
  for (int i = 1; i < n; i++)
    if (x[i] > x[best]) best = i;
  return best;
}
