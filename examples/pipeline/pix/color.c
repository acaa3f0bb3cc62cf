/* Colours. Conversions go through linear RGB from 0 to 1, in the element type of the image. */
#include "pix.h"
#include <math.h>

static void to_rgb(enum pix_space space, const float in[3], float rgb[3]) {
  switch (space) {
  case PIX_GRAY: rgb[0] = rgb[1] = rgb[2] = in[0]; break;
  case PIX_RGB: rgb[0] = in[0], rgb[1] = in[1], rgb[2] = in[2]; break;
  case PIX_BGR: rgb[0] = in[2], rgb[1] = in[1], rgb[2] = in[0]; break;
  case PIX_YUV: {
    const float u = in[1] - 0.5f, v = in[2] - 0.5f;
    rgb[0] = in[0] + 1.402f * v, rgb[1] = in[0] - 0.344136f * u - 0.714136f * v, rgb[2] = in[0] + 1.772f * u;
    break;
  }
  case PIX_HSV:
    for (int c = 0; c < 3; c++) {
      const float k = fmodf((float)(5 - 2 * c) + in[0] * 6.0f, 6.0f);
      rgb[c] = in[2] - in[2] * in[1] * fmaxf(0.0f, fminf(fminf(k, 4.0f - k), 1.0f));
    }
    break;
  }
}

static void from_rgb(enum pix_space space, const float rgb[3], float out[3]) {
  const float luma = 0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2];
  switch (space) {
  case PIX_GRAY: out[0] = luma; break;
  case PIX_RGB: out[0] = rgb[0], out[1] = rgb[1], out[2] = rgb[2]; break;
  case PIX_BGR: out[0] = rgb[2], out[1] = rgb[1], out[2] = rgb[0]; break;
  case PIX_YUV:
    out[0] = luma, out[1] = 0.564334f * (rgb[2] - luma) + 0.5f, out[2] = 0.713267f * (rgb[0] - luma) + 0.5f;
    break;
  case PIX_HSV: {
    const float high = fmaxf(rgb[0], fmaxf(rgb[1], rgb[2])), low = fminf(rgb[0], fminf(rgb[1], rgb[2]));
    const float d = high - low;
    float h = 0.0f;
    if (d > 0.0f && high == rgb[0]) h = fmodf((rgb[1] - rgb[2]) / d + 6.0f, 6.0f);
    else if (d > 0.0f && high == rgb[1]) h = (rgb[2] - rgb[0]) / d + 2.0f;
    else if (d > 0.0f) h = (rgb[0] - rgb[1]) / d + 4.0f;
    out[0] = h / 6.0f, out[1] = high > 0.0f ? d / high : 0.0f, out[2] = high;
    break;
  }
  }
}

static float clamp(float x) { return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }

#define CONVERT(NAME, T, ONE, HALF)                                                                                    \
  static void NAME(const T *x, T *y, size_t n, int nx, int ny, enum pix_space from, enum pix_space to) {               \
    for (size_t i = 0; i < n; i++, x += nx, y += ny) {                                                                 \
      float in[3] = {0}, rgb[3], out[3];                                                                               \
      for (int c = 0; c < nx; c++) in[c] = (float)x[c] / ONE;                                                          \
      to_rgb(from, in, rgb);                                                                                           \
      from_rgb(to, rgb, out);                                                                                          \
      for (int c = 0; c < ny; c++) y[c] = (T)(clamp(out[c]) * ONE + HALF);                                             \
    }                                                                                                                  \
  }
CONVERT(convert_u8, unsigned char, 255.0f, 0.5f)
CONVERT(convert_u16, unsigned short, 65535.0f, 0.5f)
CONVERT(convert_f32, float, 1.0f, 0.0f)

int pix_convert(const struct pix_image *from, struct pix_image *to, enum pix_space space) {
  if (space > PIX_HSV) return pix_fail(PIX_E_SPACE, "pix_convert", "unknown colour space");
  int e = pix_alloc(to, from->width, from->height, from->type, space);
  if (e) return e;
  const size_t n = (size_t)from->width * (size_t)from->height;
  const int nx = pix_channels(from), ny = pix_channels(to);
  switch (from->type) {
  case PIX_U8: convert_u8(from->data, to->data, n, nx, ny, from->space, space); return PIX_OK;
  case PIX_U16: convert_u16(from->data, to->data, n, nx, ny, from->space, space); return PIX_OK;
  case PIX_F32: convert_f32(from->data, to->data, n, nx, ny, from->space, space); return PIX_OK;
  }
  return pix_fail(PIX_E_TYPE, "pix_convert", "element types are 8 and 16 bit and 32 bit float");
}

#define CAST(NAME, S, SONE, T, TONE, HALF)                                                                             \
  static void NAME(const S *x, T *y, size_t n) {                                                                       \
    for (size_t i = 0; i < n; i++) y[i] = (T)(clamp((float)x[i] / SONE) * TONE + HALF);                                \
  }
CAST(u8_u16, unsigned char, 255.0f, unsigned short, 65535.0f, 0.5f)
CAST(u8_f32, unsigned char, 255.0f, float, 1.0f, 0.0f)
CAST(u16_u8, unsigned short, 65535.0f, unsigned char, 255.0f, 0.5f)
CAST(u16_f32, unsigned short, 65535.0f, float, 1.0f, 0.0f)
CAST(f32_u8, float, 1.0f, unsigned char, 255.0f, 0.5f)
CAST(f32_u16, float, 1.0f, unsigned short, 65535.0f, 0.5f)

int pix_cast(const struct pix_image *from, struct pix_image *to, enum pix_type type) {
  int e = pix_alloc(to, from->width, from->height, type, from->space);
  if (e) return e;
  const size_t n = (size_t)from->width * (size_t)from->height * (size_t)pix_channels(from);
  switch (from->type * 3 + type) {
  case PIX_U8 * 3 + PIX_U16: u8_u16(from->data, to->data, n); return PIX_OK;
  case PIX_U8 * 3 + PIX_F32: u8_f32(from->data, to->data, n); return PIX_OK;
  case PIX_U16 * 3 + PIX_U8: u16_u8(from->data, to->data, n); return PIX_OK;
  case PIX_U16 * 3 + PIX_F32: u16_f32(from->data, to->data, n); return PIX_OK;
  case PIX_F32 * 3 + PIX_U8: f32_u8(from->data, to->data, n); return PIX_OK;
  case PIX_F32 * 3 + PIX_U16: f32_u16(from->data, to->data, n); return PIX_OK;
  }
  return pix_fail(PIX_E_TYPE, "pix_cast", "the image is of that type already, or of none that is known");
}
