// Preprocessing in stages: each changes the frame.
#ifndef STAGE_H
#define STAGE_H

#include "pix/pix.h"
#include <memory>
#include <utility>
#include <vector>

// An image of the library that frees itself.
class Image {
public:
  Image() = default;
  ~Image() { pix_free(&image_); }
  Image(const Image &) = delete;
  Image &operator=(const Image &) = delete;
  pix_image *operator->() { return &image_; }
  const pix_image *operator->() const { return &image_; }
  pix_image *get() { return &image_; }
  const pix_image *get() const { return &image_; }
  void swap(Image &other) { std::swap(image_, other.image_); }

private:
  pix_image image_ = {};
};

struct Frame {
  Image page;   // what was read, then its ink: 0 paper, 1 black
  Image small;  // the ink in the size of the detector
};

class Stage {
public:
  virtual ~Stage() = default;
  virtual const char *name() const = 0;
  virtual int apply(Frame &frame) const = 0;  // a pix_status
};

using Stages = std::vector<std::unique_ptr<Stage>>;

std::unique_ptr<Stage> to_gray();
std::unique_ptr<Stage> to_ink();
std::unique_ptr<Stage> shrink(int width, int height);
std::unique_ptr<Stage> denoise();
std::unique_ptr<Stage> sharpen(float amount);
std::unique_ptr<Stage> equalize();
std::unique_ptr<Stage> outline();

#endif
