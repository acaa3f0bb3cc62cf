/* What compilers call to convert half floats where the CPU has no instruction: code of foreign kernel
 * libraries does, and there may be no library to ask. Ours never does (mb/half.h). */
#include "mb/abi.h"
#include "mb/half.h"

MB_RT float __extendhfsf2(_Float16 x);
MB_RT double __extendhfdf2(_Float16 x);
MB_RT _Float16 __truncsfhf2(float x);
MB_RT _Float16 __truncdfhf2(double x);

float __extendhfsf2(_Float16 x) { return mbh_widen(((mbh_f16){.f = x}).u); }
double __extendhfdf2(_Float16 x) { return (double)mbh_widen(((mbh_f16){.f = x}).u); }
_Float16 __truncsfhf2(float x) { return ((mbh_f16){.u = mbh_narrow(x)}).f; }
_Float16 __truncdfhf2(double x) { return ((mbh_f16){.u = mbh_narrow(mbh_odd(x))}).f; }
