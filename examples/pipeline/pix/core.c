#include "pix.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const errors[] = {
    "no error",
    "no memory for the image",
    "this element type is not supported by the operation",
    "the size of the image is not what the operation needs",
    "the colour space of the image is not what the operation needs",
    "the file cannot be opened",
    "the file is damaged or of a format that is not supported",
    "an argument is outside of its range",
};
static const char *const types[] = {"8 bit", "16 bit", "32 bit float"};
static const char *const spaces[] = {"gray", "RGB", "BGR", "YUV (BT.601)", "HSV"};
static void (*on_error)(int, const char *, const char *);

int pix_channels(const struct pix_image *im) { return im->space == PIX_GRAY ? 1 : 3; }

static size_t element(enum pix_type type) { return type == PIX_U8 ? 1 : type == PIX_U16 ? 2 : 4; }

size_t pix_bytes(const struct pix_image *im) {
  return (size_t)im->width * (size_t)im->height * (size_t)pix_channels(im) * element(im->type);
}

int pix_alloc(struct pix_image *im, int width, int height, enum pix_type type, enum pix_space space) {
  im->width = width, im->height = height, im->type = type, im->space = space, im->data = NULL;
  if (width <= 0 || height <= 0 || width > 1 << 15 || height > 1 << 15)
    return pix_fail(PIX_E_SIZE, "pix_alloc", "width and height must be between 1 and 32768");
  im->data = malloc(pix_bytes(im));
  return im->data ? PIX_OK : pix_fail(PIX_E_MEMORY, "pix_alloc", "malloc returned a null pointer");
}

void pix_free(struct pix_image *im) {
  free(im->data);
  im->data = NULL;
}

const char *pix_strerror(int status) {
  return status >= 0 && status < (int)(sizeof errors / sizeof *errors) ? errors[status] : "unknown error";
}

const char *pix_describe(const struct pix_image *im, char *text, size_t size) {
  snprintf(text, size, "%d x %d pixels, %s, %s", im->width, im->height, types[im->type], spaces[im->space]);
  return text;
}

void pix_on_error(void (*call)(int status, const char *where, const char *what)) { on_error = call; }

int pix_fail(int status, const char *where, const char *what) {
  if (on_error) on_error(status, where, what);
  return status;
}
