/* memcpy, memmove, memset and memcmp for images without libc. Compilers make calls of them out of
 * loops and structure copies, also at the end of LTO: keep this file native, never bitcode.
 *
 * The empty asm in each loop hides the pattern, or the loop would become a call of itself.
 */
#include <stddef.h>
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden"), used))
#define KEEP_LOOP() __asm__ volatile("" : : : "memory")

typedef uint64_t u64 __attribute__((aligned(1), may_alias));
typedef uint32_t u32 __attribute__((aligned(1), may_alias));
typedef uint16_t u16 __attribute__((aligned(1), may_alias));
typedef struct {
  uint64_t lo, hi;
} __attribute__((aligned(1), packed, may_alias)) u128;
typedef unsigned char byte;

enum { STRING_OPS = 1024 }; /* from here on x86's rep instructions win */

HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t n);
HIDDEN void *memmove(void *to, const void *from, size_t n);
HIDDEN void *memset(void *to, int value, size_t n);
HIDDEN int memcmp(const void *a, const void *b, size_t n);

/* Up to 32 bytes, overlap allowed: both ends are loaded before anything is stored. */
static inline __attribute__((always_inline)) void move_small(byte *d, const byte *s, size_t n) {
  if (n > 16) {
    u128 a = *(const u128 *)s, b = *(const u128 *)(s + n - 16);
    *(u128 *)d = a, *(u128 *)(d + n - 16) = b;
  } else if (n >= 8) {
    uint64_t a = *(const u64 *)s, b = *(const u64 *)(s + n - 8);
    *(u64 *)d = a, *(u64 *)(d + n - 8) = b;
  } else if (n >= 4) {
    uint32_t a = *(const u32 *)s, b = *(const u32 *)(s + n - 4);
    *(u32 *)d = a, *(u32 *)(d + n - 4) = b;
  } else if (n >= 2) {
    uint16_t a = *(const u16 *)s, b = *(const u16 *)(s + n - 2);
    *(u16 *)d = a, *(u16 *)(d + n - 2) = b;
  } else if (n) {
    *d = *s;
  }
}

/* More than 32 bytes that do not overlap. */
static inline __attribute__((always_inline)) void move_up(byte *d, const byte *s, size_t n) {
  u128 tail = *(const u128 *)(s + n - 16);
  byte *end = d + n - 16;
  for (; d + 32 <= end; d += 32, s += 32) {
    u128 a = *(const u128 *)s, b = *(const u128 *)(s + 16);
    *(u128 *)d = a, *(u128 *)(d + 16) = b;
    KEEP_LOOP();
  }
  for (; d < end; d += 16, s += 16) {
    *(u128 *)d = *(const u128 *)s;
    KEEP_LOOP();
  }
  *(u128 *)end = tail;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
  if (n <= 32) {
    move_small(to, from, n);
    return to;
  }
#if defined(__x86_64__)
  if (n >= STRING_OPS) {
    void *d = to;
    const void *s = from;
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
    return to;
  }
#endif
  move_up(to, from, n);
  return to;
}

void *memmove(void *to, const void *from, size_t n) {
  byte *d = to;
  const byte *s = from;
  if (n <= 32) {
    move_small(d, s, n);
  } else if ((uintptr_t)d - (uintptr_t)s >= n) { /* the target does not begin inside the source */
    if ((uintptr_t)s - (uintptr_t)d >= n) return memcpy(to, from, n);
    for (; n > 32; n -= 16, d += 16, s += 16) { /* the last 32 by the ends, loaded before stored */
      *(u128 *)d = *(const u128 *)s;
      KEEP_LOOP();
    }
    move_small(d, s, n);
  } else {
    for (; n > 32; n -= 16) {
      *(u128 *)(d + n - 16) = *(const u128 *)(s + n - 16);
      KEEP_LOOP();
    }
    move_small(d, s, n);
  }
  return to;
}

void *memset(void *to, int value, size_t n) {
  byte *d = to;
  if (n < 16) {
    for (size_t i = 0; i < n; i++) {
      d[i] = (byte)value;
      KEEP_LOOP();
    }
    return to;
  }
#if defined(__x86_64__)
  if (n >= STRING_OPS) {
    void *p = to;
    __asm__ volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(value) : "memory");
    return to;
  }
#endif
  uint64_t word = 0x0101010101010101u * (byte)value;
  byte *end = d + n - 16;
  for (; d < end; d += 16) {
    *(u128 *)d = (u128){word, word};
    KEEP_LOOP();
  }
  *(u128 *)end = (u128){word, word};
  return to;
}

int memcmp(const void *a, const void *b, size_t n) {
  const byte *x = a, *y = b;
  for (; n >= 8 && *(const u64 *)x == *(const u64 *)y; n -= 8, x += 8, y += 8) KEEP_LOOP();
  for (; n; n--, x++, y++) {
    if (*x != *y) return *x - *y;
    KEEP_LOOP();
  }
  return 0;
}
