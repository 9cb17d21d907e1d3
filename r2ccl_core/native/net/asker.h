// Asker: finds out whether a NIC answers, outside the streams that carry data.
#ifndef R2CCL_NET_ASKER_H_
#define R2CCL_NET_ASKER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "net/nic.h"
#include "net/wire.h"

namespace r2ccl {

enum class Answer {
  kReached,   // connected; where something was said, the other end said something back
  kRefused,   // the host answered that nobody listens there
  kSilent,    // no answer in time, or the NIC cannot send
  kNotAsked,  // too many questions at once
};
const char* ToString(Answer answer);
// Whether somebody's kernel answered: that nobody listens there is an answer, too.
constexpr bool IsAnswered(Answer answer) { return answer == Answer::kReached || answer == Answer::kRefused; }

struct Question {
  Nic nic;  // asked from here
  Target target;
  std::string greeting;  // said once connected; empty: to be connected is the answer
  int64_t patience_ns = 0;
};

class Asker {
 public:
  // `said` is what the other end answered to a greeting, nullptr where there was none.
  using OnAnswer = std::function<void(Answer answer, const Frame* said)>;

  virtual ~Asker() = default;
  // Every question is answered once, never from within, with no lock held, unless the asker goes first.
  virtual void Ask(Question question, OnAnswer on_answer) = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_NET_ASKER_H_
