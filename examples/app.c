/* A program of one's own round a model: fills the input, runs, prints the best class.
 *
 *     monobloc compile mnist8.onnx -o mnist8.o     writes mnist8.h too
 *     gcc app.c mnist8.o -I. -o app
 */
#include "mnist8.h"
#include <stdio.h>

int main(void) {
  float *x = mnist8_in_Input3();
  for (int i = 0; i < MNIST8_IN_INPUT3_SIZE; i++) x[i] = i % 28 == 14 ? 255.0f : 0.0f; /* a 1 */
  int status = mnist8_run();
  if (status != MNIST8_OK) {
    fprintf(stderr, "%s\n", mnist8_strerror(status));
    return 1;
  }
  const float *y = mnist8_out_Plus214_Output_0();
  int best = 0;
  for (int i = 1; i < MNIST8_OUT_PLUS214_OUTPUT_0_SIZE; i++)
    if (y[i] > y[best]) best = i;
  printf("class %d\n", best);
  return 0;
}
