/* Time is read from the CPU's counter, which costs nothing beside a short run, and turned into
 * nanoseconds by comparing it with the system's clock over all runs together.
 */
#include "measure.h"
#include "sys.h"
#include "text.h"

enum { PAINT = 0xa5, SURE_NS = 10000000 };

static uint64_t *room_for(uint64_t n) {
  enum { READ_WRITE = 3, PRIVATE = 2, ANONYMOUS = 32, POPULATE = 32768 };
  if (n > (uint64_t)1 << 32) return 0;
  long at = mb_sys6(SYS_mmap, 0, (long)(n * 8), READ_WRITE, PRIVATE | ANONYMOUS | POPULATE, -1, 0);
  return at < 0 && at > -4096 ? 0 : (uint64_t *)at;
}

static void sift(uint64_t *v, uint64_t i, uint64_t n) {
  for (uint64_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && v[child + 1] > v[child]) child++;
    if (v[i] >= v[child]) return;
    uint64_t t = v[i];
    v[i] = v[child], v[child] = t;
  }
}

static void sort(uint64_t *v, uint64_t n) { /* heap sort: in place, no bad case */
  for (uint64_t i = n / 2; i-- > 0;) sift(v, i, n);
  while (n > 1) {
    uint64_t t = v[--n];
    v[n] = v[0], v[0] = t;
    sift(v, 0, n);
  }
}

static int run_all(const struct mb_model_info *m, uint64_t n, uint64_t *ticks) {
  int status = MB_OK;
  for (uint64_t i = 0; i < n && !status; i++) {
    if (i && m->reset) m->reset();
    uint64_t start = ticks ? mb_ticks() : 0;
    status = m->run();
    if (ticks) ticks[i] = mb_ticks() - start;
  }
  return status;
}

int mb_run_many(const struct mb_model_info *m, uint64_t n, struct mb_times *times) {
  uint64_t *v = times ? room_for(n) : 0;
  if (times && !v) {
    mb_error_about("--repeat");
    mb_put_text(MB_STDERR, "no memory for that many times");
    return -mb_error_end();
  }
  if (!times) return run_all(m, n, 0);
  uint64_t ns = mb_now_ns(), ticks = mb_ticks();
  int status = run_all(m, n, v);
  while (mb_now_ns() - ns < SURE_NS) mb_relax();
  double scale = (double)(mb_now_ns() - ns) / (double)(mb_ticks() - ticks);
  times->first = (uint64_t)((double)v[0] * scale);
  sort(v, n);
  times->min = (uint64_t)((double)v[0] * scale);
  times->median = (uint64_t)((double)v[n / 2] * scale);
  times->p99 = (uint64_t)((double)v[(n - 1) * 99 / 100] * scale);
  return status;
}

/* alloca moves the stack pointer, so that the system grows the stack as for any deep call. */
__attribute__((noinline)) static uintptr_t paint(uint64_t depth) {
  volatile unsigned char *low = __builtin_alloca(depth);
  for (uint64_t i = 0; i < depth; i++) low[i] = PAINT;
  return (uintptr_t)low;
}

static uintptr_t stack_pointer(void) {
  uintptr_t sp;
#if defined(__x86_64__)
  __asm__ volatile("mov %%rsp, %0" : "=r"(sp));
#else
  __asm__ volatile("mov %0, sp" : "=r"(sp));
#endif
  return sp;
}

static uint64_t depth_for(const struct mb_model_info *m) {
  const uint64_t least = 256 << 10, most = 4 << 20;
  uint64_t depth = m->stack_bound ? m->stack_bound * 2 : 1 << 20;
  return depth < least ? least : depth > most ? most : depth;
}

__attribute__((noinline)) int mb_run_painted(const struct mb_model_info *m, uint64_t *used) {
  uintptr_t low = paint(depth_for(m)), sp = stack_pointer();
  int status = m->run();
  while (low < sp && *(volatile unsigned char *)low == PAINT) low++;
  *used = sp - low;
  return status;
}

struct header {
  unsigned char ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, phoff, shoff;
  uint32_t flags;
  uint16_t ehsize, phentsize, phnum;
};
struct segment {
  uint32_t type, flags;
  uint64_t offset, vaddr, paddr, filesz, memsz, align;
};
extern const struct header __ehdr_start MB_HIDDEN;

/* A first run writes all of the arena anyway: one call is cheaper than a fault for every page. An
 * old kernel refuses, and nothing is lost. */
void mb_populate(const struct mb_model_info *m) {
  enum { PAGE = 4096, MADV_HUGEPAGE = 14, MADV_POPULATE_WRITE = 23 };
  for (int i = 0; i < m->n_banks; i++) {
    const uintptr_t at = (uintptr_t)m->banks[i].at, from = at & -(uintptr_t)PAGE;
    const uint64_t size = at + m->banks[i].bytes - from;
    mb_sys3(SYS_madvise, (long)from, (long)size, MADV_HUGEPAGE);
    mb_sys3(SYS_madvise, (long)from, (long)size, MADV_POPULATE_WRITE);
  }
}

void mb_touch_everything(const struct mb_model_info *m) {
  enum { PT_LOAD = 1, LINE = 64, PAGE = 4096, ET_DYN = 3 };
  uintptr_t base = (uintptr_t)&__ehdr_start;
  const struct segment *s = (const struct segment *)(base + __ehdr_start.phoff);
  for (int i = 0; i < __ehdr_start.phnum; i++) {
    if (s[i].type != PT_LOAD) continue;
    /* Only what the file holds: behind it lie the guard pages of the workers' stacks. */
    const volatile unsigned char *p =
        (const volatile unsigned char *)((__ehdr_start.type == ET_DYN ? base : 0) + s[i].vaddr);
    for (uint64_t at = 0; at < s[i].filesz; at += LINE) (void)p[at];
  }
  for (int i = 0; i < m->n_banks; i++) {
    volatile char *bank = m->banks[i].at;
    for (uint64_t at = 0; at < m->banks[i].bytes; at += PAGE) bank[at] = bank[at];
  }
  paint(m->stack_bound < (2u << 20) ? m->stack_bound + PAGE : 2u << 20);
}
