// The memory of r2ccl-explore: what one run gives back is what the next one takes, in a few instructions and while the
// processor still has it in its cache. Linked into that program only, in place of operator new and delete.
//
// Blocks have sizes of a few kinds: multiples of 16 bytes, and above 1 KiB four for each power of two. Each thread
// keeps what it gave back in a list for each kind, and cuts new blocks from large pieces, which the kernel maps in huge
// pages where it may. Nothing goes back to the kernel; what a thread had when it ended is for the next one that begins.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

namespace {

constexpr size_t kPieceBytes = 32 << 20;
constexpr size_t kAlign = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
constexpr size_t kSmallBits = 10;
constexpr size_t kSmallKinds = (size_t{1} << kSmallBits) / kAlign;
constexpr size_t kKinds = kSmallKinds + (48 - kSmallBits) * 4;  // more than any machine has room for
constexpr uint64_t kTaken = 0x74616b656e210000u;

struct Block {
  uint64_t kind;  // and kTaken, while a program has it
  // What a program has begins here, in its place.
  Block* next;  // of those that were given back
};

size_t KindOf(size_t bytes) {
  if (bytes <= size_t{1} << kSmallBits) return (bytes - 1) / kAlign;
  auto top = static_cast<size_t>(std::bit_width(bytes - 1)) - 1;
  return kSmallKinds + (top - kSmallBits) * 4 + ((bytes - 1) >> (top - 2) & 3);
}
size_t BytesOf(size_t kind) {
  if (kind < kSmallKinds) return (kind + 1) * kAlign;
  size_t above = kind - kSmallKinds;
  return (above % 4 + 5) << (above / 4 + kSmallBits - 2);
}

class Memory {
 public:
  // nullptr: there is none.
  void* Take(size_t bytes) {
    size_t kind = KindOf(std::max(bytes, sizeof(Block*)) + sizeof(uint64_t));
    Block* block = free_[kind];
    if (block != nullptr) {
      free_[kind] = block->next;
    } else if ((block = Cut(BytesOf(kind))) == nullptr) {
      return nullptr;
    }
    block->kind = kTaken | kind;
    return &block->next;
  }
  void GiveBack(void* bytes) {
    auto* block = reinterpret_cast<Block*>(static_cast<char*>(bytes) - offsetof(Block, next));
    uint64_t kind = block->kind ^ kTaken;
    if (kind >= kKinds) std::abort();  // given back before, or written over
    block->kind = kind;
    block->next = std::exchange(free_[kind], block);
  }

 private:
  Block* Cut(size_t bytes) {
    if (bytes > left_) {
      size_t piece = std::max(bytes + kAlign, kPieceBytes);
      void* made = mmap(nullptr, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (made == MAP_FAILED) return nullptr;
      madvise(made, piece, MADV_HUGEPAGE);
      place_ = static_cast<char*>(made) + kAlign - offsetof(Block, next);
      left_ = piece - kAlign;
    }
    left_ -= bytes;
    return new (std::exchange(place_, place_ + bytes)) Block;
  }

  std::array<Block*, kKinds> free_{};
  char* place_ = nullptr;
  size_t left_ = 0;

  friend class Threads;
  Memory* next_idle_ = nullptr;
};

// Which thread has which memory.
class Threads {
 public:
  static Memory& Mine() { return *(mine_ != nullptr ? mine_ : Begin()); }

 private:
  struct AtItsEnd {
    ~AtItsEnd() {
      std::lock_guard lock(mutex_);
      mine_->next_idle_ = std::exchange(idle_, mine_);
      mine_ = nullptr;
    }
  };
  static Memory* Begin() {
    static thread_local AtItsEnd end;
    std::lock_guard lock(mutex_);
    if (idle_ == nullptr) return mine_ = new (std::malloc(sizeof(Memory))) Memory;
    mine_ = idle_;
    idle_ = mine_->next_idle_;
    return mine_;
  }

  static inline constinit thread_local Memory* mine_ = nullptr;
  static inline constinit std::mutex mutex_;
  static inline constinit Memory* idle_ = nullptr;
};

}  // namespace

void* operator new(size_t bytes) {
  void* taken = Threads::Mine().Take(bytes);
  if (taken == nullptr) throw std::bad_alloc();
  return taken;
}
void operator delete(void* bytes) noexcept {
  if (bytes != nullptr) Threads::Mine().GiveBack(bytes);
}
void operator delete(void* bytes, size_t) noexcept { operator delete(bytes); }
