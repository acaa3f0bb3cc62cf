/* What the executable can say about its own runs: time, stack, and no page fault left for the
 * first. */
#ifndef MB_MEASURE_H
#define MB_MEASURE_H

#include "mb/abi.h"

struct mb_times { /* in nanoseconds */
  uint64_t first, min, median, p99;
};

/* Runs n times from the same state; the status of the first run that failed. With `times` every run
 * is timed: the room for that is mapped before the first. */
MB_HIDDEN int mb_run_many(const struct mb_model_info *m, uint64_t n, struct mb_times *times);

/* One run on a painted stack; the most bytes of stack it used. */
MB_HIDDEN int mb_run_painted(const struct mb_model_info *m, uint64_t *used);

/* Reads every line of code, weights and constants, and touches the arena and the stack. */
MB_HIDDEN void mb_touch_everything(const struct mb_model_info *m);
/* Has the system give the arena its memory at once. */
MB_HIDDEN void mb_populate(const struct mb_model_info *m);

#endif
