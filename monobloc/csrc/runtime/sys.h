/* System calls of Linux without libc, and the CPU's own clock. Works inside any process: nothing
 * here has state. Results are the kernel's: negative is -errno.
 */
#ifndef MB_SYS_H
#define MB_SYS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
enum {
  SYS_read = 0,
  SYS_write = 1,
  SYS_close = 3,
  SYS_mmap = 9,
  SYS_mprotect = 10,
  SYS_rt_sigprocmask = 14,
  SYS_sched_yield = 24,
  SYS_madvise = 28,
  SYS_getpid = 39,
  SYS_clone = 56,
  SYS_exit = 60,
  SYS_arch_prctl = 158,
  SYS_futex = 202,
  SYS_clock_gettime = 228,
  SYS_exit_group = 231,
  SYS_openat = 257,
  SYS_unlinkat = 263,
  SYS_renameat = 264,
};
static inline long mb_sys6(long n, long a, long b, long c, long d, long e, long f) {
  long ret;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(ret)
                   : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return ret;
}
static inline void mb_relax(void) { __asm__ volatile("pause"); }
static inline uint64_t mb_ticks(void) {
  uint32_t lo, hi;
  __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
  return (uint64_t)hi << 32 | lo;
}
/* About 30 us: the time-stamp counter of every CPU in use runs at 1.5 to 4 GHz. */
static inline uint64_t mb_spin_ticks(void) { return 80000; }
enum { MB_O_DIRECTORY = 0200000 };

#elif defined(__aarch64__)
enum {
  SYS_unlinkat = 35,
  SYS_renameat = 38,
  SYS_openat = 56,
  SYS_close = 57,
  SYS_read = 63,
  SYS_write = 64,
  SYS_exit = 93,
  SYS_exit_group = 94,
  SYS_futex = 98,
  SYS_clock_gettime = 113,
  SYS_sched_yield = 124,
  SYS_rt_sigprocmask = 135,
  SYS_getpid = 172,
  SYS_clone = 220,
  SYS_mmap = 222,
  SYS_mprotect = 226,
  SYS_madvise = 233,
};
static inline long mb_sys6(long n, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = n;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
}
static inline void mb_relax(void) { __asm__ volatile("yield"); }
static inline uint64_t mb_ticks(void) {
  uint64_t v;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(v) : : "memory");
  return v;
}
static inline uint64_t mb_spin_ticks(void) {
  uint64_t hz;
  __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
  return hz / 33333;
}
enum { MB_O_DIRECTORY = 040000 };
#else
#error "no system calls known for this machine"
#endif

static inline long mb_sys3(long n, long a, long b, long c) { return mb_sys6(n, a, b, c, 0, 0, 0); }

enum {
  MB_AT_FDCWD = -100,
  MB_O_RDONLY = 0,
  MB_O_WRONLY = 1,
  MB_O_CREAT = 0100,
  MB_O_TRUNC = 01000,
  MB_O_CLOEXEC = 02000000
};
enum { MB_EINTR = 4, MB_ENOENT = 2 };

static inline long mb_open(const char *path, int flags, int mode) {
  return mb_sys6(SYS_openat, MB_AT_FDCWD, (long)path, flags | MB_O_CLOEXEC, mode, 0, 0);
}
static inline long mb_close(int fd) { return mb_sys3(SYS_close, fd, 0, 0); }
static inline long mb_getpid(void) { return mb_sys3(SYS_getpid, 0, 0, 0); }
static inline long mb_yield(void) { return mb_sys3(SYS_sched_yield, 0, 0, 0); }

static inline uint64_t mb_now_ns(void) {
  struct {
    int64_t s, ns;
  } t;
  mb_sys3(SYS_clock_gettime, 1, (long)&t, 0); /* CLOCK_MONOTONIC */
  return (uint64_t)t.s * 1000000000u + (uint64_t)t.ns;
}

/* Private futexes: waiters and wakers share one address space. */
static inline void mb_futex_wait(uint32_t *at, uint32_t value) {
  mb_sys6(SYS_futex, (long)at, 0 | 128, (long)value, 0, 0, 0);
}
static inline void mb_futex_wake(uint32_t *at, int count) {
  mb_sys6(SYS_futex, (long)at, 1 | 128, count, 0, 0, 0);
}

#endif
