/* A small library of which the program uses a part. */
#ifndef DSP_H
#define DSP_H

void dsp_line(float *image, int side, int column, float value);
float dsp_rms(const float *x, int n);
int dsp_argmax(const float *x, int n);

#endif
