/* Types, values and random data; the file format is in npy.c. */
#include "tensor.h"
#include "mb/codes.h"
#include "text.h"

static const struct {
  int32_t dtype;
  char name[11];
  unsigned char size;
} types[] = {
    {MB_F32, "f32", 4},   {MB_U8, "u8", 1},   {MB_I8, "i8", 1},   {MB_U16, "u16", 2},
    {MB_I16, "i16", 2},   {MB_I32, "i32", 4}, {MB_I64, "i64", 8}, {MB_BOOL, "bool", 1},
    {MB_F16, "f16", 2},   {MB_F64, "f64", 8}, {MB_U32, "u32", 4}, {MB_U64, "u64", 8},
    {MB_STRING, "char", 1},
    {MB_BF16, "bf16", 2}, {MB_I4, "i4", 1},   {MB_U4, "u4", 1},   {MB_I2, "i2", 1},
    {MB_U2, "u2", 1},     {MB_F4E2M1, "f4e2m1", 1},         {MB_F8E8M0, "f8e8m0", 1},
    {MB_F8E4M3FN, "f8e4m3fn", 1},         {MB_F8E4M3FNUZ, "f8e4m3fnuz", 1},
    {MB_F8E5M2, "f8e5m2", 1},             {MB_F8E5M2FNUZ, "f8e5m2fnuz", 1},
};

static unsigned type_index(int32_t dtype) {
  unsigned i = 0;
  while (i < sizeof types / sizeof *types - 1 && types[i].dtype != dtype) i++;
  return i;
}

const char *mb_dtype_name(int32_t dtype) { return types[type_index(dtype)].name; }
uint64_t mb_dtype_size(int32_t dtype) { return types[type_index(dtype)].size; }

uint64_t mb_element_count(const struct mb_tensor_info *t) {
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= (uint64_t)t->dims[i];
  return n;
}

void mb_put_type(int fd, int32_t dtype, int32_t rank, const int64_t *dims) {
  mb_put_text(fd, mb_dtype_name(dtype));
  mb_put_text(fd, " [");
  for (int i = 0; i < rank; i++) {
    if (i) mb_put_text(fd, ", ");
    mb_put_int(fd, dims[i]);
  }
  mb_put_char(fd, ']');
}

static float from_bits(uint32_t bits) {
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}

static float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
  if (e == 31) return from_bits(sign | 0x7f800000 | m << 13);
  if (e) return from_bits(sign | (e + 112) << 23 | m << 13);
  float f = (float)m * 0x1p-24f; /* subnormal */
  return sign ? -f : f;
}

static double as_double(int32_t dtype, const void *data, uint64_t i) {
  switch (dtype) {
    case MB_F32: return ((const float *)data)[i];
    case MB_F64: return ((const double *)data)[i];
    case MB_F16: return half_to_float(((const uint16_t *)data)[i]);
    case MB_BF16: return from_bits((uint32_t)((const uint16_t *)data)[i] << 16);
    case MB_F8E4M3FN: return mb_f8e4m3fn_value(((const uint8_t *)data)[i]);
    case MB_F8E4M3FNUZ: return mb_f8e4m3fnuz_value(((const uint8_t *)data)[i]);
    case MB_F8E5M2: return mb_f8e5m2_value(((const uint8_t *)data)[i]);
    case MB_F8E5M2FNUZ: return mb_f8e5m2fnuz_value(((const uint8_t *)data)[i]);
    case MB_F8E8M0: return mb_f8e8m0_value(((const uint8_t *)data)[i]);
    case MB_F4E2M1: return mb_f4e2m1_value(((const uint8_t *)data)[i]);
  }
  return 0;
}

static int is_float(int32_t dtype) {
  return dtype == MB_F32 || dtype == MB_F64 || dtype == MB_F16 || dtype == MB_BF16 ||
         (dtype >= MB_F8E4M3FN && dtype <= MB_F8E8M0 && dtype != MB_U4 && dtype != MB_I4);
}

static int64_t as_int(int32_t dtype, const void *data, uint64_t i) {
  switch (dtype) {
    case MB_U8: return ((const uint8_t *)data)[i];
    case MB_I8: return ((const int8_t *)data)[i];
    case MB_U16: return ((const uint16_t *)data)[i];
    case MB_I16: return ((const int16_t *)data)[i];
    case MB_I32: return ((const int32_t *)data)[i];
    case MB_U32: return ((const uint32_t *)data)[i];
    case MB_BOOL: return ((const uint8_t *)data)[i] != 0;
    case MB_I4: return mb_i4_value(((const uint8_t *)data)[i]);
    case MB_U4: return mb_u4_value(((const uint8_t *)data)[i]);
    case MB_I2: return mb_i2_value(((const uint8_t *)data)[i]);
    case MB_U2: return mb_u2_value(((const uint8_t *)data)[i]);
  }
  return ((const int64_t *)data)[i];
}

/* The i-th string in quotes; `room` bytes each. */
static void put_string(const char *data, uint64_t room, uint64_t i) {
  const char *s = data + i * room;
  mb_put_char(MB_STDOUT, '"');
  for (uint64_t k = 0; k < room && s[k]; k++) mb_put_char(MB_STDOUT, s[k]);
  mb_put_char(MB_STDOUT, '"');
}

