/* The program an executable made from models alone consists of, beside the models. It reads inputs
 * from .npy files into the arena, runs, and prints or writes outputs. After it has started, runs
 * make no system call beyond waiting for workers. Exit: 1 the user's error, 2 wrong usage.
 */
#include "mb/cpu.h"
#include "mb/hal.h"
#include "measure.h"
#include "sizes.h"
#include "tensor.h"
#include "text.h"

enum { MAX_ARGS = 256, MAX_PATH = 4096, USAGE = 2 };

/* There only if the image has a pool. */
extern __typeof__(mb_paint_stacks) mb_paint_stacks __attribute__((weak));
extern __typeof__(mb_worker_stack_used) mb_worker_stack_used __attribute__((weak));

struct options {
  const char *model;
  const char *in[MAX_ARGS];
  const char *out[MAX_ARGS];
  int n_in, n_out;
  uint64_t repeat, threads, seed;
  int time, info, pretouch, stack, help, seeded;
};

static const char usage_text[] =
    "usage: PROGRAM [INPUT.npy | NAME=INPUT.npy]... [-o OUT.npy | -o NAME=OUT.npy | -o "
    "FOLDER/]...\n"
    "\n"
    "Inputs come in the model's order or by name; - reads standard input. Without any, random "
    "data.\n"
    "Outputs: a file, NAME=file, a folder with a / at its end, or a pattern with {} for the name;\n"
    "without -o they are printed.\n"
    "\n"
    "  --model NAME   which model, where the image holds several\n"
    "  --info         describe the models and stop\n"
    "  --repeat N     run N times from the same state\n"
    "  --time         print first, min, median and p99 time in microseconds\n"
    "  --threads N    use N threads (default: as many as the image was built for)\n"
    "  --pretouch     touch code, weights and arena before the first run\n"
    "  --seed S       seed of the random inputs (default 0)\n"
    "  --stack        print the most stack a run used\n";

static int misuse(const char *what, const char *text) {
  mb_error_about(what);
  mb_put_text(MB_STDERR, text);
  mb_put_text(MB_STDERR, "\n  hint: --help shows the usage");
  mb_error_end();
  return USAGE;
}

struct number_flag {
  const char *flag;
  uint64_t *value, least;
};

static int take_number(const struct number_flag *f, const char *text) {
  if (!text) return misuse(f->flag, "a number must follow");
  if (!mb_parse_uint(text, f->value) || *f->value < f->least)
    return misuse(f->flag, "not a usable number");
  return 0;
}

static int take_switch(struct options *o, const char *a) {
  const struct {
    const char *flag;
    int *on;
  } switches[] = {{"--time", &o->time},   {"--info", &o->info}, {"--pretouch", &o->pretouch},
                  {"--stack", &o->stack}, {"--help", &o->help}, {"-h", &o->help}};
  for (unsigned i = 0; i < sizeof switches / sizeof *switches; i++)
    if (mb_same_text(a, switches[i].flag)) return *switches[i].on = 1;
  return 0;
}

static int parse(int argc, char **argv, struct options *o) {
  const struct number_flag numbers[] = {
      {"--repeat", &o->repeat, 1}, {"--threads", &o->threads, 1}, {"--seed", &o->seed, 0}};
  const unsigned n_numbers = sizeof numbers / sizeof *numbers;
  if (argc > MAX_ARGS) return misuse("arguments", "more than 255");
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : 0;
    unsigned k = 0;
    while (k < n_numbers && !mb_same_text(a, numbers[k].flag)) k++;
    if (take_switch(o, a)) continue;
    if (k < n_numbers) {
      if (take_number(&numbers[k], next)) return USAGE;
      o->seeded |= numbers[k].value == &o->seed;
      i++;
    } else if (mb_same_text(a, "-o") || mb_same_text(a, "--model")) {
      if (!next) return misuse(a, "a name must follow");
      if (a[1] == 'o')
        o->out[o->n_out++] = next;
      else
        o->model = next;
      i++;
    } else if (a[0] == '-' && a[1]) {
      return misuse(a, "unknown option");
    } else {
      o->in[o->n_in++] = a;
    }
  }
  return 0;
}

