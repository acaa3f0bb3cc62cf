// Values of an image between its pixels.
#ifndef SAMPLER_H
#define SAMPLER_H

#include "pix/pix.h"
#include <memory>

class Sampler {
public:
  explicit Sampler(const pix_image &image)
      : pixels(static_cast<const float *>(image.data)), width(image.width), height(image.height) {}
  virtual ~Sampler() = default;
  virtual const char *name() const = 0;
  virtual float reach() const = 0;  // how far away the pixels are that count
  virtual float at(float x, float y) const = 0;

protected:
  float pixel(int x, int y) const {
    return x < 0 || y < 0 || x >= width || y >= height ? 0.0f : pixels[y * width + x];
  }
  const float *pixels;
  int width, height;
};

std::unique_ptr<Sampler> nearest_sampler(const pix_image &image);
std::unique_ptr<Sampler> linear_sampler(const pix_image &image);
std::unique_ptr<Sampler> smooth_sampler(const pix_image &image);

// `side` x `side` values round a middle, `step` pixels apart.
void sample_square(const Sampler &sampler, float x, float y, float step, int side, float scale, float *out);

#endif
