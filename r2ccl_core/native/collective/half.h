// Half: a 16-bit floating-point number as the processor stores it, by whatever name the compiler has.
#ifndef R2CCL_COLLECTIVE_HALF_H_
#define R2CCL_COLLECTIVE_HALF_H_

namespace r2ccl {

#ifdef __FLT16_MAX__
using Half = _Float16;
#else
using Half = __fp16;  // Clang before 15 has no _Float16 on x86-64; both are converted in the same way
#endif

}  // namespace r2ccl

#endif  // R2CCL_COLLECTIVE_HALF_H_
