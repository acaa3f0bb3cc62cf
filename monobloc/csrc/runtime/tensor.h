/* Tensors of a model as a user meets them: .npy files, printed values, random data. */
#ifndef MB_TENSOR_H
#define MB_TENSOR_H

#include "mb/abi.h"

MB_HIDDEN const char *mb_dtype_name(int32_t dtype); /* "f32" */
MB_HIDDEN uint64_t mb_dtype_size(int32_t dtype);
MB_HIDDEN uint64_t mb_element_count(const struct mb_tensor_info *t);
MB_HIDDEN void mb_put_type(int fd, int32_t dtype, int32_t rank, const int64_t *dims);
MB_HIDDEN void mb_put_tensor(const struct mb_tensor_info *t, const void *data);

/* All print their message and return 1 when it goes wrong, or return 0. */
MB_HIDDEN int mb_read_npy(const char *path, const struct mb_tensor_info *t, void *to);
MB_HIDDEN int mb_npy_shape(const char *path, const struct mb_tensor_info *t, int64_t *dims); /* of t's rank */
MB_HIDDEN int mb_write_npy(const char *path, const struct mb_tensor_info *t, const void *data);

/* Floats in [-1, 1), eight-bit integers over their whole range, wider ones and bool 0 or 1: likely
 * indices. SplitMix64, one draw per element. */
MB_HIDDEN void mb_fill_random(const struct mb_tensor_info *t, void *data, uint64_t *state);

#endif