static void put_value(int32_t dtype, const void *data, uint64_t i) {
  if (is_float(dtype))
    mb_put_double(MB_STDOUT, as_double(dtype, data, i));
  else if (dtype == MB_U64)
    mb_put_uint(MB_STDOUT, ((const uint64_t *)data)[i]);
  else
    mb_put_int(MB_STDOUT, as_int(dtype, data, i));
}

/* As numpy's argmax: the first NaN wins, else the first of the largest. */
static uint64_t argmax(int32_t dtype, const void *data, uint64_t n) {
  uint64_t best = 0;
  for (uint64_t i = 1; i < n; i++) {
    if (is_float(dtype)) {
      double a = as_double(dtype, data, best), b = as_double(dtype, data, i);
      if (a == a && (b > a || b != b)) best = i;
    } else if (dtype == MB_U64) {
      if (((const uint64_t *)data)[i] > ((const uint64_t *)data)[best]) best = i;
    } else if (as_int(dtype, data, i) > as_int(dtype, data, best)) {
      best = i;
    }
  }
  return best;
}

void mb_put_tensor(const struct mb_tensor_info *t, const void *data) {
  enum { SHOWN = 8 };
  uint64_t n = mb_element_count(t);
  mb_put_text(MB_STDOUT, t->name);
  mb_put_char(MB_STDOUT, ' ');
  mb_put_type(MB_STDOUT, t->dtype, t->rank, t->dims);
  mb_put_char(MB_STDOUT, ':');
  uint64_t room = t->dtype == MB_STRING ? (uint64_t)t->dims[t->rank - 1] : 1;
  n /= room;
  for (uint64_t i = 0; i < n && i < SHOWN; i++) {
    mb_put_char(MB_STDOUT, ' ');
    if (t->dtype == MB_STRING)
      put_string(data, room, i);
    else
      put_value(t->dtype, data, i);
  }
  if (n > SHOWN) mb_put_text(MB_STDOUT, " ...");
  int vector = t->dtype != MB_STRING && t->rank > 0 && n > 1 && (uint64_t)t->dims[t->rank - 1] == n;
  if (vector) {
    uint64_t best = argmax(t->dtype, data, n);
    mb_put_text(MB_STDOUT, " argmax ");
    mb_put_uint(MB_STDOUT, best);
    mb_put_text(MB_STDOUT, " (");
    put_value(t->dtype, data, best);
    mb_put_char(MB_STDOUT, ')');
  }
  mb_put_char(MB_STDOUT, '\n');
}

static uint64_t draw(uint64_t *state) { /* SplitMix64 (Steele, Lea, Flood 2014) */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

void mb_fill_random(const struct mb_tensor_info *t, void *data, uint64_t *state) {
  uint64_t n = mb_element_count(t);
  for (uint64_t i = 0; i < n; i++) {
    uint64_t r = draw(state);
    float f = (float)(int32_t)(r >> 40) * 0x1p-23f - 1; /* 24 bits: exact in a float */
    uint32_t bits;
    __builtin_memcpy(&bits, &f, 4);
    switch (t->dtype) {
      case MB_F32: ((float *)data)[i] = f; break;
      case MB_F64: ((double *)data)[i] = f; break;
      case MB_BF16: ((uint16_t *)data)[i] = (uint16_t)(bits >> 16); break;
      case MB_F16: /* sign and ten bits as 1.m * 2^-1 or 2^-2: no conversion needed */
        ((uint16_t *)data)[i] =
            (uint16_t)((r >> 48 & 0x8000) | (13 + (r & 1)) << 10 | (r >> 20 & 1023));
        break;
      case MB_STRING: /* lower-case letters */
        ((uint8_t *)data)[i] = (uint8_t)('a' + (r >> 56) % 26);
        break;
      case MB_U8:
      case MB_I8: ((uint8_t *)data)[i] = (uint8_t)(r >> 56); break;
      case MB_U4:
      case MB_I4:
      case MB_F4E2M1: ((uint8_t *)data)[i] = (uint8_t)(r >> 60); break;
      case MB_U2:
      case MB_I2: ((uint8_t *)data)[i] = (uint8_t)(r >> 62); break;
      case MB_F8E8M0: ((uint8_t *)data)[i] = (uint8_t)(123 + (r >> 61)); break;
      case MB_F8E4M3FN: ((uint8_t *)data)[i] = mb_f8e4m3fn_code(f, 1); break;
      case MB_F8E4M3FNUZ: ((uint8_t *)data)[i] = mb_f8e4m3fnuz_code(f, 1); break;
      case MB_F8E5M2: ((uint8_t *)data)[i] = mb_f8e5m2_code(f, 1); break;
      case MB_F8E5M2FNUZ: ((uint8_t *)data)[i] = mb_f8e5m2fnuz_code(f, 1); break;
      case MB_BOOL: ((uint8_t *)data)[i] = r >> 63; break;
      case MB_U16:
      case MB_I16: ((uint16_t *)data)[i] = r >> 63; break;
      case MB_U32:
      case MB_I32: ((uint32_t *)data)[i] = (uint32_t)(r >> 63); break;
      default: ((uint64_t *)data)[i] = r >> 63;
    }
  }
}
