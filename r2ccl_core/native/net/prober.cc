// Attempts, answers and their time.
#include "net/prober.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"

namespace r2ccl {

const char* ToString(Answer answer) {
  switch (answer) {
    case Answer::kReached:
      return "reached";
    case Answer::kRefused:
      return "refused";
    case Answer::kSilent:
      return "silent";
    case Answer::kNotAsked:
      return "not asked";
  }
  return "?";
}

void Prober::Ask(Question question, OnAnswer on_answer) {
  int64_t now_ns = NowNs();
  MutexLock lock(mutex_);
  Asked& asked = asked_[next_number_++];
  asked.deadline_ns = now_ns + question.patience_ns;
  asked.question = std::move(question);
  asked.on_answer = std::move(on_answer);
  if (asked_.size() > kMostQuestions) Settle(asked, Answer::kNotAsked);  // told at the next tick
}

void Prober::Tick(int64_t now_ns) {
  std::vector<Asked> answered;
  {
    MutexLock lock(mutex_);
    for (auto& [number, asked] : asked_) {
      if (!asked.answered && now_ns > asked.deadline_ns) Settle(asked, Answer::kSilent);
      if (!asked.answered && asked.attempts_left > 0 && now_ns >= asked.next_attempt_ns) {
        TryAgain(number, asked, now_ns);
      }
    }
    for (auto entry = asked_.begin(); entry != asked_.end();) {
      if (!entry->second.answered) {
        ++entry;
        continue;
      }
      answered.push_back(std::move(entry->second));
      entry = asked_.erase(entry);
    }
  }
  for (Asked& asked : answered) asked.on_answer(asked.answer, asked.has_said ? &asked.said : nullptr);
}

void Prober::TryAgain(uint64_t number, Asked& asked, int64_t now_ns) {
  --asked.attempts_left;
  asked.next_attempt_ns = now_ns + asked.question.patience_ns / kAttempts;
  auto attempt = std::make_unique<Attempt>();
  const Question& question = asked.question;
  // A NIC that cannot send now may be able to at the next attempt; an answer is only what comes from outside.
  if (!StartConnect(question.nic, question.target.address, question.target.port, &attempt->fd).ok()) return;
  attempt->poll_id = poller_->Add(attempt->fd.get(), EPOLLOUT, 0, Self());
  question_of_[attempt->poll_id] = number;
  asked.attempts.push_back(std::move(attempt));
}

void Prober::OnEvents(uint64_t id, int, uint32_t) {
  MutexLock lock(mutex_);
  auto number = question_of_.find(id);
  if (number == question_of_.end()) return;
  Asked& asked = asked_.at(number->second);
  for (auto& attempt : asked.attempts) {
    if (attempt->poll_id == id) {
      Progress(asked, *attempt);
      return;
    }
  }
}

void Prober::Progress(Asked& asked, Attempt& attempt) {
  if (!attempt.connected) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(attempt.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == ECONNREFUSED) return Settle(asked, Answer::kRefused);
    if (error != 0) return Drop(asked, attempt);
    if (asked.question.greeting.empty()) {
      // Whoever listens there is told that this is no stranger; whether it hears so does not matter.
      const std::string word = EncodeControl(FrameType::kPing);
      (void)!send(attempt.fd.get(), word.data(), word.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return Settle(asked, Answer::kReached);
    }
    attempt.connected = true;
    poller_->Modify(attempt.poll_id, EPOLLIN);
    const std::string& greeting = asked.question.greeting;
    ssize_t sent = send(attempt.fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(greeting.size())) Drop(asked, attempt);
    return;
  }
  ssize_t received = recv(attempt.fd.get(), attempt.header + attempt.bytes, kHeaderBytes - attempt.bytes, MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received <= 0) return Drop(asked, attempt);
  attempt.bytes += static_cast<size_t>(received);
  if (attempt.bytes < kHeaderBytes) return;
  if (!DecodeFrame(attempt.header, &asked.said).ok()) return Drop(asked, attempt);
  asked.has_said = true;
  Settle(asked, Answer::kReached);
}

void Prober::Drop(Asked& asked, Attempt& attempt) {
  poller_->Remove(attempt.poll_id);
  if (asked.question.greeting.empty()) ResetConnection(&attempt.fd);  // nothing is owed, and nothing is to stay behind
  question_of_.erase(attempt.poll_id);
  std::erase_if(asked.attempts, [&attempt](const auto& other) { return other.get() == &attempt; });
}

void Prober::Settle(Asked& asked, Answer answer) {
  asked.answered = true;
  asked.answer = answer;
  while (!asked.attempts.empty()) Drop(asked, *asked.attempts.back());
}

}  // namespace r2ccl
