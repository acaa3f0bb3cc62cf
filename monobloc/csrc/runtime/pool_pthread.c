/* Threads inside a process that is not ours: a shared library, or an object linked by somebody
 * else's linker. pthread_create and pthread_join stay undefined and are found in the process that
 * loads it. MB_PTHREAD_WEAK, for shared libraries: a process without them runs every layer alone.
 */
#include "pool.h"

typedef unsigned long mb_pthread; /* an integer in glibc, a pointer in musl: one register in both */
#ifdef MB_PTHREAD_WEAK
#define MB_FOREIGN __attribute__((weak, visibility("default")))
#else
#define MB_FOREIGN __attribute__((visibility("default")))
#endif
MB_FOREIGN int pthread_create(mb_pthread *, const void *, void *(*)(void *), void *);
MB_FOREIGN int pthread_join(mb_pthread, void **);

static mb_pthread handle[MB_MAX_THREADS];

static void *worker(void *arg) {
  work((int)(intptr_t)arg);
  return 0;
}

/* The application's signal handlers must not run on our threads. Left open: the faults, so that its
 * crash reports work, and 32 and 33, which libc uses among threads (setuid, cancellation). */
static uint64_t block_signals(void) {
  enum { ILL = 4, TRAP = 5, ABRT = 6, BUS = 7, FPE = 8, SEGV = 11 };
  const uint64_t open = 1ull << (ILL - 1) | 1ull << (TRAP - 1) | 1ull << (ABRT - 1) |
                        1ull << (BUS - 1) | 1ull << (FPE - 1) | 1ull << (SEGV - 1) | 3ull << 31;
  uint64_t mask = ~open, old = 0;
  mb_sys6(SYS_rt_sigprocmask, 0, (long)&mask, (long)&old, 8, 0, 0);
  return old;
}

static int start_worker(int t) {
#ifdef MB_PTHREAD_WEAK
  if (!pthread_create || !pthread_join) return 1;
#endif
  uint64_t old = block_signals();
  int failed = pthread_create(&handle[t], 0, worker, (void *)(intptr_t)t);
  mb_sys6(SYS_rt_sigprocmask, 2, (long)&old, 0, 8, 0, 0);
  return failed;
}

static void join_worker(int t) { pthread_join(handle[t], 0); }

/* dlclose without mb_stop, or the end of the process: workers must not run code that is unmapped.
 * If somebody is inside a run this waits for nobody: exit may have been called from there. */
__attribute__((destructor)) static void at_unload(void) {
  forget_if_forked();
  if (__atomic_exchange_n(&pool.owner, 1, __ATOMIC_ACQUIRE)) return;
  set_workers(1);
  __atomic_store_n(&pool.owner, 0, __ATOMIC_RELEASE);
}

MB_RT void mb_paint_stacks(void) {}
MB_RT uint64_t mb_worker_stack_used(void) { return 0; }
