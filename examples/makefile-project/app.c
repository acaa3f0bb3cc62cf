/* Draws a digit, asks the model, prints what it says. */
#include "digits.h"
#include "dsp.h"
#include <stdio.h>

int main(void) {
  dsp_line(digits_in_Input3(), 28, 14, 255.0f); /* a 1 */
  int status = digits_run();
  if (status != DIGITS_OK) {
    fprintf(stderr, "%s\n", digits_strerror(status));
    return 1;
  }
  printf("class %d\n", dsp_argmax(digits_out_Plus214_Output_0(), DIGITS_OUT_PLUS214_OUTPUT_0_SIZE));
  return 0;
}
