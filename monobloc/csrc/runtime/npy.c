/* The .npy format, versions 1 to 3: a magic, a header that is a Python literal, then the elements.
 * Data goes from the file straight into the model's input; headers are checked against the model
 * before a byte of it is read.
 */
#include "sys.h"
#include "tensor.h"
#include "text.h"

enum { HEADER = 10240, MAX_RANK = 32, MAX_PATH = 4096 };

static const struct {
  int32_t dtype;
  char descr[5];
} descrs[] = {
    {MB_F32, "<f4"},  {MB_U8, "|u1"},   {MB_I8, "|i1"},  {MB_U16, "<u2"},
    {MB_I16, "<i2"},  {MB_I32, "<i4"},  {MB_I64, "<i8"}, {MB_BOOL, "|b1"},
    {MB_F16, "<f2"},  {MB_F64, "<f8"},  {MB_U32, "<u4"}, {MB_U64, "<u8"},
    {MB_BF16, "<V2"}, {MB_BF16, "|V2"}, {MB_U8, "<u1"},  {MB_I8, "<i1"},
    {MB_STRING, "|S1"}, {MB_F8E5M2, "<f1"}, {MB_F8E5M2, "|f1"},
    {MB_I4, "<V1"},   {MB_U4, "<V1"},   {MB_I2, "<V1"},  {MB_U2, "<V1"},
    {MB_F4E2M1, "<V1"}, {MB_F8E8M0, "<V1"}, {MB_F8E4M3FN, "<V1"}, {MB_F8E4M3FNUZ, "<V1"},
    {MB_F8E5M2FNUZ, "<V1"},
    {MB_I4, "|V1"},   {MB_U4, "|V1"},   {MB_I2, "|V1"},  {MB_U2, "|V1"},
    {MB_F4E2M1, "|V1"}, {MB_F8E8M0, "|V1"}, {MB_F8E4M3FN, "|V1"}, {MB_F8E4M3FNUZ, "|V1"},
    {MB_F8E5M2FNUZ, "|V1"},
};

struct npy {
  char descr[16];
  int fortran, rank;
  int64_t dims[MAX_RANK];
};

static int fail(const char *path, const char *text) {
  mb_error_about(path);
  mb_put_text(MB_STDERR, text);
  return mb_error_end();
}

static int fail_code(const char *path, const char *text, long code) {
  mb_error_about(path);
  mb_put_text(MB_STDERR, text);
  mb_put_text(MB_STDERR, code == -MB_ENOENT ? " (no such file or folder)" : " (errno ");
  if (code != -MB_ENOENT) {
    mb_put_int(MB_STDERR, -code);
    mb_put_char(MB_STDERR, ')');
  }
  return mb_error_end();
}

static long read_fully(int fd, void *to, uint64_t n) {
  uint64_t at = 0;
  while (at < n) {
    uint64_t want = n - at < 1u << 30 ? n - at : 1u << 30;
    long got = mb_sys3(SYS_read, fd, (long)((char *)to + at), (long)want);
    if (got == -MB_EINTR) continue;
    if (got < 0) return got;
    if (!got) break;
    at += (uint64_t)got;
  }
  return (long)at;
}

/* A cursor over the header's literal; every step leaves `at` behind what it took. */
struct scan {
  const char *at, *end;
};

static void skip_blanks(struct scan *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\n')) s->at++;
}

static int eat(struct scan *s, const char *token) {
  skip_blanks(s);
  const char *p = s->at;
  for (; *token; token++, p++)
    if (p >= s->end || *p != *token) return 0;
  s->at = p;
  return 1;
}

static int eat_string(struct scan *s, char *to, int room) {
  skip_blanks(s);
  if (s->at >= s->end || (*s->at != '\'' && *s->at != '"')) return 0;
  char quote = *s->at++;
  int n = 0;
  while (s->at < s->end && *s->at != quote && n < room - 1) to[n++] = *s->at++;
  to[n] = 0;
  if (s->at >= s->end || *s->at != quote) return 0;
  s->at++;
  return 1;
}

