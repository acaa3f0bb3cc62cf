#include "stage.h"
#include <algorithm>
#include <array>

namespace {

// A stage that makes a new page out of the old one.
class PageStage : public Stage {
public:
  int apply(Frame &frame) const override {
    Image made;
    const int status = make(*frame.page.get(), *made.get());
    if (status == PIX_OK) frame.page.swap(made);
    return status;
  }

private:
  virtual int make(const pix_image &from, pix_image &to) const = 0;
};

class ToGray final : public PageStage {
  const char *name() const override { return "conversion to gray"; }
  int make(const pix_image &from, pix_image &to) const override { return pix_convert(&from, &to, PIX_GRAY); }
};

// How dark a pixel is, from the paper's brightness on: the level that nine of ten pixels reach not.
class ToInk final : public PageStage {
  const char *name() const override { return "finding ink"; }
  int make(const pix_image &from, pix_image &to) const override {
    const int status = pix_cast(&from, &to, PIX_F32);
    if (status != PIX_OK) return status;
    auto *x = static_cast<float *>(to.data);
    const int n = to.width * to.height;
    std::array<int, 256> count{};
    for (int i = 0; i < n; i++) count[static_cast<unsigned char>(x[i] * 255.0f)]++;
    int level = 0;
    for (int seen = 0; level < 255 && (seen += count[level]) < n / 2; level++) {}
    const float paper = static_cast<float>(level) / 255.0f * 0.85f + 1e-3f;
    for (int i = 0; i < n; i++) x[i] = std::clamp((paper - x[i]) / paper, 0.0f, 1.0f);
    return PIX_OK;
  }
};

class Shrink final : public Stage {
public:
  Shrink(int width, int height) : width_(width), height_(height) {}
  const char *name() const override { return "shrinking to the detector's size"; }
  int apply(Frame &frame) const override {
    Image made;
    const int status = pix_resize(frame.page.get(), made.get(), width_, height_, PIX_AREA);
    if (status == PIX_OK) frame.small.swap(made);
    return status;
  }

private:
  int width_, height_;
};

class Denoise final : public PageStage {
  const char *name() const override { return "median of nine"; }
  int make(const pix_image &from, pix_image &to) const override { return pix_median(&from, &to); }
};

class Sharpen final : public PageStage {
public:
  explicit Sharpen(float amount) : amount_(amount) {}

private:
  const char *name() const override { return "sharpening"; }
  int make(const pix_image &from, pix_image &to) const override { return pix_sharpen(&from, &to, amount_); }
  float amount_;
};

class Equalize final : public Stage {
  const char *name() const override { return "equalizing the histogram"; }
  int apply(Frame &frame) const override { return pix_equalize(frame.page.get()); }
};

class Outline final : public PageStage {
  const char *name() const override { return "reduction to outlines"; }
  int make(const pix_image &from, pix_image &to) const override { return pix_edges(&from, &to); }
};

}  // namespace

std::unique_ptr<Stage> to_gray() { return std::make_unique<ToGray>(); }
std::unique_ptr<Stage> to_ink() { return std::make_unique<ToInk>(); }
std::unique_ptr<Stage> shrink(int width, int height) { return std::make_unique<Shrink>(width, height); }
std::unique_ptr<Stage> denoise() { return std::make_unique<Denoise>(); }
std::unique_ptr<Stage> sharpen(float amount) { return std::make_unique<Sharpen>(amount); }
std::unique_ptr<Stage> equalize() { return std::make_unique<Equalize>(); }
std::unique_ptr<Stage> outline() { return std::make_unique<Outline>(); }
