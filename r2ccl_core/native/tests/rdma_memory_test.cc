// Memory and devices, of a library that only notes what it is asked for: what is registered, by which address, and what
// has to be flushed.
#include "wire/verbs/rdma_memory.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <string>

#include "wire/verbs/loopback.h"

namespace r2ccl {
namespace {

struct Asked {
  uint64_t address = 0;
  size_t bytes = 0;
  int access = 0;
  int fd = -1;
  uint64_t offset = 0;
};
std::deque<Asked> asked;
std::deque<ibv::Mr> made;
int given_back = 0;
int give_back_result = 0;

ibv::Mr* Make(const Asked& what) {
  asked.push_back(what);
  ibv::Mr region{};
  region.lkey = static_cast<uint32_t>(10 + made.size());
  region.rkey = static_cast<uint32_t>(20 + made.size());
  made.push_back(region);
  return &made.back();
}

class RdmaMemoryTest : public testing::Test {
 protected:
  RdmaMemoryTest() {
    asked.clear();
    made.clear();
    given_back = give_back_result = 0;
    library.reg_mr = [](ibv::Pd*, void* address, size_t bytes, int access) {
      return Make({reinterpret_cast<uint64_t>(address), bytes, access});
    };
    library.reg_dmabuf_mr = [](ibv::Pd*, uint64_t offset, size_t bytes, uint64_t address, int fd, int access) {
      return Make({address, bytes, access, fd, offset});
    };
    library.dereg_mr = [](ibv::Mr*) {
      ++given_back;
      return give_back_result;
    };
  }
  bool Find(const char* data, size_t bytes, ibv::Pd* device) {
    return memory->Find(library, device, data, bytes, &keys, &why_not);
  }
  void Write(ibv::Pd* device) { memory->NoteWritten(device, {}, RcPort{}, bytes + 8, 8); }
  // How many devices have to read there.
  size_t Unflushed() { return memory->FindUnflushed(bytes, sizeof bytes).size(); }

  ibv::Library library;
  const std::shared_ptr<RdmaMemory> memory = std::make_shared<RdmaMemory>();
  char bytes[4096];
  char domains[2];
  ibv::Pd* const one = reinterpret_cast<ibv::Pd*>(&domains[0]);
  ibv::Pd* const other = reinterpret_cast<ibv::Pd*>(&domains[1]);
  RcKeys keys;
  std::string why_not;
};

constexpr uint64_t kDevice = 0x7f0000000000;

TEST_F(RdmaMemoryTest, HostMemoryIsKnownByItsOwnAddress) {
  memory->Add(bytes, sizeof bytes);
  ASSERT_TRUE(Find(bytes + 100, 10, one));
  EXPECT_EQ(keys.address, reinterpret_cast<uint64_t>(bytes + 100));
  EXPECT_FALSE(keys.is_device);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].access, ibv::kLocalWrite | ibv::kRemoteWrite);
  Write(one);
  EXPECT_EQ(Unflushed(), 0u) << "there is nothing to flush";
}

TEST_F(RdmaMemoryTest, AGpusIsRegisteredByTheDevicesAddress) {
  memory->Add(bytes, sizeof bytes, DeviceMemory{kDevice});
  ASSERT_TRUE(Find(bytes + 100, 10, one));
  EXPECT_EQ(keys.address, kDevice + 100);
  EXPECT_TRUE(keys.is_device);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].address, kDevice);
  EXPECT_EQ(asked[0].fd, -1);
  EXPECT_EQ(asked[0].access, ibv::kLocalWrite | ibv::kRemoteWrite | ibv::kRemoteRead);
  memory->Drop(bytes, sizeof bytes);
  EXPECT_EQ(given_back, 1);
}

TEST_F(RdmaMemoryTest, ADmabufIsRegisteredByDescriptorAndOffset) {
  memory->Add(bytes, sizeof bytes, DeviceMemory{kDevice, 5, 65536});
  ASSERT_TRUE(Find(bytes, sizeof bytes, one));
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].address, kDevice);
  EXPECT_EQ(asked[0].fd, 5);
  EXPECT_EQ(asked[0].offset, 65536u);
  EXPECT_EQ(asked[0].bytes, sizeof bytes);
}

TEST_F(RdmaMemoryTest, WithoutTheCallForADmabufItIsCopiedAndALineSaysSoOnce) {
  library.reg_dmabuf_mr = nullptr;
  memory->Add(bytes, sizeof bytes, DeviceMemory{kDevice, 5, 0});
  EXPECT_FALSE(Find(bytes, 8, one));
  EXPECT_NE(why_not.find("a GPU's memory, which are copied by the processor: Operation not supported"),
            std::string::npos)
      << why_not;
  why_not.clear();
  EXPECT_FALSE(Find(bytes, 8, one));
  EXPECT_EQ(why_not, "");
}

TEST_F(RdmaMemoryTest, WhatADeviceWroteIsUnflushedUntilItHasReadAfterIt) {
  memory->Add(bytes, sizeof bytes, DeviceMemory{kDevice});
  ASSERT_TRUE(Find(bytes, 8, one));
  ASSERT_TRUE(Find(bytes, 8, other));
  EXPECT_EQ(Unflushed(), 0u);
  Write(one);
  Write(other);
  auto found = memory->FindUnflushed(bytes + 16, 8);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].address, kDevice + 16);
  Write(one);  // after the read has begun
  for (const auto& what : found) memory->NoteFlushed(what, bytes + 16, 8);
  ASSERT_EQ(Unflushed(), 1u) << "a write after the read is not flushed by it";
  memory->NoteFlushed(memory->FindUnflushed(bytes, 8)[0], bytes, 8);
  EXPECT_EQ(Unflushed(), 0u);
}

TEST_F(RdmaMemoryTest, ADeviceThatCannotReadLosesTheMemory) {
  memory->Add(bytes, sizeof bytes, DeviceMemory{kDevice});
  ASSERT_TRUE(Find(bytes, 8, one));
  ASSERT_TRUE(Find(bytes, 8, other));
  Write(one);
  LoopbackFlush flush(memory, bytes, 8);
  for (const auto& what : memory->FindUnflushed(bytes, 8)) flush.Add(what, nullptr);
  bool done = false;
  EXPECT_TRUE(flush.Test(&done).ok());
  EXPECT_TRUE(done);
  EXPECT_EQ(given_back, 1);
  EXPECT_EQ(Unflushed(), 0u);
  ASSERT_TRUE(Find(bytes, 8, one)) << "it may be registered again";
  EXPECT_EQ(asked.size(), 3u);
}

TEST_F(RdmaMemoryTest, ADeviceThatDoesNotEvenGiveItBackIsAnError) {
  memory->Add(bytes, sizeof bytes, DeviceMemory{kDevice});
  ASSERT_TRUE(Find(bytes, 8, one));
  Write(one);
  give_back_result = EBUSY;
  LoopbackFlush flush(memory, bytes, 8);
  for (const auto& what : memory->FindUnflushed(bytes, 8)) flush.Add(what, nullptr);
  bool done = false;
  EXPECT_FALSE(flush.Test(&done).ok());
}

}  // namespace
}  // namespace r2ccl
