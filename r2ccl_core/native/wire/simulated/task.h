// Task: something to do later. It is done once at most and not copied, so that most need no memory of their own.
#ifndef R2CCL_WIRE_SIMULATED_TASK_H_
#define R2CCL_WIRE_SIMULATED_TASK_H_

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace r2ccl::simulated {

class Task {
 public:
  Task() = default;
  template <typename What, typename = std::enable_if_t<!std::is_same_v<std::decay_t<What>, Task>>>
  Task(What&& what) {  // NOLINT: as std::function
    Make(std::forward<What>(what));
  }
  Task(Task&& other) noexcept { Take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this == &other) return *this;
    Drop();
    Take(other);
    return *this;
  }
  ~Task() { Drop(); }

  void operator()() { kind_->run(room_); }
  // REQUIRES: it is empty.
  template <typename What>
  void Make(What&& what) {
    using Kept = std::decay_t<What>;
    if constexpr (sizeof(Kept) <= kRoom && std::is_nothrow_move_constructible_v<Kept>) {
      new (room_) Kept(std::forward<What>(what));
      kind_ = &kKind<Kept>;
    } else {
      auto elsewhere = [kept = std::make_unique<Kept>(std::forward<What>(what))] { (*kept)(); };
      new (room_) decltype(elsewhere)(std::move(elsewhere));
      kind_ = &kKind<decltype(elsewhere)>;
    }
  }
  // Gives up what it holds.
  void Drop() {
    if (const Kind* kind = std::exchange(kind_, nullptr)) kind->drop(room_);
  }

 private:
  static constexpr size_t kRoom = 96;
  struct Kind {
    void (*run)(void* what);
    void (*move)(void* from, void* to);  // nothing is left in `from`
    void (*drop)(void* what);
  };
  template <typename Kept>
  static constexpr Kind kKind{
      [](void* what) { (*static_cast<Kept*>(what))(); },
      [](void* from, void* to) {
        new (to) Kept(std::move(*static_cast<Kept*>(from)));
        static_cast<Kept*>(from)->~Kept();
      },
      [](void* what) { static_cast<Kept*>(what)->~Kept(); },
  };

  void Take(Task& other) {
    kind_ = std::exchange(other.kind_, nullptr);
    if (kind_ != nullptr) kind_->move(other.room_, room_);
  }

  const Kind* kind_ = nullptr;
  alignas(std::max_align_t) std::byte room_[kRoom];
};

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_TASK_H_
