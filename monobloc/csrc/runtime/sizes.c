#include "sizes.h"

#include "tensor.h"
#include "text.h"

enum { MAX_PORTS = 512, MAX_SIZES = 4096, MAX_RANK = 32 };

static int refused(const struct mb_model_info *m, int dim, int64_t n) {
  const struct mb_dim *d = &m->dynamic->dims[dim];
  mb_error_about(m->name);
  mb_put_text(MB_STDERR, "dimension '");
  mb_put_text(MB_STDERR, d->name);
  mb_put_text(MB_STDERR, "' is ");
  mb_put_int(MB_STDERR, n);
  mb_put_text(MB_STDERR, " in the input, which is none of its sizes");
  return mb_error_end();
}

static int take(const struct mb_model_info *m, int input, const int64_t *dims) {
  for (int a = 0; a < m->inputs[input].rank; a++) {
    const int32_t dim = m->dynamic->axes[input][a];
    if (dim >= 0 && m->dynamic->set(m->ram(), dim, dims[a])) return refused(m, dim, dims[a]);
  }
  return 0;
}

int mb_set_sizes(const struct mb_model_info *m, const char *const *path) {
  int64_t dims[MAX_RANK];
  for (int k = 0; k < m->dynamic->n_dims; k++) m->dynamic->set(m->ram(), k, m->dynamic->dims[k].most);
  for (int i = 0; path && i < m->n_inputs; i++) {
    if (m->inputs[i].rank > MAX_RANK) continue;
    if (mb_npy_shape(path[i], &m->inputs[i], dims)) return 1;
    const int code = take(m, i, dims);
    if (code) return code;
  }
  return 0;
}

const struct mb_model_info *mb_present(const struct mb_model_info *m) {
  static struct mb_tensor_info ports[MAX_PORTS];
  static int64_t sizes[MAX_SIZES];
  static struct mb_model_info now;
  int n = m->n_inputs + m->n_outputs, total = 0;
  if (!m->dynamic || n > MAX_PORTS) return m;
  for (int i = 0; i < n; i++) {
    ports[i] = i < m->n_inputs ? m->inputs[i] : m->outputs[i - m->n_inputs];
    ports[i].dims = sizes + total;
    total += ports[i].rank;
  }
  if (total > MAX_SIZES || m->dynamic->shapes(m->ram(), sizes)) return m;
  for (int i = 0; i < n; i++) ports[i].bytes = mb_element_count(&ports[i]) * mb_dtype_size(ports[i].dtype);
  now = *m;
  now.inputs = ports;
  now.outputs = ports + m->n_inputs;
  return &now;
}

void mb_put_sizes(const struct mb_model_info *m) {
  for (int k = 0; m->dynamic && k < m->dynamic->n_dims; k++) {
    const struct mb_dim *d = &m->dynamic->dims[k];
    mb_put_text(MB_STDOUT, "  sizes ");
    for (int i = 0; i < d->n_sizes; i++) {
      if (i) mb_put_char(MB_STDOUT, ',');
      mb_put_int(MB_STDOUT, d->sizes[i]);
    }
    if (!d->n_sizes) {
      mb_put_int(MB_STDOUT, d->least);
      mb_put_text(MB_STDOUT, "..");
      mb_put_int(MB_STDOUT, d->most);
    }
    mb_put_char(MB_STDOUT, ' ');
    mb_put_text(MB_STDOUT, d->name);
    mb_put_char(MB_STDOUT, '\n');
  }
  for (int i = 0; m->dynamic && i < m->n_inputs; i++) {
    mb_put_text(MB_STDOUT, "  axes ");
    for (int a = 0; a < m->inputs[i].rank; a++) {
      if (a) mb_put_char(MB_STDOUT, ',');
      mb_put_int(MB_STDOUT, m->dynamic->axes[i][a]);
    }
    mb_put_char(MB_STDOUT, ' ');
    mb_put_text(MB_STDOUT, m->inputs[i].name);
    mb_put_char(MB_STDOUT, '\n');
  }
}