static int eat_number(struct scan *s, int64_t *value) {
  int64_t v = 0;
  skip_blanks(s);
  if (s->at >= s->end || *s->at < '0' || *s->at > '9') return 0;
  for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
    if (v > (INT64_MAX - 9) / 10) return 0;
    v = v * 10 + (*s->at - '0');
  }
  *value = v;
  return 1;
}

static int eat_shape(struct scan *s, struct npy *h) {
  if (!eat(s, "(")) return 0;
  h->rank = 0;
  while (!eat(s, ")")) {
    if (h->rank == MAX_RANK || !eat_number(s, &h->dims[h->rank++])) return 0;
    if (!eat(s, ",")) return eat(s, ")");
  }
  return 1;
}

/* "|S16" is an axis of 16 letters more: none of them is all that numpy needs for empty strings. */
static int split_strings(struct npy *h) {
  uint64_t room;
  if (h->descr[0] != '|' || h->descr[1] != 'S' || !mb_parse_uint(h->descr + 2, &room)) return 1;
  if (h->rank == MAX_RANK || room > INT32_MAX) return 0;
  h->dims[h->rank++] = (int64_t)room;
  h->descr[2] = '1', h->descr[3] = 0;
  return 1;
}

static int parse_header(struct scan s, struct npy *h) {
  char key[16];
  int seen = 0;
  if (!eat(&s, "{")) return 0;
  while (!eat(&s, "}")) {
    if (!eat_string(&s, key, sizeof key) || !eat(&s, ":")) return 0;
    if (mb_same_text(key, "descr")) {
      if (!eat_string(&s, h->descr, sizeof h->descr)) return 0;
      seen |= 1;
    } else if (mb_same_text(key, "fortran_order")) {
      h->fortran = eat(&s, "True");
      if (!h->fortran && !eat(&s, "False")) return 0;
      seen |= 2;
    } else if (mb_same_text(key, "shape")) {
      if (!eat_shape(&s, h)) return 0;
      seen |= 4;
    } else {
      return 0;
    }
    if (!eat(&s, ",") && !eat(&s, "}"))
      return 0;
    else if (s.at[-1] == '}')
      break;
  }
  return seen == 7 && split_strings(h);
}

static int32_t dtype_of(const char *descr) {
  for (unsigned i = 0; i < sizeof descrs / sizeof *descrs; i++)
    if (mb_same_text(descr, descrs[i].descr)) return descrs[i].dtype;
  return 0;
}

static int read_header(const char *path, int fd, struct npy *h) {
  static char text[HEADER];
  unsigned char start[12];
  static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  if (read_fully(fd, start, 10) != 10) return fail(path, "too short for a .npy file");
  for (int i = 0; i < 6; i++)
    if (start[i] != magic[i])
      return fail(path, "not a .npy file: its first bytes are not \\x93NUMPY");
  uint32_t length = start[8] | (uint32_t)start[9] << 8;
  if (start[6] < 1 || start[6] > 3) return fail(path, "a .npy version this program does not know");
  if (start[6] > 1) {
    if (read_fully(fd, start + 10, 2) != 2) return fail(path, "the .npy header is cut short");
    length |= (uint32_t)start[10] << 16 | (uint32_t)start[11] << 24;
  }
  if (length > HEADER) return fail(path, "the .npy header is longer than 10240 bytes");
  if (read_fully(fd, text, length) != (long)length)
    return fail(path, "the .npy header is cut short");
  *h = (struct npy){{0}, 0, 0, {0}};
  if (!parse_header((struct scan){text, text + length}, h))
    return fail(path, "the .npy header is not understood (structured types are not supported)");
  return 0;
}

/* Several types may have one name: numpy has none of its own for those of ml_dtypes. */
static int names(const char *descr, int32_t dtype) {
  for (unsigned i = 0; i < sizeof descrs / sizeof *descrs; i++)
    if (descrs[i].dtype == dtype && mb_same_text(descr, descrs[i].descr)) return 1;
  return 0;
}

