/* How a compiled model describes itself to whoever runs it: the executable's own `main`, the Python
 * loader, a server. Stand-alone: needs only the compiler's stdint.h and stddef.h, C11 or C++11.
 *
 * Every executable and every shared library exports `monobloc_model(i)`: the i-th model, or NULL
 * behind the last. Readers check `abi` for equality of MB_ABI and read no further than `size`:
 * fields are only ever appended.
 */
#ifndef MB_ABI_H
#define MB_ABI_H

#include <stddef.h>
#include <stdint.h>

#define MB_ABI 1u

#define MB_HIDDEN __attribute__((visibility("hidden")))
#define MB_EXPORT __attribute__((visibility("default")))

/* Functions of the runtime. Objects for somebody else's linker may each bring the runtime along:
 * they define MB_RT_WEAK, and the linker keeps one copy. */
#ifdef MB_RT_WEAK
#define MB_RT __attribute__((visibility("hidden"), weak))
#else
#define MB_RT MB_HIDDEN
#endif

#ifdef __cplusplus
extern "C" {
#define MB_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define MB_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

enum mb_status {
  MB_OK = 0,
  MB_E_INDEX = 1, /* an index outside of its tensor */
  MB_E_SHAPE = 2, /* a size outside of what the model was compiled for */
  MB_E_CPU = 3,   /* this CPU lacks what the image was built for */
  MB_E_BUSY = 4,  /* another call runs in the same arena */
  MB_E_FOREIGN = 256, /* plus the code that a foreign kernel returned; its negative codes stay as they are */
};

/* The numbers of ONNX's TensorProto.DataType. From 17 on an element is a byte whose low bits are its code. */
enum mb_dtype {
  MB_F32 = 1,
  MB_U8 = 2,
  MB_I8 = 3,
  MB_U16 = 4,
  MB_I16 = 5,
  MB_I32 = 6,
  MB_I64 = 7,
  MB_STRING = 8, /* the last dimension is the room for each, in bytes; zeros fill it up */
  MB_BOOL = 9,
  MB_F16 = 10,
  MB_F64 = 11,
  MB_U32 = 12,
  MB_U64 = 13,
  MB_BF16 = 16,
  MB_F8E4M3FN = 17,
  MB_F8E4M3FNUZ = 18,
  MB_F8E5M2 = 19,
  MB_F8E5M2FNUZ = 20,
  MB_U4 = 21,
  MB_I4 = 22,
  MB_F4E2M1 = 23,
  MB_F8E8M0 = 24,
  MB_U2 = 25,
  MB_I2 = 26,
};

/* An input or output. `bytes` is the room in the arena: for outputs whose size depends on data it
 * is the largest, and `dims` then holds the sizes of the last run. */
struct mb_tensor_info {
  const char *name;
  int32_t dtype;
  int32_t rank;
  const int64_t *dims;
  uint64_t bytes;
  void *(*at)(void *ram); /* where it lies in this arena */
};

/* A piece of the image's own memory. */
struct mb_bank {
  const char *name;
  char *at;
  uint64_t bytes;
};

/* A dimension that a run chooses: one of `sizes`, or, if there are none, any from least to most. */
struct mb_dim {
  const char *name;
  int64_t least, most;
  int32_t n_sizes;
  const int64_t *sizes;
};

/* Of a model that takes several sizes. The `dims` of its tensors are the largest; `set` says what the
 * next runs in this ram take (MB_E_SHAPE: not that), and tensors are dense in those sizes. */
struct mb_dynamic {
  int32_t n_dims;
  const struct mb_dim *dims;
  const int32_t *const *axes; /* for each input and axis, the dimension that it is, or -1 */
  int (*set)(void *ram, int32_t dim, int64_t n);
  int (*shapes)(void *ram, int64_t *out); /* sizes of all inputs, then of all outputs, one after another */
};

/* `run`, `reset` and `ram` use the image's own arena; the `_at` forms any other of `ram_size`
 * bytes, aligned to MB_RAM_ALIGN, after one `reset_at`. The own arena is in `banks`, the first of
 * which holds inputs and outputs and begins at `ram()`; models may share the others. `reset`, `set_threads` and `stop` may be
 * NULL where there is nothing to do. */
struct mb_model_info {
  uint32_t abi;
  uint32_t size; /* sizeof(struct mb_model_info) of the image */
  const char *name;
  int32_t n_inputs;
  int32_t n_outputs;
  const struct mb_tensor_info *inputs;
  const struct mb_tensor_info *outputs;
  uint64_t ram_size;
  uint64_t weights_bytes;
  uint64_t stack_bound; /* of run, in bytes; 0: unknown */
  int (*run)(void);
  int (*run_at)(void *ram);
  void (*reset)(void);
  void (*reset_at)(void *ram);
  void *(*ram)(void);
  void (*set_threads)(int n);
  void (*stop)(void);
  const char *(*strerror)(int status);
  const char *target;
  const char *features; /* required of the CPU, LLVM's names separated by commas */
  int32_t max_threads;
  int32_t n_banks;
  const struct mb_bank *banks;
  const struct mb_dynamic *dynamic; /* NULL: every size is fixed */
};

#define MB_RAM_ALIGN 64

#if UINTPTR_MAX == UINT64_MAX
MB_STATIC_ASSERT(sizeof(struct mb_tensor_info) == 40, "mb_tensor_info is part of the ABI");
MB_STATIC_ASSERT(sizeof(struct mb_model_info) == 168, "mb_model_info is part of the ABI");
#endif

MB_EXPORT const struct mb_model_info *monobloc_model(int i);

#ifdef __cplusplus
}
#endif
#endif
