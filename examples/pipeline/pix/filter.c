/* Neighbourhoods: convolution, median, edges; and what works on single values. */
#include "pix.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef float f32;

static int outside(int i, int n, enum pix_edge edge) {
  if (i >= 0 && i < n) return i;
  if (edge == PIX_ZERO) return -1;
  if (edge == PIX_MIRROR) return i < 0 ? -i : 2 * n - 2 - i;
  return i < 0 ? 0 : n - 1;
}

#define FILTERS(T, ONE, HALF)                                                                                          \
  static void convolve_##T(const struct pix_image *from, struct pix_image *to, const float *taps, int size,            \
                           enum pix_edge edge) {                                                                       \
    const int n = pix_channels(from), w = from->width, h = from->height, r = size / 2;                                 \
    const T *x = from->data;                                                                                           \
    T *y = to->data;                                                                                                   \
    for (int j = 0; j < h; j++)                                                                                        \
      for (int i = 0; i < w; i++)                                                                                      \
        for (int c = 0; c < n; c++) {                                                                                  \
          float sum = 0.0f;                                                                                            \
          for (int v = 0; v < size; v++)                                                                               \
            for (int u = 0; u < size; u++) {                                                                           \
              const int a = outside(j + v - r, h, edge), b = outside(i + u - r, w, edge);                              \
              if (a >= 0 && b >= 0) sum += taps[v * size + u] * (float)x[(a * w + b) * n + c];                         \
            }                                                                                                          \
          y[(j * w + i) * n + c] = (T)((sum < 0.0f ? 0.0f : sum > ONE ? ONE : sum) + HALF);                            \
        }                                                                                                              \
  }                                                                                                                    \
  static int order_##T(const void *a, const void *b) { return (*(const T *)a > *(const T *)b) - (*(const T *)a < *(const T *)b); } \
  static void median_##T(const struct pix_image *from, struct pix_image *to) {                                         \
    const int n = pix_channels(from), w = from->width, h = from->height;                                               \
    const T *x = from->data;                                                                                           \
    T *y = to->data, around[9];                                                                                        \
    for (int j = 0; j < h; j++)                                                                                        \
      for (int i = 0; i < w * n; i++) {                                                                                \
        for (int k = 0; k < 9; k++) {                                                                                  \
          const int a = outside(j + k / 3 - 1, h, PIX_CLAMP), b = outside(i / n + k % 3 - 1, w, PIX_CLAMP);            \
          around[k] = x[(a * w + b) * n + i % n];                                                                      \
        }                                                                                                              \
        qsort(around, 9, sizeof *around, order_##T);                                                                   \
        y[j * w * n + i] = around[4];                                                                                  \
      }                                                                                                                \
  }                                                                                                                    \
  static void threshold_##T(T *x, size_t n, float level) {                                                             \
    for (size_t i = 0; i < n; i++) x[i] = (float)x[i] >= level * ONE ? (T)ONE : (T)0;                                  \
  }                                                                                                                    \
  static void equalize_##T(T *x, size_t n) {                                                                           \
    size_t count[256] = {0}, sum = 0;                                                                                  \
    float map[256];                                                                                                    \
    for (size_t i = 0; i < n; i++) count[(int)((float)x[i] / ONE * 255.0f)]++;                                         \
    for (int k = 0; k < 256; k++) map[k] = (float)(sum += count[k]) / (float)n * ONE;                                  \
    for (size_t i = 0; i < n; i++) x[i] = (T)(map[(int)((float)x[i] / ONE * 255.0f)] + HALF);                          \
  }
FILTERS(u8, 255.0f, 0.5f)
FILTERS(u16, 65535.0f, 0.5f)
FILTERS(f32, 1.0f, 0.0f)

#define BY_TYPE(WHERE, TYPE, CALL)                                                                                     \
  switch (TYPE) {                                                                                                      \
  case PIX_U8: CALL(u8); return PIX_OK;                                                                                \
  case PIX_U16: CALL(u16); return PIX_OK;                                                                              \
  case PIX_F32: CALL(f32); return PIX_OK;                                                                              \
  }                                                                                                                    \
  return pix_fail(PIX_E_TYPE, WHERE, "element types are 8 and 16 bit and 32 bit float")

int pix_convolve(const struct pix_image *from, struct pix_image *to, const float *taps, int size, enum pix_edge edge) {
  if (size < 1 || size > 15 || size % 2 == 0 || size > from->width || size > from->height)
    return pix_fail(PIX_E_ARGUMENT, "pix_convolve", "the window must be odd, 15 at most, and fit into the image");
  int e = pix_alloc(to, from->width, from->height, from->type, from->space);
  if (e) return e;
#define CALL(T) convolve_##T(from, to, taps, size, edge)
  BY_TYPE("pix_convolve", from->type, CALL);
#undef CALL
}

int pix_blur(const struct pix_image *from, struct pix_image *to, float sigma) {
  if (sigma <= 0.0f || sigma > 3.0f) return pix_fail(PIX_E_ARGUMENT, "pix_blur", "sigma must be in (0, 3]");
  float taps[49], sum = 0.0f;
  for (int k = 0; k < 49; k++) {
    const float x = (float)(k % 7 - 3), y = (float)(k / 7 - 3);
    sum += taps[k] = expf(-(x * x + y * y) / (2 * sigma * sigma));
  }
  for (int k = 0; k < 49; k++) taps[k] /= sum;
  return pix_convolve(from, to, taps, 7, PIX_MIRROR);
}

int pix_sharpen(const struct pix_image *from, struct pix_image *to, float amount) {
  if (amount < 0.0f || amount > 4.0f) return pix_fail(PIX_E_ARGUMENT, "pix_sharpen", "amounts are from 0 to 4");
  const float a = -amount, taps[9] = {0, a, 0, a, 1 + 4 * amount, a, 0, a, 0};
  return pix_convolve(from, to, taps, 3, PIX_CLAMP);
}

int pix_median(const struct pix_image *from, struct pix_image *to) {
  int e = pix_alloc(to, from->width, from->height, from->type, from->space);
  if (e) return e;
#define CALL(T) median_##T(from, to)
  BY_TYPE("pix_median", from->type, CALL);
#undef CALL
}

int pix_edges(const struct pix_image *from, struct pix_image *to) {
  static const float laplace[25] = {0, 0, -1, 0, 0, 0, -1, -2, -1, 0, -1, -2, 16, -2, -1, 0, -1, -2, -1, 0, 0, 0, -1, 0, 0};
  if (from->space != PIX_GRAY) return pix_fail(PIX_E_SPACE, "pix_edges", "edges are found in gray images only");
  return pix_convolve(from, to, laplace, 5, PIX_ZERO);
}

int pix_equalize(struct pix_image *im) {
  if (im->space != PIX_GRAY) return pix_fail(PIX_E_SPACE, "pix_equalize", "only gray images have one histogram");
  const size_t n = (size_t)im->width * (size_t)im->height;
#define CALL(T) equalize_##T(im->data, n)
  BY_TYPE("pix_equalize", im->type, CALL);
#undef CALL
}

int pix_threshold(struct pix_image *im, float level) {
  const size_t n = (size_t)im->width * (size_t)im->height * (size_t)pix_channels(im);
#define CALL(T) threshold_##T(im->data, n, level)
  BY_TYPE("pix_threshold", im->type, CALL);
#undef CALL
}
