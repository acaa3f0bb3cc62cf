/* PNM and BMP files. */
#include "pix.h"
#include <stdio.h>
#include <string.h>

static int close_with(FILE *f, struct pix_image *im, int status, const char *where, const char *what) {
  fclose(f);
  if (im) pix_free(im);
  return pix_fail(status, where, what);
}

static int number(FILE *f, int *out) {
  int c = fgetc(f);
  while (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '#') {
    if (c == '#')
      while (c != '\n' && c != EOF) c = fgetc(f);
    c = fgetc(f);
  }
  int v = 0, digits = 0;
  for (; c >= '0' && c <= '9' && digits < 6; c = fgetc(f), digits++) v = v * 10 + c - '0';
  *out = v;
  return digits > 0;
}

/* P5 and P6, 8 or 16 bits; P2 and P3, their forms in text. */
int pix_read_pnm(const char *path, struct pix_image *im) {
  static const char here[] = "pix_read_pnm";
  im->data = NULL;
  FILE *f = fopen(path, "rb");
  if (!f) return pix_fail(PIX_E_OPEN, here, path);
  int w, h, top;
  const int p = fgetc(f), kind = fgetc(f);
  if (p != 'P' || (kind != '2' && kind != '3' && kind != '5' && kind != '6'))
    return close_with(f, NULL, PIX_E_FORMAT, here, "P2, P3, P5 and P6 are read, this file is of another kind");
  if (!number(f, &w) || !number(f, &h) || !number(f, &top) || top < 1 || top > 65535)
    return close_with(f, NULL, PIX_E_FORMAT, here, "the header ends early, or its maximum is not in 1 to 65535");
  const int e = pix_alloc(im, w, h, top > 255 ? PIX_U16 : PIX_U8, kind == '2' || kind == '5' ? PIX_GRAY : PIX_RGB);
  if (e) return close_with(f, NULL, e, here, "no image of this size can be made");
  const size_t n = (size_t)w * (size_t)h * (size_t)pix_channels(im);
  for (size_t i = 0; i < n; i++) {
    int v = 0;
    if (kind <= '3') {
      if (!number(f, &v)) return close_with(f, im, PIX_E_FORMAT, here, "a value in the text is no number");
    } else {
      v = fgetc(f);
      if (v != EOF && top > 255) v = v << 8 | (fgetc(f) & 255);
      if (v < 0) return close_with(f, im, PIX_E_FORMAT, here, "the file ends before the last pixel");
    }
    if (im->type == PIX_U8) ((unsigned char *)im->data)[i] = (unsigned char)(v * 255 / top);
    else ((unsigned short *)im->data)[i] = (unsigned short)(v * 65535LL / top);
  }
  fclose(f);
  return PIX_OK;
}

int pix_write_pnm(const char *path, const struct pix_image *im) {
  if (im->type == PIX_F32) return pix_fail(PIX_E_TYPE, "pix_write_pnm", "PNM files hold integers: cast the image first");
  if (im->space > PIX_RGB) return pix_fail(PIX_E_SPACE, "pix_write_pnm", "PNM files are gray or RGB");
  FILE *f = fopen(path, "wb");
  if (!f) return pix_fail(PIX_E_OPEN, "pix_write_pnm", path);
  fprintf(f, "P%c\n%d %d\n%d\n", im->space == PIX_GRAY ? '5' : '6', im->width, im->height, im->type == PIX_U8 ? 255 : 65535);
  const size_t n = (size_t)im->width * (size_t)im->height * (size_t)pix_channels(im);
  for (size_t i = 0; i < n; i++) {
    if (im->type == PIX_U16) fputc(((unsigned short *)im->data)[i] >> 8, f);
    fputc(im->type == PIX_U16 ? ((unsigned short *)im->data)[i] & 255 : ((unsigned char *)im->data)[i], f);
  }
  return fclose(f) ? pix_fail(PIX_E_OPEN, "pix_write_pnm", "the disk is full") : PIX_OK;
}

static unsigned le(const unsigned char *p, int n) {
  unsigned v = 0;
  for (int i = 0; i < n; i++) v |= (unsigned)p[i] << 8 * i;
  return v;
}

int pix_read_bmp(const char *path, struct pix_image *im) {
  unsigned char head[54], row[3 * 32768];
  im->data = NULL;
  FILE *f = fopen(path, "rb");
  if (!f) return pix_fail(PIX_E_OPEN, "pix_read_bmp", path);
  if (fread(head, 1, 54, f) != 54 || head[0] != 'B' || head[1] != 'M')
    return close_with(f, NULL, PIX_E_FORMAT, "pix_read_bmp", "this is no BMP file");
  if (le(head + 28, 2) != 24 || le(head + 30, 4) != 0)
    return close_with(f, NULL, PIX_E_FORMAT, "pix_read_bmp", "only files with 24 bits per pixel, not compressed, are read");
  const int e = pix_alloc(im, (int)le(head + 18, 4), (int)le(head + 22, 4), PIX_U8, PIX_BGR);
  if (e) return close_with(f, NULL, e, "pix_read_bmp", "no image of this size can be made");
  const size_t n = (size_t)im->width * 3, padded = (n + 3) / 4 * 4;
  for (int j = im->height - 1; j >= 0; j--) {
    if (fread(row, 1, padded, f) != padded)
      return close_with(f, im, PIX_E_FORMAT, "pix_read_bmp", "the file ends before the last row");
    memcpy((unsigned char *)im->data + (size_t)j * n, row, n);
  }
  fclose(f);
  return PIX_OK;
}

int pix_write_bmp(const char *path, const struct pix_image *im) {
  if (im->type != PIX_U8 || im->space != PIX_BGR)
    return pix_fail(PIX_E_SPACE, "pix_write_bmp", "BMP files are written from BGR images of 8 bits");
  FILE *f = fopen(path, "wb");
  if (!f) return pix_fail(PIX_E_OPEN, "pix_write_bmp", path);
  const size_t n = (size_t)im->width * 3, padded = (n + 3) / 4 * 4;
  unsigned char head[54] = {'B', 'M'};
  const unsigned fields[][2] = {{2, (unsigned)(54 + padded * (size_t)im->height)}, {10, 54}, {14, 40},
                                {18, (unsigned)im->width}, {22, (unsigned)im->height}, {26, 1 | 24u << 16}};
  for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
    for (int b = 0; b < 4; b++) head[fields[k][0] + (unsigned)b] = (unsigned char)(fields[k][1] >> 8 * b);
  fwrite(head, 1, 54, f);
  for (int j = im->height - 1; j >= 0; j--) {
    fwrite((unsigned char *)im->data + (size_t)j * n, 1, n, f);
    fwrite("\0\0", 1, padded - n, f);
  }
  return fclose(f) ? pix_fail(PIX_E_OPEN, "pix_write_bmp", "the disk is full") : PIX_OK;
}
