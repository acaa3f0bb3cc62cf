/* Postprocessing: what the models' outputs say. */
#ifndef POST_H
#define POST_H

#ifdef __cplusplus
extern "C" {
#endif

struct box {
  float x, y, width, height, score; /* of the middle, in pixels of the detector's input */
};
struct guess {
  int label;
  float probability;
};

int post_boxes(struct box *out, int most, float threshold, float overlap); /* best first, after suppression */
int post_guesses(struct guess *out, int most);                              /* best first */
const char *post_label(int label);
float post_overlap(const struct box *a, const struct box *b);

#ifdef __cplusplus
}
#endif
#endif