static void list_models(void) {
  const struct mb_model_info *m;
  mb_put_text(MB_STDERR, "\n  note: this image holds");
  for (int i = 0; (m = monobloc_model(i)); i++) {
    mb_put_text(MB_STDERR, i ? ", '" : " '");
    mb_put_text(MB_STDERR, m->name);
    mb_put_char(MB_STDERR, '\'');
  }
}

static const struct mb_model_info *choose(const char *name) {
  const struct mb_model_info *m;
  if (!name && monobloc_model(0) && !monobloc_model(1)) return monobloc_model(0);
  for (int i = 0; name && (m = monobloc_model(i)); i++)
    if (mb_same_text(m->name, name)) return m;
  mb_error_about("--model");
  mb_put_text(MB_STDERR, name ? "no model '" : "give one of several models");
  if (name) {
    mb_put_text(MB_STDERR, name);
    mb_put_char(MB_STDERR, '\'');
  }
  list_models();
  mb_error_end();
  return 0;
}

static void info_line(const char *label, uint64_t value, const char *unit) {
  mb_put_text(MB_STDOUT, label);
  mb_put_uint(MB_STDOUT, value);
  mb_put_text(MB_STDOUT, unit);
}

static void info_tensors(const char *label, const struct mb_tensor_info *t, int n) {
  for (int i = 0; i < n; i++) {
    mb_put_text(MB_STDOUT, label);
    mb_put_text(MB_STDOUT, t[i].name);
    mb_put_char(MB_STDOUT, ' ');
    mb_put_type(MB_STDOUT, t[i].dtype, t[i].rank, t[i].dims);
    mb_put_char(MB_STDOUT, '\n');
  }
}

static void print_info(const struct mb_model_info *m) {
  mb_put_text(MB_STDOUT, "model ");
  mb_put_text(MB_STDOUT, m->name);
  mb_put_text(MB_STDOUT, "\n  target ");
  mb_put_text(MB_STDOUT, m->target);
  mb_put_text(MB_STDOUT, "\n  needs ");
  mb_put_text(MB_STDOUT, m->features && *m->features ? m->features : "nothing beyond the baseline");
  mb_put_char(MB_STDOUT, '\n');
  info_tensors("  input ", m->inputs, m->n_inputs);
  info_tensors("  output ", m->outputs, m->n_outputs);
  mb_put_sizes(m);
  info_line("  arena ", m->ram_size, " bytes\n");
  info_line("  weights ", m->weights_bytes, " bytes\n");
  info_line("  stack ", m->stack_bound, " bytes at most\n");
  info_line("  threads ", (uint64_t)m->max_threads, " at most\n");
}

/* The name's length if s is NAME=..., for one of these tensors; *which is its number. */
static uint64_t named(const char *s, const struct mb_tensor_info *t, int n, int *which) {
  for (int i = 0; i < n; i++) {
    uint64_t k = 0;
    while (t[i].name[k] && s[k] == t[i].name[k]) k++;
    if (!t[i].name[k] && s[k] == '=') return *which = i, k;
  }
  return 0;
}

static int missing_inputs(const struct mb_model_info *m, const char *const *path) {
  mb_error_about(m->name);
  mb_put_text(MB_STDERR, "inputs are missing");
  for (int i = 0; i < m->n_inputs; i++) {
    if (path[i]) continue;
    mb_put_text(MB_STDERR, "\n  note: '");
    mb_put_text(MB_STDERR, m->inputs[i].name);
    mb_put_text(MB_STDERR, "' ");
    mb_put_type(MB_STDERR, m->inputs[i].dtype, m->inputs[i].rank, m->inputs[i].dims);
  }
  mb_error_end();
  return USAGE;
}

