/* A small library of matrix products with one generic entry, as vendors ship them. */
#ifndef UGEMM_H
#define UGEMM_H

enum ug_type { UG_F32, UG_F16, UG_I8 };
enum ug_order { UG_ROWS, UG_TRANSPOSED };
enum ug_status { UG_OK, UG_BAD_SIZE, UG_BAD_TYPE };

/* c[m][n] = a[m][k] * b, where b is [k][n], or [n][k] if it is transposed. Leading dimensions are in
 * elements. F16 sums in float; I8 gives 32-bit integers. Returns UG_OK or what is wrong. */
int ug_gemm(enum ug_type type, enum ug_order order, int m, int n, int k, const void *a, int lda, const void *b,
            int ldb, void *c, int ldc);

/* Part `thread` of `threads` of the same product: rows are dealt out. */
int ug_gemm_part(enum ug_type type, enum ug_order order, int m, int n, int k, const void *a, int lda, const void *b,
                 int ldb, void *c, int ldc, int thread, int threads);

#endif
