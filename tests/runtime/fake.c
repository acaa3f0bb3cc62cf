/* A model written by hand: what generated code looks like to the runtime.
 *
 * y = 3 x + k, z = the sum of x in ten pieces, one `parts` entry per thread part. k drives errors:
 * k == 7: every part but the first fails with its own number, k == 8: an index error.
 */
#include "mb/abi.h"
#include "mb/cpu.h"
#include "mb/fp.h"
#include "mb/hal.h"

#ifndef FEATURES
#define FEATURES ""
#endif
#ifdef MB_PROBE
#define LISTED ""
#else
#define LISTED FEATURES
#endif
#ifndef THREADS
#define THREADS 4
#endif
#ifndef REPEAT
#define REPEAT 1 /* dispatches of each layer per run */
#endif

enum { N = 4000, PARTS = 8 };

struct ram {
  float x[N];
  int64_t k;
  float y[N];
  float z[10];
  int64_t parts[PARTS]; /* nt of each part that ran */
  int64_t who[PARTS];   /* its stack: differs between threads */
  int64_t mode[PARTS];  /* its floating-point mode */
  int32_t busy;
};

static _Alignas(MB_RAM_ALIGN) char own[(sizeof(struct ram) + 63) / 64 * 64];

__attribute__((noinline)) static int layer_scale(mb_mem mem, int tid, int nt) {
  struct ram *r = (struct ram *)mem[0];
  long lo = (long)N * tid / nt, hi = (long)N * (tid + 1) / nt;
  for (long i = lo; i < hi; i++) r->y[i] = r->x[i] * 3 + (float)r->k;
  return r->k == 7 && tid ? 100 + tid : MB_OK;
}

__attribute__((noinline)) static int layer_note(mb_mem mem, int tid, int nt) {
  struct ram *r = (struct ram *)mem[0];
  volatile char here[2048];
  here[0] = 1;
  for (volatile int i = 0; i < SPIN; i++) {
  }
  r->parts[tid] = nt;
  r->who[tid] = (int64_t)(intptr_t)here >> 16;
  r->mode[tid] = (int64_t)mb_fp_get();
  return MB_OK;
}

__attribute__((noinline)) static int layer_sum(mb_mem mem, int tid, int nt) {
  struct ram *r = (struct ram *)mem[0];
  for (long j = 10L * tid / nt; j < 10L * (tid + 1) / nt; j++) {
    float sum = 0;
    for (long i = j * N / 10; i < (j + 1) * N / 10; i++) sum += r->x[i];
    r->z[j] = sum;
  }
  return r->k == 8 ? MB_E_INDEX : MB_OK;
}

#if THREADS > 1
#define CALL(fn) mb_parallel_for(fn, mem)
#else
#define CALL(fn) fn(mem, 0, 1)
#endif

#ifdef MB_PROBE
static const char *names = "";
MB_EXPORT const char *probe_missing(const char *features) { return mb_cpu_missing(features); }
#endif

static int run_layers(char *ram) {
  char *const mem[] = {ram};
  int status = MB_OK;
  for (int i = 0; i < REPEAT && !status; i++) {
    if ((status = CALL(layer_scale))) break;
    if ((status = CALL(layer_sum))) break;
    status = CALL(layer_note);
  }
  return status;
}

static int run_at(void *ram) {
  struct ram *r = ram;
  if (mb_cpu_check(FEATURES)) return MB_E_CPU;
  if (__atomic_exchange_n(&r->busy, 1, __ATOMIC_ACQUIRE)) return MB_E_BUSY;
  for (int i = 0; i < PARTS; i++) r->parts[i] = r->who[i] = r->mode[i] = 0;
  uint64_t fp = mb_fp_enter();
  int status = run_layers(ram);
  mb_fp_leave(fp);
  __atomic_store_n(&r->busy, 0, __ATOMIC_RELEASE);
  return status;
}

static int run(void) { return run_at(own); }
static void reset_at(void *ram) { ((struct ram *)ram)->busy = 0; }
static void reset(void) { reset_at(own); }
static void *own_ram(void) { return own; }

#define AT(field) \
  static void *at_##field(void *ram) { return &((struct ram *)ram)->field; }
AT(x)
AT(k) AT(y) AT(z) AT(parts) AT(who) AT(mode)

    static const int64_t dims_x[] = {2, N / 2},
                         dims_k[] = {1}, dims_z[] = {10}, dims_p[] = {PARTS};
static const struct mb_tensor_info inputs[] = {
    {"x", MB_F32, 2, dims_x, 4 * N, at_x},
    {"k", MB_I64, 0, dims_k, 8, at_k},
};
static const struct mb_tensor_info outputs[] = {
    {"y", MB_F32, 2, dims_x, 4 * N, at_y},
    {"z/1", MB_F32, 1, dims_z, 40, at_z},
    {"parts", MB_I64, 1, dims_p, 8 * PARTS, at_parts},
    {"who", MB_I64, 1, dims_p, 8 * PARTS, at_who},
    {"mode", MB_I64, 1, dims_p, 8 * PARTS, at_mode},
};
static const struct mb_bank own_banks[] = {{"io", own, sizeof own}};
static const struct mb_model_info models[] = {
    {MB_ABI,
     sizeof(struct mb_model_info),
     "fake",
     2,
     OUTPUTS,
     inputs,
     outputs,
     sizeof own,
     0,
     16384,
     run,
     run_at,
     reset,
     reset_at,
     own_ram,
#if THREADS > 1
     mb_set_threads,
     mb_stop,
#else
     0,           0,
#endif
     mb_strerror,
     "test",
     LISTED,
     THREADS,
     1,
     own_banks,
     0},
    {MB_ABI,
     sizeof(struct mb_model_info),
     "second",
     1,
     1,
     inputs,
     outputs + 1,
     sizeof own,
     0,
     0,
     run,
     run_at,
     0,
     reset_at,
     own_ram,
     0,
     0,
     mb_strerror,
     "test",
     LISTED,
     1,
     1,
     own_banks,
     0},
};

const struct mb_model_info *monobloc_model(int i) { return i >= 0 && i < MODELS ? &models[i] : 0; }
