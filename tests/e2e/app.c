/* The application of the equivalence matrix: two models in one program, filled and run in several
 * orders. Every answer must be the same as the first one to the bit; the first ones are written out.
 *
 *   app IN OUT THREADS     IN holds two inputs of each model, one after another, raw
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alpha.h"
#include "beta.h"

#define RUNS 20
enum { AX = ALPHA_IN_X_SIZE, AY = ALPHA_OUT_Y_SIZE, AF = ALPHA_OUT_FEATURES_SIZE };
enum { BI = BETA_IN_IDS_SIZE, BX = BETA_IN_X_SIZE, BY = BETA_OUT_Y_SIZE };

struct input {
  float ax[AX];
  int64_t bi[BI];
  float bx[BX];
};
struct output {
  float ay[AY], af[AF], by[BY];
};

static struct input in[2];
static struct output want[2], got;

static void fill_a(const struct input *i) { memcpy(alpha_in_x(), i->ax, sizeof i->ax); }
static void fill_b(const struct input *i) {
  memcpy(beta_in_ids(), i->bi, sizeof i->bi);
  memcpy(beta_in_x(), i->bx, sizeof i->bx);
}
static void read_a(struct output *o) {
  memcpy(o->ay, alpha_out_y(), sizeof o->ay);
  memcpy(o->af, alpha_out_features(), sizeof o->af);
}
static void read_b(struct output *o) { memcpy(o->by, beta_out_y(), sizeof o->by); }

static void check(int ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void same(const struct output *w, const char *what) {
  check(!memcmp(&got, w, sizeof got), what);
}

static void orders(void) {
  for (int k = 0; k < 2; k++) { /* fill A and B, run A, run B, read A */
    fill_a(&in[k]), fill_b(&in[k]);
    check(alpha_run() == ALPHA_OK && beta_run() == BETA_OK, "a run failed");
    read_a(&want[k]), read_b(&want[k]);
  }
  check(memcmp(&want[0], &want[1], sizeof got) != 0, "the inputs do not matter");
  fill_b(&in[0]), fill_a(&in[0]);
  check(!beta_run() && !alpha_run(), "a run failed");
  read_b(&got), read_a(&got);
  same(&want[0], "another order of filling and running");
  memset(&got, 0, sizeof got);
  check(!alpha_run() && !beta_run(), "a run failed");
  read_a(&got), read_b(&got);
  same(&want[0], "a second run on one fill");
  fill_a(&in[1]), fill_b(&in[1]);
  read_a(&got), read_b(&got);
  same(&want[0], "filling changed an output that is still to be read");
}

static void *on_own_ram(void *which) {
  const int k = which == (void *)&in[1];
  struct output o;
  void *a = aligned_alloc(64, (alpha_ram_size + 63) / 64 * 64);
  void *b = aligned_alloc(64, (beta_ram_size + 63) / 64 * 64);
  memset(a, 0xAB, alpha_ram_size), memset(b, 0xCD, beta_ram_size); /* reset must suffice */
  alpha_reset_at(a), beta_reset_at(b);
  void *bad = 0;
  for (int i = 0; i < RUNS && !bad; i++) {
    memcpy(alpha_in_x_at(a), in[k].ax, sizeof in[k].ax);
    memcpy(beta_in_ids_at(b), in[k].bi, sizeof in[k].bi);
    memcpy(beta_in_x_at(b), in[k].bx, sizeof in[k].bx);
    if (alpha_run_at(a) || beta_run_at(b)) bad = which;
    memcpy(o.ay, alpha_out_y_at(a), sizeof o.ay);
    memcpy(o.af, alpha_out_features_at(a), sizeof o.af);
    memcpy(o.by, beta_out_y_at(b), sizeof o.by);
    if (memcmp(&o, &want[k], sizeof o)) bad = which;
  }
  free(a), free(b);
  return bad;
}

static void two_instances(void) {
  pthread_t t[2];
  void *bad[2];
  for (int k = 0; k < 2; k++) check(!pthread_create(&t[k], 0, on_own_ram, &in[k]), "no thread");
  for (int k = 0; k < 2; k++) pthread_join(t[k], &bad[k]);
  check(!bad[0] && !bad[1], "two threads on two instances");
}

int main(int argc, char **argv) {
  check(argc == 4, "usage: app IN OUT THREADS");
  check(alpha_ram_size <= ALPHA_RAM_MAX && beta_ram_size <= BETA_RAM_MAX, "RAM_MAX is no bound");
  FILE *f = fopen(argv[1], "rb");
  check(f && fread(in, sizeof in, 1, f) == 1, "cannot read the inputs");
  fclose(f);
  alpha_set_threads(atoi(argv[3])), beta_set_threads(atoi(argv[3]));
  orders();
  two_instances();
  alpha_stop(), beta_stop();
  f = fopen(argv[2], "wb");
  check(f && fwrite(want, sizeof want, 1, f) == 1 && !fclose(f), "cannot write the outputs");
  return 0;
}