static int matches(const struct npy *h, const struct mb_tensor_info *t) {
  if (!names(h->descr, t->dtype) || h->rank != t->rank) return 0;
  int fits = t->dtype == MB_STRING && h->dims[t->rank - 1] < t->dims[t->rank - 1];
  for (int i = 0; i < t->rank - fits; i++)
    if (h->dims[i] != t->dims[i]) return 0;
  return 1;
}

/* Shorter strings are filled up with zeros. */
static long read_strings(int fd, const struct npy *h, const struct mb_tensor_info *t, char *to) {
  uint64_t have = (uint64_t)h->dims[t->rank - 1], room = (uint64_t)t->dims[t->rank - 1];
  uint64_t n = mb_element_count(t) / room, total = 0;
  __builtin_memset(to, 0, n * room);
  for (uint64_t i = 0; i < n; i++) {
    long got = read_fully(fd, to + i * room, have);
    if (got < 0) return got;
    total += (uint64_t)got;
  }
  return (long)total;
}

static int order_matters(const struct npy *h) {
  int wide = 0;
  for (int i = 0; i < h->rank; i++) wide += h->dims[i] > 1;
  return wide > 1;
}

static int mismatch(const char *path, const struct npy *h, const struct mb_tensor_info *t) {
  mb_error_about(path);
  mb_put_text(MB_STDERR, "input '");
  mb_put_text(MB_STDERR, t->name);
  mb_put_text(MB_STDERR, "' takes ");
  mb_put_type(MB_STDERR, t->dtype, t->rank, t->dims);
  mb_put_text(MB_STDERR, ", the file holds ");
  int32_t dtype = dtype_of(h->descr);
  if (dtype) {
    mb_put_type(MB_STDERR, dtype, h->rank, h->dims);
  } else {
    mb_put_char(MB_STDERR, '\'');
    mb_put_text(MB_STDERR, h->descr);
    mb_put_char(MB_STDERR, '\'');
    if (h->descr[0] == '>') mb_put_text(MB_STDERR, "\n  note: big-endian data is not converted");
  }
  return mb_error_end();
}

static int read_open(const char *path, int fd, const struct mb_tensor_info *t, void *to) {
  struct npy h;
  char extra;
  if (read_header(path, fd, &h)) return 1;
  if (!matches(&h, t)) return mismatch(path, &h, t);
  if (h.fortran && order_matters(&h))
    return fail(path, "the file is in Fortran order\n  hint: save numpy.ascontiguousarray(x)");
  uint64_t bytes = mb_dtype_size(t->dtype);
  for (int i = 0; i < h.rank; i++) bytes *= (uint64_t)h.dims[i];
  long got = t->dtype == MB_STRING ? read_strings(fd, &h, t, to) : read_fully(fd, to, bytes);
  if (got < 0) return fail_code(path, "cannot be read", got);
  if ((uint64_t)got != bytes) {
    mb_error_about(path);
    mb_put_text(MB_STDERR, "the header promises ");
    mb_put_uint(MB_STDERR, bytes);
    mb_put_text(MB_STDERR, " bytes, the file holds ");
    mb_put_int(MB_STDERR, got);
    return mb_error_end();
  }
  if (read_fully(fd, &extra, 1) == 1) return fail(path, "data goes on behind the array");
  return 0;
}

int mb_read_npy(const char *path, const struct mb_tensor_info *t, void *to) {
  int stdin_too = mb_same_text(path, "-");
  long fd = stdin_too ? 0 : mb_open(path, MB_O_RDONLY, 0);
  if (fd < 0) return fail_code(path, "cannot be opened", fd);
  int failed = read_open(path, (int)fd, t, to);
  if (!stdin_too) mb_close((int)fd);
  return failed;
}

