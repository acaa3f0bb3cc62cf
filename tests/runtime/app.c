/* An application in C: three threads on three arenas while a fourth changes the number of workers.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mb/abi.h"

enum { CALLERS = 3, RUNS = 500, N = 4000 };

static void *caller(void *arg) {
  const struct mb_model_info *m = monobloc_model(0);
  void *ram = aligned_alloc(MB_RAM_ALIGN, m->ram_size);
  memset(ram, 0, m->ram_size);
  m->reset_at(ram);
  float *x = m->inputs[0].at(ram), *y = m->outputs[0].at(ram);
  long wrong = 0;
  for (int i = 0; i < N; i++) x[i] = (float)(i + (long)arg);
  for (int r = 0; r < RUNS; r++) {
    y[0] = y[N / 2] = y[N - 1] = -1;
    wrong += m->run_at(ram) != MB_OK;
    for (int i = 0; i < N; i++) wrong += y[i] != x[i] * 3;
  }
  free(ram);
  return (void *)wrong;
}

int main(void) {
  const struct mb_model_info *m = monobloc_model(0);
  pthread_t thread[CALLERS];
  long wrong = 0;
  m->set_threads(3);
  for (long i = 0; i < CALLERS; i++) pthread_create(&thread[i], 0, caller, (void *)i);
  for (int i = 0; i < 30; i++) {
    m->set_threads(1 + i % 4);
    for (volatile int k = 0; k < 200000; k++) {
    }
  }
  for (int i = 0; i < CALLERS; i++) {
    void *result;
    pthread_join(thread[i], &result);
    wrong += (long)result;
  }
  m->stop();
  puts(wrong ? "wrong" : "ok");
  return wrong != 0;
}
