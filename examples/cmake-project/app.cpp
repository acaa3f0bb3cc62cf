// Draws a digit, asks the model, prints what it says.
#include "digits.h"
extern "C" {
#include "dsp.h"
}
#include <iostream>

int main() {
  dsp_line(digits_in_Input3(), 28, 14, 255.0f);  // a 1
  if (const int status = digits_run(); status != DIGITS_OK) {
    std::cerr << digits_strerror(status) << '\n';
    return 1;
  }
  std::cout << "class " << dsp_argmax(digits_out_Plus214_Output_0(), DIGITS_OUT_PLUS214_OUTPUT_0_SIZE) << '\n';
  return 0;
}
