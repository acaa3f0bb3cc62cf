/* What generated code asks of the machine below it. Link-time functions, not a table of pointers:
 * the linker picks the implementation and LTO inlines it. An image for one thread calls its layers
 * directly and references nothing of this.
 */
#ifndef MB_HAL_H
#define MB_HAL_H

#include "mb/abi.h"

/* The memory of one run: where each bank of the plan begins. Bank 0 holds inputs, outputs and state,
 * bank 1 what lives within a run; further ones are memory regions of the target. */
typedef char *const *mb_mem;

/* A layer does part `tid` of `nt` of its work and returns a status. How work is parted never
 * changes a result. */
typedef int (*mb_layer)(mb_mem mem, int tid, int nt);

/* Runs all parts of a layer and waits for them. The status of the lowest part that failed, or
 * MB_OK. Any thread may call it: one caller at a time gets the workers, others run their layer
 * alone, and so does a process after fork. A layer whose scratch is planned for fewer threads than
 * the pool may have says so with `most`. */
MB_RT int mb_parallel_upto(mb_layer fn, mb_mem mem, int most);
static inline int mb_parallel_for(mb_layer fn, mb_mem mem) {
  return mb_parallel_upto(fn, mem, INT32_MAX);
}

/* n is cut to 1..MB_MAX_THREADS, the calling thread included. Starts and ends workers. */
MB_RT void mb_set_threads(int n);
MB_RT int mb_threads(void);

/* Ends and joins the workers; the next mb_parallel_for runs alone until mb_set_threads. */
MB_RT void mb_stop(void);

/* Largest stack any worker used since it started, when painting was asked for before they started;
 * 0 where the stacks are not ours. */
MB_RT void mb_paint_stacks(void);
MB_RT uint64_t mb_worker_stack_used(void);

#endif
