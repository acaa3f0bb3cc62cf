/* Printing without libc: text collects in a static buffer per stream and goes out when it is full
 * or flushed. Numbers are rounded correctly (half to even on the exact decimal value).
 */
#ifndef MB_TEXT_H
#define MB_TEXT_H

#include "mb/abi.h"

enum { MB_STDOUT = 1, MB_STDERR = 2 };

MB_HIDDEN void mb_put_text(int fd, const char *s);
MB_HIDDEN void mb_put_char(int fd, char c);
MB_HIDDEN void mb_put_int(int fd, int64_t v);
MB_HIDDEN void mb_put_uint(int fd, uint64_t v);
MB_HIDDEN void mb_put_double(int fd, double v);       /* six significant digits, as C's %g */
MB_HIDDEN void mb_put_thousandths(int fd, uint64_t v); /* v / 1000 with three decimals */
MB_HIDDEN void mb_put_flush(int fd);

/* Writes v as %g would into `to` (at least 24 bytes); returns the length. */
MB_HIDDEN int mb_format_double(char *to, double v);

/* Starts an error line with the name of what it is about, and ends it; mb_error_end returns 1. */
MB_HIDDEN void mb_error_about(const char *what);
MB_HIDDEN int mb_error_end(void);

/* s as a decimal number; 0 if it is none or does not fit. */
MB_HIDDEN int mb_parse_uint(const char *s, uint64_t *value);
MB_HIDDEN int mb_same_text(const char *a, const char *b);
MB_HIDDEN uint64_t mb_text_length(const char *s);

#endif