static int assign_inputs(const struct mb_model_info *m, const struct options *o,
                         const char **path) {
  int next = 0, which, missing = 0;
  for (int i = 0; i < o->n_in; i++) {
    uint64_t k = named(o->in[i], m->inputs, m->n_inputs, &which);
    if (k) {
      if (path[which]) return misuse(o->in[i], "this input is given twice");
      path[which] = o->in[i] + k + 1;
    }
  }
  for (int i = 0; i < o->n_in; i++) {
    if (named(o->in[i], m->inputs, m->n_inputs, &which)) continue;
    while (next < m->n_inputs && path[next]) next++;
    if (next == m->n_inputs) return misuse(o->in[i], "the model has no input left for it");
    path[next] = o->in[i];
  }
  for (int i = 0; i < m->n_inputs; i++) missing += !path[i];
  return missing ? missing_inputs(m, path) : 0;
}

static int fill_inputs(const struct mb_model_info *m, const struct options *o) {
  static const char *path[MAX_ARGS];
  if (!o->n_in) {
    uint64_t state = o->seed;
    if (m->n_inputs && !o->seeded)
      mb_put_text(MB_STDERR, "note: no input given: random data, seed 0\n");
    mb_put_flush(MB_STDERR);
    if (m->dynamic) mb_set_sizes(m, 0);
    m = mb_present(m);
    for (int i = 0; i < m->n_inputs; i++)
      mb_fill_random(&m->inputs[i], m->inputs[i].at(m->ram()), &state);
    return 0;
  }
  if (m->n_inputs > MAX_ARGS)
    return misuse(m->name, "more than 256 inputs cannot be read from files");
  int code = assign_inputs(m, o, path);
  if (!code && m->dynamic) code = mb_set_sizes(m, path);
  m = mb_present(m);
  for (int i = 0; i < m->n_inputs && !code; i++)
    code = mb_read_npy(path[i], &m->inputs[i], m->inputs[i].at(m->ram()));
  return code;
}

static uint64_t add_safe(char *to, uint64_t at, const char *name) {
  for (; *name && at < MAX_PATH - 1; name++) {
    char c = *name;
    int plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                c == '-' || c == '_' || c == '.' || (unsigned char)c >= 128;
    to[at++] = plain ? c : '_';
  }
  return at;
}

/* FOLDER/ or a pattern with {}: the output's name becomes part of the path, with no / left in it.
 */
static int expand(char *to, const char *pattern, const char *name) {
  uint64_t at = 0, used = 0;
  for (const char *p = pattern; *p && at < MAX_PATH - 5; p++) {
    if (p[0] == '{' && p[1] == '}') {
      at = add_safe(to, at, name);
      used = 1;
      p++;
    } else {
      to[at++] = *p;
    }
  }
  if (!used && at && to[at - 1] == '/') {
    at = add_safe(to, at, name);
    for (const char *s = ".npy"; *s && at < MAX_PATH - 1; s++) to[at++] = *s;
    used = 1;
  }
  to[at] = 0;
  return (int)used;
}

static int write_output(const struct mb_model_info *m, int i, const char *path) {
  return mb_write_npy(path, &m->outputs[i], m->outputs[i].at(m->ram()));
}

static int same_file(const struct mb_model_info *m, const char *pattern, int i) {
  static char a[MAX_PATH], b[MAX_PATH];
  expand(a, pattern, m->outputs[i].name);
  for (int k = 0; k < i; k++) {
    expand(b, pattern, m->outputs[k].name);
    if (mb_same_text(a, b)) return 1;
  }
  return 0;
}

static int write_outputs(const struct mb_model_info *m, const char *out) {
  static char path[MAX_PATH];
  int which;
  uint64_t k = named(out, m->outputs, m->n_outputs, &which);
  if (k) return write_output(m, which, out + k + 1);
  if (!expand(path, out, "")) {
    if (m->n_outputs == 1) return write_output(m, 0, out);
    return misuse(
        out, "one file for several outputs; give NAME=file, a folder with /, or a pattern with {}");
  }
  for (int i = 0; i < m->n_outputs; i++) {
    if (same_file(m, out, i))
      return misuse(out, "two outputs would go to one file; give NAME=file");
    expand(path, out, m->outputs[i].name);
    if (write_output(m, i, path)) return 1;
  }
  return 0;
}

