/* The first instructions of a static executable without libc: relocates itself (static-pie), makes
 * the relocated constants read-only, calls mb_main, exits with its result.
 *
 * Nothing in here may need a relocation before `relocate` has run: code addresses everything
 * relative to itself, and hidden symbols keep it so.
 */
#include "mb/abi.h"
#include "sys.h"

struct header { /* ELF64 file header, up to what we need */
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
struct rela {
  uint64_t offset, info;
  int64_t addend;
};
enum { PT_GNU_RELRO = 0x6474e552, AT_PAGESZ = 6 };
enum { DT_RELA = 7, DT_RELASZ = 8, DT_RELRSZ = 35, DT_RELR = 36, DT_KNOWN = 37 };
#if defined(__x86_64__)
enum { R_RELATIVE = 8 };
#else
enum { R_RELATIVE = 1027 };
#endif

extern const struct header __ehdr_start
    MB_HIDDEN; /* lld and GNU ld define it: where we are loaded */
MB_HIDDEN int mb_main(int argc, char **argv, char **envp);
MB_HIDDEN const unsigned long *mb_auxv;
MB_HIDDEN __attribute__((noreturn, used)) void mb_start(long *sp, const int64_t *dynamic);

#if defined(__x86_64__)
__asm__(
    ".text\n.globl _start\n.hidden _start\n.type _start, @function\n_start:\n\t"
    ".weak _DYNAMIC\n\t.hidden _DYNAMIC\n\t"
    "xor %ebp, %ebp\n\t"
    "mov %rsp, %rdi\n\t"
    "lea _DYNAMIC(%rip), %rsi\n\t"
    "and $-16, %rsp\n\t"
    "call mb_start\n\t"
    "hlt\n\t"
    ".size _start, . - _start\n");
#else
__asm__(
    ".text\n.globl _start\n.hidden _start\n.type _start, %function\n_start:\n\t"
    ".weak _DYNAMIC\n\t.hidden _DYNAMIC\n\t"
    "mov x29, xzr\n\t"
    "mov x30, xzr\n\t"
    "mov x0, sp\n\t"
    "adrp x1, _DYNAMIC\n\t"
    "add x1, x1, :lo12:_DYNAMIC\n\t"
    "and sp, x0, #0xfffffffffffffff0\n\t"
    "b mb_start\n\t"
    ".size _start, . - _start\n");
#endif

/* RELR: an even word is an address, an odd one a bitmap of the 63 words behind the last address. */
static void relocate_packed(uintptr_t base, const uint64_t *entry, uint64_t bytes) {
  uintptr_t *at = 0;
  for (const uint64_t *end = entry + bytes / 8; entry < end; entry++) {
    if (!(*entry & 1)) {
      at = (uintptr_t *)(base + *entry);
      *at++ += base;
      continue;
    }
    uint64_t bits = *entry >> 1;
    for (int i = 0; bits; i++, bits >>= 1)
      if (bits & 1) at[i] += base;
    at += 63;
  }
}

static void relocate(uintptr_t base, const int64_t *dynamic) {
  uint64_t have[DT_KNOWN] = {0};
  for (; dynamic[0]; dynamic += 2)
    if ((uint64_t)dynamic[0] < DT_KNOWN) have[dynamic[0]] = (uint64_t)dynamic[1];
  const struct rela *r = (const struct rela *)(base + have[DT_RELA]);
  for (uint64_t i = 0; i < have[DT_RELASZ] / sizeof *r; i++)
    if ((uint32_t)r[i].info == R_RELATIVE)
      *(uintptr_t *)(base + r[i].offset) = base + (uintptr_t)r[i].addend;
  relocate_packed(base, (const uint64_t *)(base + have[DT_RELR]), have[DT_RELRSZ]);
}

static void protect(uintptr_t base, uintptr_t page) {
  const struct header *h = (const struct header *)base;
  const struct segment *s = (const struct segment *)(base + h->phoff);
  for (int i = 0; i < h->phnum; i++) {
    if (s[i].type != PT_GNU_RELRO) continue;
    uintptr_t from = (base + s[i].vaddr) & -page, to = (base + s[i].vaddr + s[i].memsz) & -page;
    if (to > from) mb_sys3(SYS_mprotect, (long)from, (long)(to - from), 1); /* PROT_READ */
  }
}

static const unsigned long *auxiliary(char **envp) {
  while (*envp) envp++;
  return (const unsigned long *)(envp + 1);
}

static uintptr_t page_size(const unsigned long *auxv) {
  for (; auxv[0]; auxv += 2)
    if (auxv[0] == AT_PAGESZ) return auxv[1];
  return 4096;
}

MB_HIDDEN __attribute__((noreturn, used)) void mb_start(long *sp, const int64_t *dynamic) {
  int argc = (int)sp[0];
  char **argv = (char **)(sp + 1), **envp = argv + argc + 1;
  const unsigned long *auxv = auxiliary(envp);
  uintptr_t base = (uintptr_t)&__ehdr_start;
  enum { ET_DYN = 3 };
  if (__ehdr_start.type == ET_DYN) {
    relocate(base, dynamic);
    __asm__ volatile("" : : : "memory");
  }
  protect(base, page_size(auxv));
  mb_auxv = auxv;
  int status = mb_main(argc, argv, envp);
  for (;;) mb_sys3(SYS_exit_group, status, 0, 0);
}
