// Three ways to the same sum, one of them chosen when it is first asked for.
//
// The instruction takes a new word each cycle but gives its result only three cycles later. So three stretches of the
// data are summed side by side, and their sums joined: to append n bytes of zeros to a sum is a linear map of its bits,
// kept as four tables of 256 entries for the one n that is used.
#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace r2ccl {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
constexpr size_t kStretchBytes = 1024;

using Table = std::array<uint32_t, 256>;

constexpr uint32_t AppendZeroByte(uint32_t sum) {
  for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? kPolynomial : 0);
  return sum;
}

// tables[k][b]: what byte b contributes when k bytes of zeros follow it.
constexpr std::array<Table, 8> MakeSliceTables() {
  std::array<Table, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    tables[0][byte] = AppendZeroByte(byte);
    for (size_t k = 1; k < 8; ++k) tables[k][byte] = AppendZeroByte(tables[k - 1][byte]);
  }
  return tables;
}
constexpr std::array<Table, 8> kSlices = MakeSliceTables();

uint64_t LoadWord(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint32_t PortableStep(uint32_t sum, const uint8_t* at, size_t bytes) {
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word = LoadWord(at) ^ sum;
    sum = 0;
    for (size_t k = 0; k < 8; ++k) sum ^= kSlices[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; bytes > 0; ++at, --bytes) sum = (sum >> 8) ^ kSlices[0][(sum ^ *at) & 0xff];
  return sum;
}

#if defined(__x86_64__) || defined(__aarch64__)

// tables[k][b]: what byte b at place k of a sum becomes when kStretchBytes of zeros are appended.
std::array<Table, 4> MakeShiftTables() {
  std::array<uint32_t, 32> of_bit{};
  for (size_t bit = 0; bit < 32; ++bit) {
    of_bit[bit] = uint32_t{1} << bit;
    for (size_t i = 0; i < kStretchBytes; ++i) of_bit[bit] = AppendZeroByte(of_bit[bit]);
  }
  std::array<Table, 4> tables{};
  for (size_t k = 0; k < 4; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      for (size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) tables[k][byte] ^= of_bit[8 * k + bit];
      }
    }
  }
  return tables;
}
const std::array<Table, 4> kShift = MakeShiftTables();

uint32_t AppendStretch(uint32_t sum) {
  return kShift[0][sum & 0xff] ^ kShift[1][sum >> 8 & 0xff] ^ kShift[2][sum >> 16 & 0xff] ^ kShift[3][sum >> 24];
}

#if defined(__x86_64__)
#define R2CCL_CRC_TARGET __attribute__((target("sse4.2")))
R2CCL_CRC_TARGET inline uint32_t Word(uint32_t sum, const uint8_t* at) {
  return static_cast<uint32_t>(_mm_crc32_u64(sum, LoadWord(at)));
}
R2CCL_CRC_TARGET inline uint32_t Byte(uint32_t sum, uint8_t byte) { return _mm_crc32_u8(sum, byte); }
bool HasInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }
constexpr const char* kInstruction = "sse4.2";
#else
#define R2CCL_CRC_TARGET __attribute__((target("+crc")))
R2CCL_CRC_TARGET inline uint32_t Word(uint32_t sum, const uint8_t* at) { return __crc32cd(sum, LoadWord(at)); }
R2CCL_CRC_TARGET inline uint32_t Byte(uint32_t sum, uint8_t byte) { return __crc32cb(sum, byte); }
bool HasInstruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
constexpr const char* kInstruction = "armv8";
#endif

R2CCL_CRC_TARGET uint32_t InstructionStep(uint32_t sum, const uint8_t* at, size_t bytes) {
  for (; bytes >= 3 * kStretchBytes; at += 3 * kStretchBytes, bytes -= 3 * kStretchBytes) {
    uint32_t second = 0;
    uint32_t third = 0;
    for (size_t i = 0; i < kStretchBytes; i += 8) {
      sum = Word(sum, at + i);
      second = Word(second, at + kStretchBytes + i);
      third = Word(third, at + 2 * kStretchBytes + i);
    }
    sum = AppendStretch(AppendStretch(sum) ^ second) ^ third;
  }
  for (; bytes >= 8; at += 8, bytes -= 8) sum = Word(sum, at);
  for (; bytes > 0; ++at, --bytes) sum = Byte(sum, *at);
  return sum;
}

#else
bool HasInstruction() { return false; }
constexpr const char* kInstruction = "";
uint32_t InstructionStep(uint32_t sum, const uint8_t* at, size_t bytes) { return PortableStep(sum, at, bytes); }
#endif

const bool kHasInstruction = HasInstruction();

}  // namespace

uint32_t PortableCrc32c(const void* data, size_t bytes) {
  return ~PortableStep(~uint32_t{0}, static_cast<const uint8_t*>(data), bytes);
}

uint32_t Crc32c(const void* data, size_t bytes) {
  if (!kHasInstruction) return PortableCrc32c(data, bytes);
  return ~InstructionStep(~uint32_t{0}, static_cast<const uint8_t*>(data), bytes);
}

const char* Crc32cKind() { return kHasInstruction ? kInstruction : "portable"; }

}  // namespace r2ccl