static int put_outputs(const struct mb_model_info *m, const struct options *o) {
  int code = 0;
  m = mb_present(m);
  for (int i = 0; i < o->n_out && !code; i++) code = write_outputs(m, o->out[i]);
  for (int i = 0; i < m->n_outputs && !o->n_out; i++)
    mb_put_tensor(&m->outputs[i], m->outputs[i].at(m->ram()));
  return code;
}

static void print_times(const struct mb_times *t, uint64_t runs) {
  const struct {
    const char *label;
    uint64_t value;
  } parts[] = {
      {"time us: first ", t->first}, {" min ", t->min}, {" median ", t->median}, {" p99 ", t->p99}};
  for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
    mb_put_text(MB_STDOUT, parts[i].label);
    mb_put_thousandths(MB_STDOUT, parts[i].value);
  }
  info_line(" runs ", runs, "\n");
}

static int failed_run(const struct mb_model_info *m, int status) {
  mb_error_about(m->name);
  mb_put_text(MB_STDERR, m->strerror ? m->strerror(status) : mb_strerror(status));
  return mb_error_end();
}

static int check_cpu(const struct mb_model_info *m) {
  const char *missing = mb_cpu_missing(m->features);
  if (!missing) return 0;
  mb_error_about(m->name);
  mb_put_text(MB_STDERR, "this CPU lacks ");
  mb_put_text(MB_STDERR, missing);
  mb_put_text(MB_STDERR, "\n  note: built for ");
  mb_put_text(MB_STDERR, m->target);
  return mb_error_end();
}

static int set_threads(const struct mb_model_info *m, uint64_t n) {
  if (n > (uint64_t)m->max_threads) {
    mb_error_about("--threads");
    mb_put_uint(MB_STDERR, n);
    mb_put_text(MB_STDERR, " asked for, the image was built for at most ");
    mb_put_uint(MB_STDERR, (uint64_t)m->max_threads);
    mb_error_end();
    return USAGE;
  }
  if (m->set_threads) m->set_threads(n ? (int)n : m->max_threads);
  return 0;
}

static int measure_stack(const struct mb_model_info *m) {
  uint64_t used = 0, workers = 0;
  int status = mb_run_painted(m, &used);
  if (status) return failed_run(m, status);
  if (mb_worker_stack_used) workers = mb_worker_stack_used();
  info_line("stack bytes: main ", used, "");
  info_line(" worker ", workers, "");
  info_line(" bound ", m->stack_bound, "\n");
  if (m->reset) m->reset();
  return 0;
}

static int run_model(const struct mb_model_info *m, const struct options *o) {
  struct mb_times times;
  if (o->stack && mb_paint_stacks) mb_paint_stacks();
  int code = set_threads(m, o->threads);
  mb_populate(m);
  if (!code) code = fill_inputs(m, o);
  if (code) return code;
  if (o->pretouch) mb_touch_everything(m);
  if (o->stack && (code = measure_stack(m))) return code;
  int status = mb_run_many(m, o->repeat, o->time ? &times : 0);
  if (status) return status < 0 ? 1 : failed_run(m, status);
  code = put_outputs(m, o);
  if (o->time && !code) print_times(&times, o->repeat);
  return code;
}

MB_HIDDEN int mb_main(int argc, char **argv, char **envp);
MB_HIDDEN int mb_main(int argc, char **argv, char **envp) {
  static struct options o; /* large: zeros take no room in the file */
  const struct mb_model_info *m;
  (void)envp;
  o.repeat = 1;
  int code = parse(argc, argv, &o);
  if (!code && o.help) {
    mb_put_text(MB_STDOUT, usage_text);
  } else if (!code && o.info) {
    for (int i = 0; (m = monobloc_model(i)); i++) print_info(m);
  } else if (!code) {
    m = choose(o.model);
    code = m ? check_cpu(m) : USAGE;
    if (!code) code = run_model(m, &o);
    if (m && m->stop) m->stop();
  }
  mb_put_flush(MB_STDOUT);
  mb_put_flush(MB_STDERR);
  return code;
}
