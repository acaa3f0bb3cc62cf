// Reads a page, finds the digits on it, says which they are.
//
//     pipeline page.ppm [RUNS]        with RUNS: repeats all but the reading, and tells how long one took
#include "digits.h"
#include "finder.h"
#include "post.h"
#include "sampler.h"
#include "stage.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int side = 28, most = 16;

struct Found {
  box where;
  guess what;
};

int fail(const char *what, const char *why) {
  std::fprintf(stderr, "pipeline: %s: %s\n", what, why);
  return -1;
}

// The middle of the ink in a box, in pixels of the page.
void centre(const pix_image &page, box &b) {
  const auto *x = static_cast<const float *>(page.data);
  float sum = 0, sx = 0, sy = 0;
  for (int j = std::max(0, int(b.y - b.height / 2)); j < std::min(page.height, int(b.y + b.height / 2)); j++)
    for (int i = std::max(0, int(b.x - b.width / 2)); i < std::min(page.width, int(b.x + b.width / 2)); i++) {
      const float ink = x[j * page.width + i];
      sum += ink, sx += ink * float(i), sy += ink * float(j);
    }
  if (sum > 0) b.x = sx / sum, b.y = sy / sum;
}

int classify(const Sampler &sampler, const box &b, guess &out) {
  sample_square(sampler, b.x, b.y, 1.25f, side, 255.0f, digits_in_Input3());
  if (const int status = digits_run()) return fail("digits", digits_strerror(status));
  return post_guesses(&out, 1);
}

int process(const Stages &stages, Frame &frame, Found *found) {
  for (const auto &stage : stages)
    if (const int status = stage->apply(frame)) return fail(stage->name(), pix_strerror(status));
  std::memcpy(finder_in_ink(), frame.small->data, FINDER_IN_INK_SIZE * sizeof(float));
  if (const int status = finder_run()) return fail("finder", finder_strerror(status));
  box boxes[most];
  const int n = post_boxes(boxes, most, 0.5f, 0.05f);
  const float scale = float(frame.page->width) / float(frame.small->width);
  const auto sampler = linear_sampler(*frame.page.get());
  for (int i = 0; i < n; i++) {
    box b = {boxes[i].x * scale, boxes[i].y * scale, boxes[i].width * scale, boxes[i].height * scale, boxes[i].score};
    centre(*frame.page.get(), b);
    found[i].where = b;
    if (classify(*sampler, b, found[i].what) < 0) return -1;
  }
  return n;
}

int copy(const Image &from, Image &to) {
  Image made;
  const int status = pix_alloc(made.get(), from->width, from->height, from->type, from->space);
  if (status == PIX_OK) std::memcpy(made->data, from->data, pix_bytes(from.get()));
  to.swap(made);
  return status;
}

}  // namespace

int main(int count, char **words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: pipeline PAGE.ppm [RUNS]\n");
    return 2;
  }
  Image page;
  if (const int status = pix_read_pnm(words[1], page.get())) return fail(words[1], pix_strerror(status)) & 1;
  Stages stages;
  stages.push_back(to_gray());
  stages.push_back(to_ink());
  stages.push_back(shrink(64, 48));
  const int runs = count > 2 ? std::max(1, std::atoi(words[2])) : 1;
  std::vector<double> times;
  Found found[most];
  int n = 0;
  for (int r = 0; r < runs; r++) {
    Frame frame;
    if (const int status = copy(page, frame.page)) return fail("copy", pix_strerror(status)) & 1;
    const auto began = std::chrono::steady_clock::now();
    n = process(stages, frame, found);
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count());
    if (n < 0) return 1;
  }
  std::sort(found, found + n, [](const Found &a, const Found &b) { return a.where.x < b.where.x; });
  for (int i = 0; i < n; i++)
    std::printf("%-5s at %3.0f, %3.0f\n", post_label(found[i].what.label), found[i].where.x, found[i].where.y);
  if (count > 2) {
    std::sort(times.begin(), times.end());
    std::printf("%.2f us\n", times[times.size() / 2]);
  }
  return 0;
}
