/* The floating-point state of a run: part of the numeric contract, so it is set at entry and given
 * back at exit, whatever the application had chosen. Denormals cost 250 times a normal FMA; the
 * default mode flushes them, the strict mode does not.
 */
#ifndef MB_FP_H
#define MB_FP_H

#include <stdint.h>

#if defined(__x86_64__)
/* MXCSR: exceptions masked, round to nearest even; FTZ is bit 15, DAZ bit 6. Bits 0-5 are sticky
 * flags, no mode. */
#define MB_FP_STRICT 0x1f80u
#define MB_FP_FLUSH 0x9fc0u
static inline uint64_t mb_fp_get(void) {
  uint32_t v;
  __asm__ volatile("stmxcsr %0" : "=m"(v));
  return v & ~0x3fu;
}
static inline void mb_fp_set(uint64_t mode) {
  uint32_t v = (uint32_t)mode;
  __asm__ volatile("ldmxcsr %0" : : "m"(v) : "memory");
}
#elif defined(__aarch64__)
/* FPCR: FZ is bit 24, rounding mode bits 22-23 (0: nearest even), trap enables 8-15. */
#define MB_FP_STRICT 0u
#define MB_FP_FLUSH (1u << 24)
static inline uint64_t mb_fp_get(void) {
  uint64_t v;
  __asm__ volatile("mrs %0, fpcr" : "=r"(v));
  return v;
}
static inline void mb_fp_set(uint64_t mode) {
  __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
#else
#define MB_FP_STRICT 0u
#define MB_FP_FLUSH 0u
static inline uint64_t mb_fp_get(void) { return 0; }
static inline void mb_fp_set(uint64_t mode) { (void)mode; }
#endif

static inline uint64_t mb_fp_enter_mode(uint64_t mode) {
  uint64_t saved = mb_fp_get();
  if (saved != mode) mb_fp_set(mode);
  return saved;
}
static inline uint64_t mb_fp_enter(void) { return mb_fp_enter_mode(MB_FP_FLUSH); }
static inline uint64_t mb_fp_enter_strict(void) { return mb_fp_enter_mode(MB_FP_STRICT); }
static inline void mb_fp_leave(uint64_t saved) {
  if (mb_fp_get() != saved) mb_fp_set(saved);
}

#endif
