/* The thread pool, whatever starts its threads: pool_clone.c and pool_pthread.c include this file
 * and give `start_worker(t)` and `join_worker(t)`.
 *
 * The split is static: part t belongs to thread t. But every part has to be *claimed* before it
 * runs, and the caller claims what nobody has begun when its own part is done. So a worker that is
 * asleep, descheduled, or gone since a fork costs time, never the answer, and no dispatch asks
 * whether the process has forked. Waiting spins for about 30 us and then sleeps on a futex.
 *
 * Jobs are numbered. claim[t] is the last job whose part t was claimed: it goes from s - 1 to s by
 * compare-and-swap, before job s ends. A late worker that still holds number s therefore either
 * wins the swap, and job s is alive with all its fields, or loses it and touches nothing.
 */
#ifndef MB_POOL_H
#define MB_POOL_H

#include "mb/fp.h"
#include "mb/hal.h"
#include "sys.h"

#ifndef MB_MAX_THREADS
#define MB_MAX_THREADS 8
#endif

static int start_worker(int t);
static void join_worker(int t);

#define MB_LINE _Alignas(128) /* two cache lines: x86 fetches them in pairs */

struct mb_slot {
  MB_LINE uint32_t claim;
  uint32_t done; /* the last job whose part t a worker finished; futex of the caller */
  int status;
};

static struct {
  MB_LINE uint32_t seq; /* number of the current job; futex of idle workers */
  mb_layer fn;
  mb_mem mem;
  uint64_t fp; /* the caller's floating-point mode: the same bits from every thread */
  int nt;
  int quit;
  int patient; /* the caller leaves parts to their workers: to measure their stacks */
  MB_LINE uint32_t sleepers;
  MB_LINE uint32_t waiting; /* the caller sleeps */
  MB_LINE uint32_t owner;   /* somebody dispatches, or changes the number of threads */
  int threads;
  long pid;
  struct mb_slot slot[MB_MAX_THREADS];
} pool = {.threads = 1};

#define MB_LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define MB_LOAD_ALL(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define MB_SWAP(p, v) __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)

static int take(int t, uint32_t job) {
  uint32_t before = job - 1;
  return __atomic_compare_exchange_n(&pool.slot[t].claim, &before, job, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED);
}

/* Spins while *at holds `value`, for a bounded time. */
static int changed_soon(uint32_t *at, uint32_t value) {
  uint64_t start = mb_ticks(), limit = mb_spin_ticks();
  do {
    for (int i = 0; i < 16; i++) {
      if (MB_LOAD(at) != value) return 1;
      mb_relax();
    }
  } while (mb_ticks() - start < limit);
  return 0;
}

static uint32_t next_job(uint32_t seen) {
  if (!changed_soon(&pool.seq, seen)) {
    __atomic_fetch_add(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
    while (MB_LOAD_ALL(&pool.seq) == seen) mb_futex_wait(&pool.seq, seen);
    __atomic_fetch_sub(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
  }
  return MB_LOAD(&pool.seq);
}

static void work(int t) {
  struct mb_slot *me = &pool.slot[t];
  uint32_t seen = MB_LOAD(&me->done);
  for (;;) {
    seen = next_job(seen);
    if (MB_LOAD(&pool.quit)) return;
    if (!take(t, seen)) continue;
    mb_fp_enter_mode(pool.fp);
    me->status = pool.fn(pool.mem, t, pool.nt);
    MB_SWAP(&me->done, seen); /* in order with the load below: the caller does the reverse */
    if (MB_LOAD_ALL(&pool.waiting)) mb_futex_wake(&me->done, 1);
  }
}

static void wait_for(struct mb_slot *s, uint32_t job) {
  uint32_t old = MB_LOAD(&s->done);
  if (old == job || changed_soon(&s->done, old)) return;
  MB_SWAP(&pool.waiting, 1);
  while (MB_LOAD_ALL(&s->done) != job) mb_futex_wait(&s->done, old);
  MB_SWAP(&pool.waiting, 0);
}

static int run_parts(mb_layer fn, mb_mem mem, int nt) {
  uint32_t job = pool.seq + 1;
  for (int t = nt; t < pool.threads; t++)
    __atomic_store_n(&pool.slot[t].claim, job, __ATOMIC_RELEASE);
  pool.fn = fn, pool.mem = mem, pool.nt = nt, pool.fp = mb_fp_get();
  MB_SWAP(&pool.seq, job);
  if (MB_LOAD_ALL(&pool.sleepers)) mb_futex_wake(&pool.seq, INT32_MAX);
  int status = fn(mem, 0, nt);
  for (int t = 1; t < nt; t++) {
    struct mb_slot *s = &pool.slot[t];
    if (pool.patient || !take(t, job)) continue;
    s->status = fn(mem, t, nt);
    __atomic_store_n(&s->done, job, __ATOMIC_RELEASE);
  }
  for (int t = 1; t < nt; t++) {
    wait_for(&pool.slot[t], job);
    if (!status) status = pool.slot[t].status;
  }
  return status;
}

MB_RT int mb_parallel_upto(mb_layer fn, mb_mem mem, int most) {
  if (__atomic_load_n(&pool.threads, __ATOMIC_RELAXED) < 2 || most < 2 ||
      __atomic_exchange_n(&pool.owner, 1, __ATOMIC_ACQUIRE))
    return fn(mem, 0, 1);
  int nt = pool.threads < most ? pool.threads : most;
  int status = nt < 2 ? fn(mem, 0, 1) : run_parts(fn, mem, nt);
  __atomic_store_n(&pool.owner, 0, __ATOMIC_RELEASE);
  return status;
}

static void end_workers(void) {
  __atomic_store_n(&pool.quit, 1, __ATOMIC_RELEASE);
  MB_SWAP(&pool.seq, pool.seq + 1);
  mb_futex_wake(&pool.seq, INT32_MAX);
  for (int t = 1; t < pool.threads; t++) join_worker(t);
  pool.quit = 0;
  __atomic_store_n(&pool.threads, 1, __ATOMIC_RELAXED);
}

static void start_workers(int n) {
  int t = 1;
  for (; t < n; t++) {
    pool.slot[t].claim = pool.slot[t].done = pool.seq;
    if (start_worker(t)) break; /* fewer threads than asked for: the same answers */
  }
  pool.pid = mb_getpid();
  __atomic_store_n(&pool.threads, t, __ATOMIC_RELAXED);
}

/* A forked child has the pool's memory but none of its threads, and perhaps an owner that is gone.
 */
static void forget_if_forked(void) {
  if (pool.threads < 2 || pool.pid == mb_getpid()) return;
  pool.threads = 1;
  pool.sleepers = pool.waiting = pool.owner = 0;
}

static void set_workers(int n) {
  if (pool.threads == n) return;
  if (pool.threads > 1) end_workers();
  if (n > 1) start_workers(n);
}

MB_RT void mb_set_threads(int n) {
  n = n < 1 ? 1 : n > MB_MAX_THREADS ? MB_MAX_THREADS : n;
  forget_if_forked();
  while (__atomic_exchange_n(&pool.owner, 1, __ATOMIC_ACQUIRE)) mb_yield();
  set_workers(n);
  __atomic_store_n(&pool.owner, 0, __ATOMIC_RELEASE);
}

MB_RT int mb_threads(void) { return __atomic_load_n(&pool.threads, __ATOMIC_RELAXED); }

MB_RT void mb_stop(void) { mb_set_threads(1); }

#endif
