#include "sampler.h"
#include <cmath>

namespace {

class Nearest final : public Sampler {
public:
  using Sampler::Sampler;
  float at(float x, float y) const override {
    return pixel(static_cast<int>(std::floor(x + 0.5f)), static_cast<int>(std::floor(y + 0.5f)));
  }
  const char *name() const override { return "the nearest pixel"; }
  float reach() const override { return 0.5f; }
};

class Linear final : public Sampler {
public:
  using Sampler::Sampler;
  float at(float x, float y) const override {
    const float left = std::floor(x), top = std::floor(y), u = x - left, v = y - top;
    const int i = static_cast<int>(left), j = static_cast<int>(top);
    return (1 - v) * ((1 - u) * pixel(i, j) + u * pixel(i + 1, j)) +
           v * ((1 - u) * pixel(i, j + 1) + u * pixel(i + 1, j + 1));
  }
  const char *name() const override { return "linear between four pixels"; }
  float reach() const override { return 1.0f; }
};

class Smooth final : public Sampler {
public:
  using Sampler::Sampler;
  float at(float x, float y) const override {
    float sum = 0.0f, all = 0.0f;
    for (int j = -2; j <= 2; j++)
      for (int i = -2; i <= 2; i++) {
        const float px = std::floor(x) + static_cast<float>(i), py = std::floor(y) + static_cast<float>(j);
        const float w = std::exp(-((x - px) * (x - px) + (y - py) * (y - py)));
        sum += w * pixel(static_cast<int>(px), static_cast<int>(py)), all += w;
      }
    return sum / all;
  }
  const char *name() const override { return "weighted by a bell over 25 pixels"; }
  float reach() const override { return 2.5f; }
};

}  // namespace

std::unique_ptr<Sampler> nearest_sampler(const pix_image &image) { return std::make_unique<Nearest>(image); }
std::unique_ptr<Sampler> linear_sampler(const pix_image &image) { return std::make_unique<Linear>(image); }
std::unique_ptr<Sampler> smooth_sampler(const pix_image &image) { return std::make_unique<Smooth>(image); }

void sample_square(const Sampler &sampler, float x, float y, float step, int side, float scale, float *out) {
  const float first = -0.5f * static_cast<float>(side - 1) * step;
  for (int j = 0; j < side; j++)
    for (int i = 0; i < side; i++)
      *out++ = scale * sampler.at(x + first + static_cast<float>(i) * step, y + first + static_cast<float>(j) * step);
}