int mb_npy_shape(const char *path, const struct mb_tensor_info *t, int64_t *dims) {
  struct npy h;
  if (mb_same_text(path, "-")) return fail(path, "a model of several sizes takes its inputs from files");
  long fd = mb_open(path, MB_O_RDONLY, 0);
  if (fd < 0) return fail_code(path, "cannot be opened", fd);
  int failed = read_header(path, (int)fd, &h);
  mb_close((int)fd);
  if (failed) return failed;
  if (h.rank != t->rank) return mismatch(path, &h, t);
  for (int i = 0; i < h.rank; i++) dims[i] = h.dims[i];
  return 0;
}

struct header {
  char text[1024];
  int n;
};

static void add(struct header *h, const char *s) {
  while (*s && h->n < (int)sizeof h->text - 1) h->text[h->n++] = *s++;
}

static void add_number(struct header *h, uint64_t v) {
  char digits[24];
  int n = sizeof digits - 1;
  digits[n] = 0;
  do digits[--n] = (char)('0' + v % 10);
  while (v /= 10);
  add(h, digits + n);
}

static void make_header(struct header *h, const struct mb_tensor_info *t) {
  unsigned i = 0;
  while (descrs[i].dtype != t->dtype) i++;
  h->n = 10;
  add(h, "{'descr': '");
  int rank = t->rank - (t->dtype == MB_STRING);
  add(h, rank == t->rank ? descrs[i].descr : "|S");
  if (rank < t->rank) add_number(h, (uint64_t)t->dims[rank]);
  add(h, "', 'fortran_order': False, 'shape': (");
  for (int d = 0; d < rank; d++) {
    add_number(h, (uint64_t)t->dims[d]);
    add(h, d + 1 < rank ? ", " : rank == 1 ? "," : "");
  }
  add(h, "), }");
  while (h->n % 64 != 63) add(h, " ");
  add(h, "\n");
  __builtin_memcpy(h->text, "\x93NUMPY\x01\x00", 8);
  h->text[8] = (char)(h->n - 10);
  h->text[9] = (char)((h->n - 10) >> 8);
}

static long write_fully(int fd, const void *from, uint64_t n) {
  uint64_t at = 0;
  while (at < n) {
    uint64_t want = n - at < 1u << 30 ? n - at : 1u << 30;
    long done = mb_sys3(SYS_write, fd, (long)((const char *)from + at), (long)want);
    if (done == -MB_EINTR) continue;
    if (done < 0) return done;
    at += (uint64_t)done;
  }
  return 0;
}

/* Beside the target first, so that nobody ever reads half a file. */
int mb_write_npy(const char *path, const struct mb_tensor_info *t, const void *data) {
  static char beside[MAX_PATH];
  struct header h;
  uint64_t n = mb_text_length(path);
  make_header(&h, t);
  uint64_t bytes = mb_element_count(t) * mb_dtype_size(t->dtype);
  if (mb_same_text(path, "-")) {
    mb_put_flush(MB_STDOUT);
    long code = write_fully(MB_STDOUT, h.text, (uint64_t)h.n);
    if (!code) code = write_fully(MB_STDOUT, data, bytes);
    return code ? fail_code(path, "cannot be written", code) : 0;
  }
  if (n + 5 > MAX_PATH) return fail(path, "the path is longer than 4090 bytes");
  __builtin_memcpy(beside, path, n);
  __builtin_memcpy(beside + n, ".tmp", 5);
  long fd = mb_open(beside, MB_O_WRONLY | MB_O_CREAT | MB_O_TRUNC, 0666);
  if (fd < 0) return fail_code(path, "cannot be written", fd);
  long code = write_fully((int)fd, h.text, (uint64_t)h.n);
  if (!code) code = write_fully((int)fd, data, bytes);
  mb_close((int)fd);
  if (!code) code = mb_sys6(SYS_renameat, MB_AT_FDCWD, (long)beside, MB_AT_FDCWD, (long)path, 0, 0);
  if (!code) return 0;
  mb_sys3(SYS_unlinkat, MB_AT_FDCWD, (long)beside, 0);
  return fail_code(path, "cannot be written", code);
}
