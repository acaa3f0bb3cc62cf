#include "ugemm.h"

enum { COLUMNS = 16 };

struct product {
  int m, n, k, lda, ldb, ldc;
};

static int at(const struct product *p, enum ug_order order, int i, int j) {
  return order == UG_TRANSPOSED ? j * p->ldb + i : i * p->ldb + j;
}

static void gemm_f32(const struct product *p, enum ug_order order, const float *a, const float *b, float *c) {
  for (int i = 0; i < p->m; i++) {
    for (int j0 = 0; j0 < p->n; j0 += COLUMNS) {
      const int columns = p->n - j0 < COLUMNS ? p->n - j0 : COLUMNS;
      float sum[COLUMNS] = {0};
      for (int l = 0; l < p->k; l++)
        for (int j = 0; j < columns; j++) sum[j] += a[i * p->lda + l] * b[at(p, order, l, j0 + j)];
      for (int j = 0; j < columns; j++) c[i * p->ldc + j0 + j] = sum[j];
    }
  }
}

static void gemm_f16(const struct product *p, enum ug_order order, const _Float16 *a, const _Float16 *b,
                     _Float16 *c) {
  for (int i = 0; i < p->m; i++) {
    for (int j0 = 0; j0 < p->n; j0 += COLUMNS) {
      const int columns = p->n - j0 < COLUMNS ? p->n - j0 : COLUMNS;
      float sum[COLUMNS] = {0};
      for (int l = 0; l < p->k; l++)
        for (int j = 0; j < columns; j++) sum[j] += (float)a[i * p->lda + l] * (float)b[at(p, order, l, j0 + j)];
      for (int j = 0; j < columns; j++) c[i * p->ldc + j0 + j] = (_Float16)sum[j];
    }
  }
}

static void gemm_i8(const struct product *p, enum ug_order order, const signed char *a, const signed char *b,
                    int *c) {
  for (int i = 0; i < p->m; i++) {
    for (int j = 0; j < p->n; j++) {
      int sum = 0;
      for (int l = 0; l < p->k; l++) sum += a[i * p->lda + l] * b[at(p, order, l, j)];
      c[i * p->ldc + j] = sum;
    }
  }
}

int ug_gemm(enum ug_type type, enum ug_order order, int m, int n, int k, const void *a, int lda, const void *b,
            int ldb, void *c, int ldc) {
  const struct product p = {m, n, k, lda, ldb, ldc};
  if (m < 0 || n < 0 || k < 0 || lda < k || ldc < n || ldb < (order == UG_TRANSPOSED ? k : n)) return UG_BAD_SIZE;
  switch (type) {
    case UG_F32: gemm_f32(&p, order, a, b, c); return UG_OK;
    case UG_F16: gemm_f16(&p, order, a, b, c); return UG_OK;
    case UG_I8: gemm_i8(&p, order, a, b, c); return UG_OK;
  }
  return UG_BAD_TYPE;
}

static const int sizes_in[] = {4, 2, 1}, sizes_out[] = {4, 2, 4};

int ug_gemm_part(enum ug_type type, enum ug_order order, int m, int n, int k, const void *a, int lda, const void *b,
                 int ldb, void *c, int ldc, int thread, int threads) {
  if ((unsigned)type > UG_I8) return UG_BAD_TYPE;
  const int first = (int)((long)m * thread / threads), end = (int)((long)m * (thread + 1) / threads);
  return ug_gemm(type, order, end - first, n, k, (const char *)a + (long)first * lda * sizes_in[type], lda, b, ldb,
                 (char *)c + (long)first * ldc * sizes_out[type], ldc);
}
