/* pix: a small image library. Every routine takes images of every element type. */
#ifndef PIX_H
#define PIX_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pix_type { PIX_U8, PIX_U16, PIX_F32 };
enum pix_space { PIX_GRAY, PIX_RGB, PIX_BGR, PIX_YUV, PIX_HSV };
enum pix_filter { PIX_NEAREST, PIX_BILINEAR, PIX_BICUBIC, PIX_AREA };
enum pix_edge { PIX_CLAMP, PIX_MIRROR, PIX_ZERO };
enum pix_status { PIX_OK, PIX_E_MEMORY, PIX_E_TYPE, PIX_E_SIZE, PIX_E_SPACE, PIX_E_OPEN, PIX_E_FORMAT, PIX_E_ARGUMENT };

/* Rows without gaps, channels interleaved; U8 and U16 use their whole range, F32 0 to 1. */
struct pix_image {
  void *data;
  int width, height;
  enum pix_type type;
  enum pix_space space;
};

/* core.c */
int pix_channels(const struct pix_image *im);
size_t pix_bytes(const struct pix_image *im);
int pix_alloc(struct pix_image *im, int width, int height, enum pix_type type, enum pix_space space);
void pix_free(struct pix_image *im);
const char *pix_strerror(int status);
const char *pix_describe(const struct pix_image *im, char *text, size_t size);
void pix_on_error(void (*call)(int status, const char *where, const char *what));
int pix_fail(int status, const char *where, const char *what);

/* color.c, resize.c */
int pix_convert(const struct pix_image *from, struct pix_image *to, enum pix_space space);
int pix_cast(const struct pix_image *from, struct pix_image *to, enum pix_type type);
int pix_resize(const struct pix_image *from, struct pix_image *to, int width, int height, enum pix_filter filter);

/* filter.c */
int pix_convolve(const struct pix_image *from, struct pix_image *to, const float *taps, int size, enum pix_edge edge);
int pix_blur(const struct pix_image *from, struct pix_image *to, float sigma);
int pix_sharpen(const struct pix_image *from, struct pix_image *to, float amount);
int pix_median(const struct pix_image *from, struct pix_image *to);
int pix_edges(const struct pix_image *from, struct pix_image *to);
int pix_equalize(struct pix_image *im);
int pix_threshold(struct pix_image *im, float level);

/* file.c, draw.c */
int pix_read_pnm(const char *path, struct pix_image *im);
int pix_write_pnm(const char *path, const struct pix_image *im);
int pix_read_bmp(const char *path, struct pix_image *im);
int pix_write_bmp(const char *path, const struct pix_image *im);
int pix_draw_rectangle(struct pix_image *im, int x, int y, int width, int height, float value);
int pix_draw_line(struct pix_image *im, int x0, int y0, int x1, int y1, float value);
int pix_draw_text(struct pix_image *im, int x, int y, const char *text, float value);

#ifdef __cplusplus
}
#endif
#endif
