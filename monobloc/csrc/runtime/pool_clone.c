/* Threads of an executable of our own, without libc: raw clone on static stacks. Never used inside
 * a foreign process, whose libc would not know of these threads.
 */
#include "pool.h"

#ifndef MB_STACK_BYTES
#define MB_STACK_BYTES (256 * 1024)
#endif
enum { GUARD = 4096, PAINT = 0xa5 };

#if MB_MAX_THREADS > 1
static _Alignas(GUARD) unsigned char stacks[MB_MAX_THREADS - 1][MB_STACK_BYTES];
#else
static _Alignas(GUARD) unsigned char stacks[1][GUARD * 2];
#endif
static uint32_t thread_id[MB_MAX_THREADS]; /* the kernel clears it when the thread has ended */
static int painted;

static int worker(void *arg) {
  work((int)(intptr_t)arg);
  return 0;
}

/* The child starts on the new stack, finds function and argument there, and never returns. */
static long clone_thread(unsigned char *top, uint32_t *tid, int (*fn)(void *), void *arg) {
  /* VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, PARENT_SETTID, CHILD_CLEARTID */
  const long flags = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000 | 0x100000 | 0x200000;
  void **sp = (void **)top - 2;
  sp[0] = (void *)fn;
  sp[1] = arg;
#if defined(__x86_64__)
  long ret;
  register uint32_t *r10 __asm__("r10") = tid;
  register long r8 __asm__("r8") = 0;
  __asm__ volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "pop %%rax\n\t"
      "pop %%rdi\n\t"
      "call *%%rax\n\t"
      "mov %%eax, %%edi\n\t"
      "mov $60, %%eax\n\t"
      "syscall\n"
      "1:"
      : "=a"(ret)
      : "a"((long)SYS_clone), "D"(flags), "S"(sp), "d"(tid), "r"(r10), "r"(r8)
      : "rcx", "r11", "memory");
  return ret;
#else
  register long x8 __asm__("x8") = SYS_clone;
  register long x0 __asm__("x0") = flags;
  register void *x1 __asm__("x1") = sp;
  register uint32_t *x2 __asm__("x2") = tid;
  register long x3 __asm__("x3") = 0;
  register uint32_t *x4 __asm__("x4") = tid;
  __asm__ volatile(
      "svc 0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "mov x30, xzr\n\t"
      "ldp x1, x0, [sp], #16\n\t"
      "blr x1\n\t"
      "mov x8, #93\n\t"
      "svc 0\n"
      "1:"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
      : "memory", "x30");
  return x0;
#endif
}

static int start_worker(int t) {
  unsigned char *stack = stacks[t - 1];
  if (painted)
    for (volatile unsigned char *p = stack + GUARD; p < stack + MB_STACK_BYTES; p++) *p = PAINT;
  mb_sys3(SYS_mprotect, (long)stack, GUARD,
          0); /* a page of 64 KB refuses: then there is no guard */
  thread_id[t] = 1;
  return clone_thread(stack + MB_STACK_BYTES, &thread_id[t], worker, (void *)(intptr_t)t) < 0;
}

static void join_worker(int t) {
  uint32_t id;
  while ((id = MB_LOAD(&thread_id[t])) != 0) /* the kernel's wake is not a private one */
    mb_sys6(SYS_futex, (long)&thread_id[t], 0, (long)id, 0, 0, 0);
}

MB_RT void mb_paint_stacks(void) { painted = pool.patient = 1; }

MB_RT uint64_t mb_worker_stack_used(void) {
  uint64_t most = 0;
  for (int t = 1; t < mb_threads(); t++) {
    uint64_t at = GUARD;
    while (at < MB_STACK_BYTES && ((volatile unsigned char *)stacks[t - 1])[at] == PAINT) at++;
    if (MB_STACK_BYTES - at > most) most = MB_STACK_BYTES - at;
  }
  return painted ? most : 0;
}

/* Objects that are linked with their own code bring pool_pthread.c along. All that stays of it here
 * is its clean-up, which finds no thread to join. */
__attribute__((weak)) MB_HIDDEN int pthread_create(void *, const void *, void *(*)(void *), void *);
__attribute__((weak)) MB_HIDDEN int pthread_join(unsigned long, void **);
int pthread_create(void *t, const void *a, void *(*f)(void *), void *x) {
  (void)t, (void)a, (void)f, (void)x;
  return 1;
}
int pthread_join(unsigned long t, void **result) {
  (void)t, (void)result;
  return 1;
}
