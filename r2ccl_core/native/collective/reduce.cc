// Reduction loops, one per type and operation, left to the compiler to vectorise.
#include "collective/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "collective/half.h"

// Each loop is compiled for old and for new processors; the loader picks.
#define R2CCL_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#if defined(R2CCL_SANITIZED) || !defined(__x86_64__)
#undef R2CCL_CLONES
#define R2CCL_CLONES  // the sanitizers' start-up code and indirect functions do not mix
#endif

namespace r2ccl {
namespace {

// As they are numbered.
constexpr std::array<std::string_view, 9> kTypes = {"float32",  "float64", "int32", "int64", "float16",
                                                    "bfloat16", "uint8",   "int8",  "bool"};
constexpr std::array<std::string_view, 5> kOps = {"sum", "min", "max", "prod", "avg"};

template <typename T, size_t kCount>
std::optional<T> Parse(const std::array<std::string_view, kCount>& names, std::string_view name) {
  const auto* found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<T>(found - names.begin());
}

template <size_t kCount>
std::string_view Name(const std::array<std::string_view, kCount>& names, size_t number) {
  return number < kCount ? names[number] : "unknown";
}

struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  Half value;
};

struct Bool {
  uint8_t byte;
};

inline float ToFloat(Bool x) { return x.byte != 0 ? 1 : 0; }
inline float ToFloat(Bfloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline float ToFloat(Float16 x) { return static_cast<float>(x.value); }

inline void FromFloat(float value, Bool* out) { out->byte = value != 0 ? 1 : 0; }
inline void FromFloat(float value, Float16* out) { out->value = static_cast<Half>(value); }
inline void FromFloat(float value, Bfloat16* out) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bool nan = value != value;
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  out->bits = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
}

template <ReduceOp kOp, typename T>
inline T Combine(T a, T b) {
  // What is not a number is not equal to itself, and comes through from either side.
  if constexpr (kOp == ReduceOp::kMin) return b < a || b != b ? b : a;
  if constexpr (kOp == ReduceOp::kMax) return a < b || b != b ? b : a;
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;  // wrap instead of overflowing
    if constexpr (kOp == ReduceOp::kSum) return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    if constexpr (kOp == ReduceOp::kProd) return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    if constexpr (kOp == ReduceOp::kSum) return a + b;
    if constexpr (kOp == ReduceOp::kProd) return a * b;
  }
}

template <ReduceOp kOp, typename T>
inline __attribute__((always_inline)) void Loop(const void* a, const void* b, void* out, size_t count) {
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  T* z = static_cast<T*>(out);
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_arithmetic_v<T>) {
      z[i] = Combine<kOp>(x[i], y[i]);
    } else {
      FromFloat(Combine<kOp>(ToFloat(x[i]), ToFloat(y[i])), &z[i]);
    }
  }
}

template <ReduceOp kOp>
inline __attribute__((always_inline)) void Dispatch(DataType type, const void* a, const void* b, void* out,
                                                    size_t count) {
  switch (type) {
    case DataType::kFloat32:
      return Loop<kOp, float>(a, b, out, count);
    case DataType::kFloat64:
      return Loop<kOp, double>(a, b, out, count);
    case DataType::kInt32:
      return Loop<kOp, int32_t>(a, b, out, count);
    case DataType::kInt64:
      return Loop<kOp, int64_t>(a, b, out, count);
    case DataType::kFloat16:
      return Loop<kOp, Float16>(a, b, out, count);
    case DataType::kBfloat16:
      return Loop<kOp, Bfloat16>(a, b, out, count);
    case DataType::kUint8:
      return Loop<kOp, uint8_t>(a, b, out, count);
    case DataType::kInt8:
      return Loop<kOp, int8_t>(a, b, out, count);
    case DataType::kBool:
      return Loop<kOp, Bool>(a, b, out, count);
  }
}

R2CCL_CLONES void Sum(DataType type, const void* a, const void* b, void* out, size_t count) {
  Dispatch<ReduceOp::kSum>(type, a, b, out, count);
}
R2CCL_CLONES void Min(DataType type, const void* a, const void* b, void* out, size_t count) {
  Dispatch<ReduceOp::kMin>(type, a, b, out, count);
}
R2CCL_CLONES void Max(DataType type, const void* a, const void* b, void* out, size_t count) {
  Dispatch<ReduceOp::kMax>(type, a, b, out, count);
}
R2CCL_CLONES void Prod(DataType type, const void* a, const void* b, void* out, size_t count) {
  Dispatch<ReduceOp::kProd>(type, a, b, out, count);
}

}  // namespace

std::optional<DataType> ParseDataType(std::string_view name) { return Parse<DataType>(kTypes, name); }

std::optional<ReduceOp> ParseReduceOp(std::string_view name) { return Parse<ReduceOp>(kOps, name); }

std::string_view NameOf(DataType type) { return Name(kTypes, static_cast<size_t>(type)); }

std::string_view NameOf(ReduceOp op) { return Name(kOps, static_cast<size_t>(op)); }

size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kFloat64:
    case DataType::kInt64:
      return 8;
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    default:
      return 1;
  }
}

void Reduce(DataType type, ReduceOp op, const void* a, const void* b, void* out, size_t count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return Sum(type, a, b, out, count);
    case ReduceOp::kMin:
      return Min(type, a, b, out, count);
    case ReduceOp::kMax:
      return Max(type, a, b, out, count);
    case ReduceOp::kProd:
      return Prod(type, a, b, out, count);
  }
}

}  // namespace r2ccl
