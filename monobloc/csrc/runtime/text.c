/* The exact decimal digits of a double come from a small big-integer: v = m * 2^e is m * 2^e for
 * e >= 0 and m * 5^-e / 10^-e otherwise, so only multiplications are needed.
 */
#include "text.h"
#include "sys.h"

enum { ROOM = 4096, BASE = 1000000000, WORDS = 100, SIGNIFICANT = 6 };

static struct {
  char text[ROOM];
  int used;
} buffers[2];

void mb_put_flush(int fd) {
  int at = 0, n = buffers[fd - 1].used;
  while (at < n) {
    long done = mb_sys3(SYS_write, fd, (long)(buffers[fd - 1].text + at), n - at);
    if (done == -MB_EINTR) continue;
    if (done <= 0) break; /* nobody listens: a message about it would not be heard either */
    at += (int)done;
  }
  buffers[fd - 1].used = 0;
}

void mb_put_char(int fd, char c) {
  if (buffers[fd - 1].used == ROOM) mb_put_flush(fd);
  buffers[fd - 1].text[buffers[fd - 1].used++] = c;
}

void mb_put_text(int fd, const char *s) {
  while (*s) mb_put_char(fd, *s++);
}

void mb_put_uint(int fd, uint64_t v) {
  char digits[20];
  int n = 0;
  do digits[n++] = (char)('0' + v % 10);
  while (v /= 10);
  while (n) mb_put_char(fd, digits[--n]);
}

void mb_put_int(int fd, int64_t v) {
  if (v < 0) mb_put_char(fd, '-');
  mb_put_uint(fd, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void mb_put_thousandths(int fd, uint64_t v) {
  mb_put_uint(fd, v / 1000);
  mb_put_char(fd, '.');
  for (uint64_t unit = 100; unit; unit /= 10) mb_put_char(fd, (char)('0' + v / unit % 10));
}

/* n words in base 10^9, least first. */
struct big {
  uint32_t word[WORDS];
  int n;
};

static void multiply(struct big *b, uint32_t by) {
  uint64_t carry = 0;
  for (int i = 0; i < b->n; i++) {
    carry += (uint64_t)b->word[i] * by;
    b->word[i] = (uint32_t)(carry % BASE);
    carry /= BASE;
  }
  for (; carry; carry /= BASE) b->word[b->n++] = (uint32_t)(carry % BASE);
}

static void raise(struct big *b, uint32_t base, int power, uint32_t step, int step_power) {
  for (; power >= step_power; power -= step_power) multiply(b, step);
  while (power-- > 0) multiply(b, base);
}

static int digit(const struct big *b, int i) { /* the i-th decimal digit, least first */
  uint32_t w = b->word[i / 9];
  for (i %= 9; i > 0; i--) w /= 10;
  return (int)(w % 10);
}

static int digit_count(const struct big *b) {
  int n = b->n * 9;
  while (n > 1 && !digit(b, n - 1)) n--;
  return n;
}

static int rounds_up(const struct big *b, int cut, int last) {
  if (cut <= 0) return 0;
  int d = digit(b, cut - 1), rest = 0;
  for (int i = 0; i < cut - 1 && !rest; i++) rest = digit(b, i);
  return d > 5 || (d == 5 && (rest || last % 2));
}

/* Digits of v > 0, most first, without trailing zeros; v = 0.d1d2... * 10^exponent. */
static int significant(double v, char *digits, int *exponent) {
  uint64_t bits;
  __builtin_memcpy(&bits, &v, 8);
  int e = (int)(bits >> 52 & 0x7ff);
  uint64_t m = bits & 0xfffffffffffffu;
  if (e) m |= 1ull << 52;
  e = (e ? e : 1) - 1075;
  struct big b = {{0}, 0};
  for (; m; m /= BASE) b.word[b.n++] = (uint32_t)(m % BASE);
  if (e >= 0)
    raise(&b, 2, e, 1u << 29, 29);
  else
    raise(&b, 5, -e, 1220703125u, 13);
  int count = digit_count(&b), n = count < SIGNIFICANT ? count : SIGNIFICANT;
  *exponent = count + (e < 0 ? e : 0);
  for (int i = 0; i < n; i++) digits[i] = (char)digit(&b, count - 1 - i);
  if (rounds_up(&b, count - n, digits[n - 1])) {
    int i = n - 1;
    for (; i >= 0 && digits[i] == 9; i--) digits[i] = 0;
    if (i >= 0)
      digits[i]++;
    else
      digits[0] = 1, ++*exponent;
  }
  while (n > 1 && !digits[n - 1]) n--;
  return n;
}

static char *scientific(char *to, const char *digits, int n, int exponent) {
  *to++ = (char)('0' + digits[0]);
  if (n > 1) *to++ = '.';
  for (int i = 1; i < n; i++) *to++ = (char)('0' + digits[i]);
  *to++ = 'e';
  *to++ = exponent < 0 ? '-' : '+';
  if (exponent < 0) exponent = -exponent;
  if (exponent >= 100) *to++ = (char)('0' + exponent / 100);
  *to++ = (char)('0' + exponent / 10 % 10);
  *to++ = (char)('0' + exponent % 10);
  return to;
}

static char *fixed(char *to, const char *digits, int n, int point) {
  if (point <= 0) *to++ = '0';
  for (int i = 0; i < point; i++) *to++ = (char)('0' + (i < n ? digits[i] : 0));
  if (point >= n) return to;
  *to++ = '.';
  for (int i = point; i < 0; i++) *to++ = '0';
  for (int i = point < 0 ? 0 : point; i < n; i++) *to++ = (char)('0' + digits[i]);
  return to;
}

static int copy(char *to, const char *s) {
  int n = 0;
  for (; s[n]; n++) to[n] = s[n];
  return n;
}

int mb_format_double(char *to, double v) {
  char digits[SIGNIFICANT], *start = to;
  int exponent;
  if (v != v) return copy(to, "nan");
  if (__builtin_signbit(v)) {
    *to++ = '-';
    v = -v;
  }
  if (v == 0) return (int)(to - start) + copy(to, "0");
  if (v == __builtin_inf()) return (int)(to - start) + copy(to, "inf");
  int n = significant(v, digits, &exponent);
  to = exponent - 1 < -4 || exponent - 1 >= SIGNIFICANT ? scientific(to, digits, n, exponent - 1)
                                                        : fixed(to, digits, n, exponent);
  return (int)(to - start);
}

void mb_put_double(int fd, double v) {
  char text[32];
  int n = mb_format_double(text, v);
  for (int i = 0; i < n; i++) mb_put_char(fd, text[i]);
}

int mb_parse_uint(const char *s, uint64_t *value) {
  uint64_t v = 0;
  if (!*s) return 0;
  for (; *s; s++) {
    if (*s < '0' || *s > '9') return 0;
    unsigned d = (unsigned)(*s - '0');
    if (v > (UINT64_MAX - d) / 10) return 0;
    v = v * 10 + d;
  }
  *value = v;
  return 1;
}

int mb_same_text(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

uint64_t mb_text_length(const char *s) {
  uint64_t n = 0;
  while (s[n]) n++;
  return n;
}

void mb_error_about(const char *what) {
  mb_put_flush(MB_STDOUT);
  mb_put_text(MB_STDERR, "error: ");
  mb_put_text(MB_STDERR, what);
  mb_put_text(MB_STDERR, ": ");
}

int mb_error_end(void) {
  mb_put_char(MB_STDERR, '\n');
  mb_put_flush(MB_STDERR);
  return 1;
}
