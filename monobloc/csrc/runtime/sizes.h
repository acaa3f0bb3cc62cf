/* Models that take several sizes: what a run is set to, and what the model is then. */
#ifndef MB_SIZES_H
#define MB_SIZES_H

#include "mb/abi.h"

/* Sets the dimensions of the next runs to those of the files, `path` by input; without files to the
 * largest. Prints its message and returns what to exit with when it goes wrong. */
MB_HIDDEN int mb_set_sizes(const struct mb_model_info *m, const char *const *path);

/* The model with the sizes that are set in place of the largest: itself where none can be set. */
MB_HIDDEN const struct mb_model_info *mb_present(const struct mb_model_info *m);

MB_HIDDEN void mb_put_sizes(const struct mb_model_info *m);

#endif
