/* Scaling: four filters for three element types. */
#include "pix.h"
#include <math.h>

static int limit(int i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

static float cubic(float t) {
  t = fabsf(t);
  if (t <= 1.0f) return (1.5f * t - 2.5f) * t * t + 1.0f;
  return t < 2.0f ? ((-0.5f * t + 2.5f) * t - 4.0f) * t + 2.0f : 0.0f;
}

#define RESIZE(T, ONE, HALF)                                                                                           \
  static float nearest_##T(const T *x, int w, int h, int n, float px, float py) {                                      \
    return (float)x[(size_t)(limit((int)floorf(py + 0.5f), h) * w + limit((int)floorf(px + 0.5f), w)) * (size_t)n];    \
  }                                                                                                                    \
  static float bilinear_##T(const T *x, int w, int h, int n, float px, float py) {                                     \
    const int ix = (int)floorf(px), iy = (int)floorf(py);                                                              \
    const float fx = px - (float)ix, fy = py - (float)iy;                                                              \
    const T *a = x + limit(iy, h) * w * n, *b = x + limit(iy + 1, h) * w * n;                                          \
    const int l = limit(ix, w) * n, r = limit(ix + 1, w) * n;                                                          \
    return (1 - fy) * ((1 - fx) * (float)a[l] + fx * (float)a[r]) + fy * ((1 - fx) * (float)b[l] + fx * (float)b[r]);  \
  }                                                                                                                    \
  static float bicubic_##T(const T *x, int w, int h, int n, float px, float py) {                                      \
    const int ix = (int)floorf(px), iy = (int)floorf(py);                                                              \
    float sum = 0.0f;                                                                                                  \
    for (int j = -1; j <= 2; j++)                                                                                      \
      for (int i = -1; i <= 2; i++)                                                                                    \
        sum += cubic(px - (float)(ix + i)) * cubic(py - (float)(iy + j)) *                                             \
               (float)x[(limit(iy + j, h) * w + limit(ix + i, w)) * n];                                                \
    return sum < 0.0f ? 0.0f : sum > ONE ? ONE : sum;                                                                  \
  }                                                                                                                    \
  static float area_##T(const T *x, int w, int h, int n, float px, float py, float sx, float sy) {                     \
    const int x0 = limit((int)floorf(px - sx / 2 + 0.5f), w), x1 = limit((int)ceilf(px + sx / 2 - 0.5f), w);           \
    const int y0 = limit((int)floorf(py - sy / 2 + 0.5f), h), y1 = limit((int)ceilf(py + sy / 2 - 0.5f), h);           \
    float sum = 0.0f;                                                                                                  \
    for (int j = y0; j <= y1; j++)                                                                                     \
      for (int i = x0; i <= x1; i++) sum += (float)x[(j * w + i) * n];                                                 \
    return sum / (float)((y1 - y0 + 1) * (x1 - x0 + 1));                                                               \
  }                                                                                                                    \
  static int resize_##T(const struct pix_image *from, struct pix_image *to, enum pix_filter filter) {                  \
    const int n = pix_channels(from), w = from->width, h = from->height;                                               \
    const float sx = (float)w / (float)to->width, sy = (float)h / (float)to->height;                                   \
    T *y = to->data;                                                                                                   \
    for (int j = 0; j < to->height; j++)                                                                               \
      for (int i = 0; i < to->width; i++)                                                                              \
        for (int c = 0; c < n; c++) {                                                                                  \
          const T *x = (const T *)from->data + c;                                                                      \
          const float px = ((float)i + 0.5f) * sx - 0.5f, py = ((float)j + 0.5f) * sy - 0.5f;                          \
          float v;                                                                                                     \
          switch (filter) {                                                                                            \
          case PIX_NEAREST: v = nearest_##T(x, w, h, n, px, py); break;                                                \
          case PIX_BILINEAR: v = bilinear_##T(x, w, h, n, px, py); break;                                              \
          case PIX_BICUBIC: v = bicubic_##T(x, w, h, n, px, py); break;                                                \
          case PIX_AREA: v = area_##T(x, w, h, n, px, py, sx, sy); break;                                              \
          default: return pix_fail(PIX_E_ARGUMENT, "pix_resize", "filters: nearest, bilinear, bicubic, area");         \
          }                                                                                                            \
          *y++ = (T)(v + HALF);                                                                                        \
        }                                                                                                              \
    return PIX_OK;                                                                                                     \
  }
typedef unsigned char u8;
typedef unsigned short u16;
typedef float f32;
RESIZE(u8, 255.0f, 0.5f)
RESIZE(u16, 65535.0f, 0.5f)
RESIZE(f32, 1.0f, 0.0f)

int pix_resize(const struct pix_image *from, struct pix_image *to, int width, int height, enum pix_filter filter) {
  if (from->space == PIX_HSV) return pix_fail(PIX_E_SPACE, "pix_resize", "hues have no mean: convert to RGB first");
  int e = pix_alloc(to, width, height, from->type, from->space);
  if (e) return e;
  switch (from->type) {
  case PIX_U8: return resize_u8(from, to, filter);
  case PIX_U16: return resize_u16(from, to, filter);
  case PIX_F32: return resize_f32(from, to, filter);
  }
  return pix_fail(PIX_E_TYPE, "pix_resize", "element types are 8 and 16 bit and 32 bit float");
}
